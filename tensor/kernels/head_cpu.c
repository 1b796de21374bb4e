#include "tensor/kernels/head.h"

#include <math.h>
#include <stdbool.h>

#include "tensor/gemm.h"
#include "tensor/kernels/head_blocks.h"
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

struct head_block {
    float *logits; /* (rows, stride) */
    size_t stride;
    size_t rows;
    size_t vocab;
    const int32_t *targets; /* (rows) */
    const float *mask;      /* (rows) */
    float loss_seed;
    bool gradients; /* whether logits are turned into dlogits */
    double losses[HEAD_BLOCK_ROWS];
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

static void row_loss(struct head_block *block, size_t i)
{
    float *row = block->logits + i * block->stride;
    size_t target = (size_t)block->targets[i];
    double target_logit = (double)row[target];
    float max = row_max(row, block->vocab);
    double sum = row_exponentials(row, block->vocab, max);

    block->losses[i] = log(sum) + ((double)max - target_logit);
    if (block->gradients) {
        float factor = (float)((double)block->loss_seed / sum);

        for (size_t v = 0; v < block->vocab; v++) {
            row[v] *= factor;
        }
        row[target] -= block->loss_seed;
    }
}

/* A masked row's logits are not looked at, so that nothing in them can reach the others. */
static void loss_part(void *context, int part, int parts)
{
    struct head_block *block = context;
    size_t begin;
    size_t end;

    stream_share(block->rows, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        if (block->mask[i] != 0.0F) {
            row_loss(block, i);
        } else {
            block->losses[i] = 0.0;
            memset(block->logits + i * block->stride, 0, block->vocab * sizeof(*block->logits));
        }
    }
}

static bool any_target(const struct head_block *block)
{
    for (size_t i = 0; i < block->rows; i++) {
        if (block->mask[i] != 0.0F) {
            return true;
        }
    }
    return false;
}

/* Logits, losses and, where asked for, dlogits of the rows of `block`; adds to *loss_sum. Not for
 * blocks without a target, which need none of it. */
static enum status block_forward(struct head_block *block, const float *x, const float *wte,
                                 size_t C, double *loss_sum, struct stream *stream)
{
    struct gemm logits = {
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_TRANSPOSED,
        .M = block->rows,
        .N = block->vocab,
        .K = C,
        .alpha = 1.0F,
        .a = x,
        .b = wte,
        .c = block->logits,
        .lda = C,
        .ldb = C,
        .ldc = block->stride,
    };

    TRY(gemm_run(&logits, stream));
    stream_run(stream, loss_part, block);
    for (size_t i = 0; i < block->rows; i++) {
        *loss_sum += block->losses[i];
    }
    return STATUS_OK;
}

/* dwte += dlogitsᵀ · x, then x = dlogits · wte. */
static enum status block_backward(const struct head_block *block, float *x, float *dwte,
                                  const float *wte, size_t C, struct stream *stream)
{
    struct gemm weight = {
        .op_a = GEMM_TRANSPOSED,
        .op_b = GEMM_PLAIN,
        .M = block->vocab,
        .N = C,
        .K = block->rows,
        .alpha = 1.0F,
        .beta = 1.0F,
        .a = block->logits,
        .b = x,
        .c = dwte,
        .lda = block->stride,
        .ldb = C,
        .ldc = C,
    };
    struct gemm input = {
        .op_a = GEMM_PLAIN,
        .op_b = GEMM_PLAIN,
        .M = block->rows,
        .N = C,
        .K = block->vocab,
        .alpha = 1.0F,
        .a = block->logits,
        .b = wte,
        .c = x,
        .lda = block->stride,
        .ldb = C,
        .ldc = C,
    };

    TRY(gemm_run(&weight, stream));
    return gemm_run(&input, stream);
}

static struct head_block block_at(const struct head_shape *shape, size_t first_row,
                                  const int32_t *targets, const float *mask, float *workspace)
{
    size_t left = shape->rows - first_row;
    struct head_block block = {
        .logits = workspace,
        .stride = head_logits_stride(shape),
        .rows = left < HEAD_BLOCK_ROWS ? left : HEAD_BLOCK_ROWS,
        .vocab = shape->vocab,
        .targets = targets + first_row,
        .mask = mask + first_row,
        .loss_seed = shape->loss_seed,
    };

    return block;
}

static enum status block_train(struct head_block *block, float *x, float *dwte, const float *wte,
                               size_t C, double *loss_sum, struct stream *stream)
{
    if (!any_target(block)) {
        memset(x, 0, block->rows * C * sizeof(*x));
        return STATUS_OK;
    }
    block->gradients = true;
    TRY(block_forward(block, x, wte, C, loss_sum, stream));
    return block_backward(block, x, dwte, wte, C, stream);
}

enum status KERNEL(head_train)(float *x, float *dwte, double *loss_sum_out, const float *wte,
                               const int32_t *targets, const float *mask,
                               const struct head_shape *shape, float *workspace,
                               struct stream *stream)
{
    size_t C = shape->hidden;
    double loss_sum = 0.0;

    for (size_t row = 0; row < shape->rows; row += HEAD_BLOCK_ROWS) {
        struct head_block block = block_at(shape, row, targets, mask, workspace);

        TRY(block_train(&block, x + row * C, dwte, wte, C, &loss_sum, stream));
    }
    *loss_sum_out = loss_sum;
    return STATUS_OK;
}

enum status KERNEL(head_evaluate)(const float *x, double *loss_sum_out, const float *wte,
                                  const int32_t *targets, const float *mask,
                                  const struct head_shape *shape, float *workspace,
                                  struct stream *stream)
{
    size_t C = shape->hidden;
    double loss_sum = 0.0;

    for (size_t row = 0; row < shape->rows; row += HEAD_BLOCK_ROWS) {
        struct head_block block = block_at(shape, row, targets, mask, workspace);

        if (!any_target(&block)) {
            continue;
        }
        TRY(block_forward(&block, x + row * C, wte, C, &loss_sum, stream));
    }
    *loss_sum_out = loss_sum;
    return STATUS_OK;
}
