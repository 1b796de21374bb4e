#include "tensor/kernels/layernorm.h"

#include <math.h>
#include <string.h>

#include "tensor/kernels/typed_cpu.h"
#include "tensor/stream.h"

/* Partial sums of a row, kept apart so that the compiler can add them side by side: element c
 * goes to lane c mod LANES, and the lanes are folded in halves. A block of a typed row is a
 * multiple of them. */
#define LANES 32

#define COLUMN_GRAIN 16

struct norm {
    void *out;
    float *mean;
    float *rstd;
    const void *in;
    const float *weight;
    const float *bias;
    size_t rows;
    size_t C;
    float eps;
    enum dtype type;
};

struct norm_gradient {
    void *din;
    float *dweight;
    float *dbias;
    const float *dout;
    const void *dresidual; /* NULL: zero */
    const void *in;
    const float *weight;
    const float *mean;
    const float *rstd;
    float *partials; /* (blocks, 2, C): of dweight, of dbias */
    size_t blocks;
    size_t block_rows;
    size_t rows;
    size_t C;
    enum dtype type;
};

static float fold(float lanes[LANES])
{
#pragma GCC unroll 5
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t k = 0; k < half; k++) {
            lanes[k] += lanes[k + half];
        }
    }
    return lanes[0];
}

static void add_sum(float lanes[LANES], const float *in, size_t elems)
{
    float sum[LANES];
    size_t c = 0;

    memcpy(sum, lanes, sizeof(sum));
    for (; c + LANES <= elems; c += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            sum[k] += in[c + k];
        }
    }
    for (size_t k = 0; c + k < elems; k++) {
        sum[k] += in[c + k];
    }
    memcpy(lanes, sum, sizeof(sum));
}

static void add_deviation(float lanes[LANES], const float *in, float mean, size_t elems)
{
    float sum[LANES];
    size_t c = 0;

    memcpy(sum, lanes, sizeof(sum));
    for (; c + LANES <= elems; c += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            const float apart = in[c + k] - mean;
            sum[k] += apart * apart;
        }
    }
    for (size_t k = 0; c + k < elems; k++) {
        const float apart = in[c + k] - mean;
        sum[k] += apart * apart;
    }
    memcpy(lanes, sum, sizeof(sum));
}

/* A row that is gone through several times. */
struct row {
    const void *data;
    enum dtype type;
};

/* In 16 bits, a row of one block is widened into `buffer` once; a longer one each time. */
static struct row row_of(const void *tensor, enum dtype type, size_t first, size_t C, float *buffer)
{
    if (C > TYPED_BLOCK) {
        return (struct row){dtype_const_at(tensor, type, first), type};
    }
    return (struct row){typed_read(tensor, type, first, C, buffer), DTYPE_FP32};
}

static const float *row_read(const struct row *row, size_t first, size_t elems, float *buffer)
{
    return typed_read(row->data, row->type, first, elems, buffer);
}

static void forward_row(const struct norm *norm, size_t at)
{
    const size_t C = norm->C;
    const size_t step = typed_step(norm->type, C);
    float whole[TYPED_BLOCK];
    float buffer[TYPED_BLOCK];
    float result[TYPED_BLOCK];
    float lanes[LANES] = {0.0F};
    const struct row row = row_of(norm->in, norm->type, at * C, C, whole);

    for (size_t c = 0; c < C; c += step) {
        const size_t elems = typed_elems(c, C, step);
        add_sum(lanes, row_read(&row, c, elems, buffer), elems);
    }
    const float mean = fold(lanes) / (float)C;
    memset(lanes, 0, sizeof(lanes));
    for (size_t c = 0; c < C; c += step) {
        const size_t elems = typed_elems(c, C, step);
        add_deviation(lanes, row_read(&row, c, elems, buffer), mean, elems);
    }
    const float rstd = 1.0F / sqrtf(fold(lanes) / (float)C + norm->eps);
    for (size_t c = 0; c < C; c += step) {
        const size_t elems = typed_elems(c, C, step);
        const float *in = row_read(&row, c, elems, buffer);
        const float *weight = norm->weight + c;
        const float *bias = norm->bias + c;
        float *out = typed_place(norm->out, norm->type, at * C + c, result);
        KERNEL_INDEPENDENT
        for (size_t i = 0; i < elems; i++) {
            out[i] = (in[i] - mean) * rstd * weight[i] + bias[i];
        }
        typed_keep(norm->out, norm->type, at * C + c, elems, result);
    }
    norm->mean[at] = mean;
    norm->rstd[at] = rstd;
}

static void forward_part(void *context, int part, int parts)
{
    const struct norm *norm = context;
    size_t row = 0;
    size_t end = 0;

    stream_share(norm->rows, 1, part, parts, &row, &end);
    for (; row < end; row++) {
        forward_row(norm, row);
    }
}

enum status KERNEL(layernorm_forward)(void *out, float *mean, float *rstd, const void *in,
                                      const float *weight, const float *bias, size_t rows, size_t C,
                                      float eps, enum dtype type, struct stream *stream)
{
    struct norm norm = {.out = out,
                        .mean = mean,
                        .rstd = rstd,
                        .in = in,
                        .weight = weight,
                        .bias = bias,
                        .rows = rows,
                        .C = C,
                        .eps = eps,
                        .type = type};

    stream_run(stream, forward_part, &norm);
    return STATUS_OK;
}

/* What a row's gradient needs of the whole row, in lanes. */
struct row_sums {
    float g[LANES];        /* sum of dout · weight */
    float g_normed[LANES]; /* sum of dout · weight · n */
};

/* A block's part of them, and its addition to the sums over rows. */
static void row_reduce(struct row_sums *restrict sums, const float *restrict dout,
                       const float *restrict in, const float *restrict weight,
                       float *restrict dweight, float *restrict dbias, float mean, float rstd,
                       size_t elems)
{
    struct row_sums lanes = *sums;

    for (size_t c = 0; c < elems; c += LANES) {
        const size_t most = elems - c < LANES ? elems - c : LANES;
        for (size_t k = 0; k < most; k++) {
            const float normed = (in[c + k] - mean) * rstd;
            const float g = dout[c + k] * weight[c + k];
            lanes.g[k] += g;
            lanes.g_normed[k] += g * normed;
            dweight[c + k] += dout[c + k] * normed;
            dbias[c + k] += dout[c + k];
        }
    }
    *sums = lanes;
}

/* The means over a row that its gradient takes away. */
struct row_means {
    float mean;
    float rstd;
    float shift;
    float slope;
};

/* A block of din; dresidual may be NULL. */
static void row_gradient(float *din, const float *dout, const float *dresidual, const float *in,
                         const float *weight, const struct row_means *means, size_t elems)
{
    const float mean = means->mean;
    const float rstd = means->rstd;
    const float shift = means->shift;
    const float slope = means->slope;

    if (dresidual == NULL) {
        KERNEL_INDEPENDENT
        for (size_t c = 0; c < elems; c++) {
            const float normed = (in[c] - mean) * rstd;
            din[c] = rstd * (dout[c] * weight[c] - shift - normed * slope);
        }
        return;
    }
    KERNEL_INDEPENDENT
    for (size_t c = 0; c < elems; c++) {
        const float normed = (in[c] - mean) * rstd;
        din[c] = dresidual[c] + rstd * (dout[c] * weight[c] - shift - normed * slope);
    }
}

static void backward_row(const struct norm_gradient *norm, size_t at, float *dweight, float *dbias)
{
    const size_t C = norm->C;
    const size_t step = typed_step(norm->type, C);
    const float *dout = norm->dout + at * C;
    float whole[TYPED_BLOCK];
    float buffer[TYPED_BLOCK];
    float residual_buffer[TYPED_BLOCK];
    float result[TYPED_BLOCK];
    const struct row row = row_of(norm->in, norm->type, at * C, C, whole);
    struct row_sums sums = {{0.0F}, {0.0F}};
    struct row_means means = {.mean = norm->mean[at], .rstd = norm->rstd[at]};

    for (size_t c = 0; c < C; c += step) {
        const size_t elems = typed_elems(c, C, step);
        row_reduce(&sums, dout + c, row_read(&row, c, elems, buffer), norm->weight + c, dweight + c,
                   dbias + c, means.mean, means.rstd, elems);
    }
    means.shift = fold(sums.g) / (float)C;
    means.slope = fold(sums.g_normed) / (float)C;
    for (size_t c = 0; c < C; c += step) {
        const size_t elems = typed_elems(c, C, step);
        const float *dresidual = NULL;
        float *din = typed_place(norm->din, norm->type, at * C + c, result);
        if (norm->dresidual != NULL) {
            dresidual = typed_read(norm->dresidual, norm->type, at * C + c, elems, residual_buffer);
        }
        row_gradient(din, dout + c, dresidual, row_read(&row, c, elems, buffer), norm->weight + c,
                     &means, elems);
        typed_keep(norm->din, norm->type, at * C + c, elems, result);
    }
}

static void backward_part(void *context, int part, int parts)
{
    const struct norm_gradient *norm = context;
    size_t block = 0;
    size_t block_end = 0;

    stream_share(norm->blocks, 1, part, parts, &block, &block_end);
    for (; block < block_end; block++) {
        float *dweight = norm->partials + block * 2 * norm->C;
        float *dbias = dweight + norm->C;
        const size_t begin = block * norm->block_rows;
        const size_t left = norm->rows - begin;
        const size_t end = begin + (left < norm->block_rows ? left : norm->block_rows);
        memset(dweight, 0, 2 * norm->C * sizeof(*dweight));
        for (size_t row = begin; row < end; row++) {
            backward_row(norm, row, dweight, dbias);
        }
    }
}

static void add_partials_part(void *context, int part, int parts)
{
    const struct norm_gradient *norm = context;
    const size_t C = norm->C;
    size_t begin = 0;
    size_t end = 0;

    stream_share(C, COLUMN_GRAIN, part, parts, &begin, &end);
    for (size_t block = 0; block < norm->blocks; block++) {
        const float *restrict partial = norm->partials + block * 2 * C;
        float *restrict dweight = norm->dweight;
        float *restrict dbias = norm->dbias;
        for (size_t c = begin; c < end; c++) {
            dweight[c] += partial[c];
        }
        for (size_t c = begin; c < end; c++) {
            dbias[c] += partial[C + c];
        }
    }
}

enum status KERNEL(layernorm_backward)(void *din, float *dweight, float *dbias, const float *dout,
                                       const void *dresidual, const void *in, const float *weight,
                                       const float *mean, const float *rstd, size_t rows, size_t C,
                                       float *partials, enum dtype type, struct stream *stream)
{
    const size_t fair = (rows + LAYERNORM_MOST_BLOCKS - 1) / LAYERNORM_MOST_BLOCKS;
    const size_t block_rows = fair > LAYERNORM_BLOCK_ROWS ? fair : LAYERNORM_BLOCK_ROWS;
    struct norm_gradient norm = {.din = din,
                                 .dweight = dweight,
                                 .dbias = dbias,
                                 .dout = dout,
                                 .dresidual = dresidual,
                                 .in = in,
                                 .weight = weight,
                                 .mean = mean,
                                 .rstd = rstd,
                                 .partials = partials,
                                 .blocks = (rows + block_rows - 1) / block_rows,
                                 .block_rows = block_rows,
                                 .rows = rows,
                                 .C = C,
                                 .type = type};

    stream_run(stream, backward_part, &norm);
    stream_run(stream, add_partials_part, &norm);
    return STATUS_OK;
}

/* A pair of sums for each block of rows; how many blocks there are does not depend on the team. */
size_t KERNEL(layernorm_partials)(size_t C, int threads)
{
    (void)threads;
    return (size_t)2 * LAYERNORM_MOST_BLOCKS * C;
}
