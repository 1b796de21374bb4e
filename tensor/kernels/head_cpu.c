#include "tensor/kernels/head.h"

#include <math.h>

#include "tensor/gemm.h"
#include "tensor/kernels/math_cpu.h"
#include "tensor/stream.h"

/*
 * A row of logits is read in pieces of LANES, each lane with a maximum and a sum of its own; a
 * short last piece is filled up with -inf, so that it runs through the same code. The lanes' sums
 * are emptied into a double every SPAN elements, before rounding errors can add up.
 */
enum {
    LANES = 32,
    SPAN = 2048
};

struct head_part {
    const struct head_shape *shape;
    float *logits; /* (rows, stride) */
    size_t stride;
    struct head_row *own; /* (rows) */
    const struct head_rows *all;
    double *losses; /* (rows) */
    const int32_t *targets;
    const float *mask;
    bool gradients;
};

static float row_max(const float *row, size_t elems)
{
    float lanes[LANES];
    float max;
    size_t i = 0;

    for (size_t j = 0; j < LANES; j++) {
        lanes[j] = -INFINITY;
    }
    for (; i + LANES <= elems; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lanes[j] = row[i + j] > lanes[j] ? row[i + j] : lanes[j];
        }
    }
    for (size_t j = 0; i + j < elems; j++) {
        lanes[j] = row[i + j] > lanes[j] ? row[i + j] : lanes[j];
    }
    max = lanes[0];
    for (size_t j = 1; j < LANES; j++) {
        max = lanes[j] > max ? lanes[j] : max;
    }
    return max;
}

/* One piece becomes exp(piece - max) and is added to the lanes. */
static inline void exponential_piece(float *piece, float max, float *lanes)
{
    float local[LANES];

    for (size_t j = 0; j < LANES; j++) {
        local[j] = math_exp_flushed(piece[j] - max);
    }
    memcpy(piece, local, sizeof(local));
    for (size_t j = 0; j < LANES; j++) {
        lanes[j] += local[j];
    }
}

static double lanes_sum(const float *lanes)
{
    double sum = 0.0;

    for (size_t j = 0; j < LANES; j++) {
        sum += (double)lanes[j];
    }
    return sum;
}

/* row becomes exp(row - max); the answer is its sum. */
static double row_exponentials(float *row, size_t elems, float max)
{
    double sum = 0.0;
    size_t whole = elems / LANES * LANES;

    for (size_t begin = 0; begin < whole; begin += SPAN) {
        size_t end = whole - begin < SPAN ? whole : begin + SPAN;
        float lanes[LANES] = {0};

        for (size_t i = begin; i < end; i += LANES) {
            exponential_piece(row + i, max, lanes);
        }
        sum += lanes_sum(lanes);
    }
    if (whole < elems) {
        float lanes[LANES] = {0};
        float piece[LANES];

        for (size_t j = 0; j < LANES; j++) {
            piece[j] = whole + j < elems ? row[whole + j] : -INFINITY;
        }
        exponential_piece(piece, max, lanes);
        memcpy(row + whole, piece, (elems - whole) * sizeof(*row));
        sum += lanes_sum(lanes);
    }
    return sum;
}

/* The target's row of the matrix here; vocab or more where another shard has it. */
static size_t target_here(const struct head_part *part, size_t i)
{
    return (size_t)part->targets[i] - part->shape->first_token;
}

static struct head_row row_exponents(const struct head_part *part, size_t i)
{
    size_t vocab = part->shape->vocab;
    float *row = part->logits + i * part->stride;
    size_t target = target_here(part, i);
    double target_logit = target < vocab ? (double)row[target] : 0.0;
    float max = row_max(row, vocab);

    return (struct head_row){
        .max = (double)max, .sum = row_exponentials(row, vocab, max), .target = target_logit};
}

/* A masked row's logits are not looked at, so that nothing in them can reach the others. */
static void logits_part(void *context, int index, int parts)
{
    const struct head_part *part = context;
    size_t begin;
    size_t end;

    stream_share(part->shape->rows, 1, index, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        part->own[i] = part->mask[i] != 0.0F ? row_exponents(part, i) : (struct head_row){0};
    }
}

/* A row over all shards, in ascending order; with one shard its numbers come out as they are. */
static struct head_row whole_row(const struct head_rows *all, size_t i)
{
    struct head_row whole = {.max = -(double)INFINITY};

    for (size_t s = 0; s < all->shards; s++) {
        const struct head_row *row = &all->rows[s * all->stride + i];

        whole.max = row->max > whole.max ? row->max : whole.max;
    }
    for (size_t s = 0; s < all->shards; s++) {
        const struct head_row *row = &all->rows[s * all->stride + i];

        whole.sum += row->sum * exp(row->max - whole.max);
        whole.target += row->target;
    }
    return whole;
}

static void row_loss(const struct head_part *part, size_t i)
{
    struct head_row whole = whole_row(part->all, i);
    const struct head_row *own = &part->all->rows[part->all->shard * part->all->stride + i];
    float *row = part->logits + i * part->stride;
    size_t target = target_here(part, i);
    size_t vocab = part->shape->vocab;
    double seed = (double)part->shape->loss_seed;

    part->losses[i] = log(whole.sum) + (whole.max - whole.target);
    if (part->gradients) {
        float factor = (float)(exp(own->max - whole.max) * seed / whole.sum);

        for (size_t v = 0; v < vocab; v++) {
            row[v] *= factor;
        }
        if (target < vocab) {
            row[target] -= part->shape->loss_seed;
        }
    }
}

static void loss_part(void *context, int index, int parts)
{
    const struct head_part *part = context;
    size_t begin;
    size_t end;

    stream_share(part->shape->rows, 1, index, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        if (part->mask[i] != 0.0F) {
            row_loss(part, i);
            continue;
        }
        part->losses[i] = 0.0;
        if (part->gradients) {
            memset(part->logits + i * part->stride, 0, part->shape->vocab * sizeof(float));
        }
    }
}

enum status KERNEL(head_logits)(float *logits, struct head_row *own, const void *x, const void *wte,
                                const int32_t *targets, const float *mask,
                                const struct head_shape *shape, enum dtype type,
                                struct stream *stream)
{
    struct head_part part = {
        .shape = shape,
        .logits = logits,
        .stride = head_logits_stride(shape),
        .own = own,
        .targets = targets,
        .mask = mask,
    };
    struct gemm product = {
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_TRANSPOSED,
        .a_type = type,
        .b_type = type,
        .M = shape->rows,
        .N = shape->vocab,
        .K = shape->hidden,
        .alpha = 1.0F,
        .a = x,
        .b = wte,
        .c = logits,
        .lda = shape->hidden,
        .ldb = shape->hidden,
        .ldc = part.stride,
    };

    TRY(gemm_run(&product, stream));
    stream_run(stream, logits_part, &part);
    return STATUS_OK;
}

enum status KERNEL(head_loss)(float *logits, double *losses, const struct head_rows *all,
                              const int32_t *targets, const float *mask,
                              const struct head_shape *shape, bool gradients, enum dtype type,
                              struct stream *stream)
{
    struct head_part part = {
        .shape = shape,
        .logits = logits,
        .stride = head_logits_stride(shape),
        .all = all,
        .losses = losses,
        .targets = targets,
        .mask = mask,
        .gradients = gradients,
    };

    (void)type; /* dlogits are fp32 in every one */
    stream_run(stream, loss_part, &part);
    return STATUS_OK;
}

enum status KERNEL(head_add_losses)(double *sum, const double *losses, size_t rows,
                                    struct stream *stream)
{
    (void)stream;
    for (size_t i = 0; i < rows; i++) {
        *sum += losses[i];
    }
    return STATUS_OK;
}

enum status KERNEL(head_backward)(float *dx, float *dwte, const void *x, const float *dlogits,
                                  const void *wte, const struct head_shape *shape, enum dtype type,
                                  struct stream *stream)
{
    size_t C = shape->hidden;
    size_t stride = head_logits_stride(shape);
    struct gemm weight = {
        .op_a = GEMM_TRANSPOSED,
        .op_b = GEMM_PLAIN,
        .b_type = type,
        .M = shape->vocab,
        .N = C,
        .K = shape->rows,
        .alpha = 1.0F,
        .beta = 1.0F,
        .a = dlogits,
        .b = x,
        .c = dwte,
        .lda = stride,
        .ldb = C,
        .ldc = C,
    };
    struct gemm input = {
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_PLAIN,
        .b_type = type,
        .M = shape->rows,
        .N = C,
        .K = shape->vocab,
        .alpha = 1.0F,
        .a = dlogits,
        .b = wte,
        .c = dx,
        .lda = stride,
        .ldb = C,
        .ldc = C,
    };

    TRY(gemm_run(&weight, stream));
    return gemm_run(&input, stream);
}
