#include "tensor/kernels/layernorm.h"

#include <math.h>
#include <string.h>

#include "tensor/stream.h"

/* Partial sums of a row, kept apart so that the compiler can add them side by side: element c
 * goes to lane c mod LANES, and the lanes are folded in halves. */
#define LANES 32

#define COLUMN_GRAIN 16

struct norm {
    float *out;
    float *mean;
    float *rstd;
    const float *in;
    const float *weight;
    const float *bias;
    size_t rows;
    size_t C;
    float eps;
};

struct norm_gradient {
    float *din;
    float *dweight;
    float *dbias;
    const float *dout;
    const float *dresidual; /* NULL: zero */
    const float *in;
    const float *weight;
    const float *mean;
    const float *rstd;
    float *partials; /* (blocks, 2, C): of dweight, of dbias */
    size_t blocks;
    size_t block_rows;
    size_t rows;
    size_t C;
};

static float fold(float lanes[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t k = 0; k < half; k++) {
            lanes[k] += lanes[k + half];
        }
    }
    return lanes[0];
}

static float row_sum(const float *in, size_t C)
{
    float lanes[LANES] = {0.0F};
    size_t c = 0;

    for (; c + LANES <= C; c += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            lanes[k] += in[c + k];
        }
    }
    for (size_t k = 0; c + k < C; k++) {
        lanes[k] += in[c + k];
    }
    return fold(lanes);
}

static float row_deviation(const float *in, float mean, size_t C)
{
    float lanes[LANES] = {0.0F};
    size_t c = 0;

    for (; c + LANES <= C; c += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            const float apart = in[c + k] - mean;
            lanes[k] += apart * apart;
        }
    }
    for (size_t k = 0; c + k < C; k++) {
        const float apart = in[c + k] - mean;
        lanes[k] += apart * apart;
    }
    return fold(lanes);
}

static void forward_row(const struct norm *norm, size_t row)
{
    const size_t C = norm->C;
    const float *in = norm->in + row * C;
    const float *weight = norm->weight;
    const float *bias = norm->bias;
    float *out = norm->out + row * C;
    const float mean = row_sum(in, C) / (float)C;
    const float rstd = 1.0F / sqrtf(row_deviation(in, mean, C) / (float)C + norm->eps);

    KERNEL_INDEPENDENT
    for (size_t c = 0; c < C; c++) {
        out[c] = (in[c] - mean) * rstd * weight[c] + bias[c];
    }
    norm->mean[row] = mean;
    norm->rstd[row] = rstd;
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

enum status KERNEL(layernorm_forward)(float *out, float *mean, float *rstd, const float *in,
                                      const float *weight, const float *bias, size_t rows, size_t C,
                                      float eps, struct stream *stream)
{
    struct norm norm = {.out = out,
                        .mean = mean,
                        .rstd = rstd,
                        .in = in,
                        .weight = weight,
                        .bias = bias,
                        .rows = rows,
                        .C = C,
                        .eps = eps};

    stream_run(stream, forward_part, &norm);
    return STATUS_OK;
}

/* What a row's gradient needs of the whole row, and the row's addition to the block's sums. */
struct row_sums {
    float g;        /* sum of dout · weight */
    float g_normed; /* sum of dout · weight · n */
};

static struct row_sums row_reduce(const float *restrict dout, const float *restrict in,
                                  const float *restrict weight, float *restrict dweight,
                                  float *restrict dbias, float mean, float rstd, size_t C)
{
    float g_lanes[LANES] = {0.0F};
    float g_normed_lanes[LANES] = {0.0F};
    struct row_sums sums;

    for (size_t c = 0; c < C; c += LANES) {
        const size_t most = C - c < LANES ? C - c : LANES;
        for (size_t k = 0; k < most; k++) {
            const float normed = (in[c + k] - mean) * rstd;
            const float g = dout[c + k] * weight[c + k];
            g_lanes[k] += g;
            g_normed_lanes[k] += g * normed;
            dweight[c + k] += dout[c + k] * normed;
            dbias[c + k] += dout[c + k];
        }
    }
    sums.g = fold(g_lanes);
    sums.g_normed = fold(g_normed_lanes);
    return sums;
}

static void backward_row(const struct norm_gradient *norm, size_t row, float *dweight, float *dbias)
{
    const size_t C = norm->C;
    const float *dout = norm->dout + row * C;
    const float *in = norm->in + row * C;
    const float *weight = norm->weight;
    const float *dresidual = norm->dresidual != NULL ? norm->dresidual + row * C : NULL;
    float *din = norm->din + row * C;
    const float mean = norm->mean[row];
    const float rstd = norm->rstd[row];
    const struct row_sums sums = row_reduce(dout, in, weight, dweight, dbias, mean, rstd, C);
    const float shift = sums.g / (float)C;
    const float slope = sums.g_normed / (float)C;

    if (dresidual == NULL) {
        KERNEL_INDEPENDENT
        for (size_t c = 0; c < C; c++) {
            const float normed = (in[c] - mean) * rstd;
            din[c] = rstd * (dout[c] * weight[c] - shift - normed * slope);
        }
        return;
    }
    KERNEL_INDEPENDENT
    for (size_t c = 0; c < C; c++) {
        const float normed = (in[c] - mean) * rstd;
        din[c] = dresidual[c] + rstd * (dout[c] * weight[c] - shift - normed * slope);
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

enum status KERNEL(layernorm_backward)(float *din, float *dweight, float *dbias, const float *dout,
                                       const float *dresidual, const float *in, const float *weight,
                                       const float *mean, const float *rstd, size_t rows, size_t C,
                                       float *partials, struct stream *stream)
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
                                 .C = C};

    stream_run(stream, backward_part, &norm);
    stream_run(stream, add_partials_part, &norm);
    return STATUS_OK;
}
