/*
 * Forward and din take a warp a row. dweight and dbias take a thread a column within a block of rows,
 * then a thread a column over the blocks, in ascending order: the bits depend on N and C alone.
 */
#include "tensor/cuda/kernel.cuh"

#include "tensor/kernels.h"
#include "tensor/kernels/layernorm.h"

#define THREADS 256
#define ROWS    (THREADS / WARP_LANES) /* of a block */

template <typename NUMBER>
__global__ void normalize_rows(NUMBER *out, float *mean_out, float *rstd_out, const NUMBER *in,
                               const float *weight, const float *bias, size_t rows, size_t C,
                               float eps)
{
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.y;
    const NUMBER *x = in + row * C;
    float sum = 0.0F;
    float squares = 0.0F;
    float mean;
    float rstd;

    if (row >= rows) {
        return;
    }
    for (size_t c = threadIdx.x; c < C; c += WARP_LANES) {
        sum += widen(x[c]);
    }
    mean = warp_sum(sum) / (float)C;
    for (size_t c = threadIdx.x; c < C; c += WARP_LANES) {
        float centred = widen(x[c]) - mean;

        squares += centred * centred;
    }
    rstd = 1.0F / sqrtf(warp_sum(squares) / (float)C + eps);
    for (size_t c = threadIdx.x; c < C; c += WARP_LANES) {
        narrow(&out[row * C + c], (widen(x[c]) - mean) * rstd * weight[c] + bias[c]);
    }
    if (threadIdx.x == 0) {
        mean_out[row] = mean;
        rstd_out[row] = rstd;
    }
}

template <typename NUMBER>
__global__ void input_gradients(NUMBER *din, const float *dout, const NUMBER *dresidual,
                                const NUMBER *in, const float *weight, const float *mean,
                                const float *rstd, size_t rows, size_t C)
{
    size_t row = (size_t)blockIdx.x * ROWS + threadIdx.y;
    size_t first = row * C;
    float g_sum = 0.0F;
    float gn_sum = 0.0F;

    if (row >= rows) {
        return;
    }
    for (size_t c = threadIdx.x; c < C; c += WARP_LANES) {
        float n = (widen(in[first + c]) - mean[row]) * rstd[row];
        float g = dout[first + c] * weight[c];

        g_sum += g;
        gn_sum += g * n;
    }
    g_sum = warp_sum(g_sum) / (float)C;
    gn_sum = warp_sum(gn_sum) / (float)C;
    for (size_t c = threadIdx.x; c < C; c += WARP_LANES) {
        float n = (widen(in[first + c]) - mean[row]) * rstd[row];
        float g = dout[first + c] * weight[c];
        float before = dresidual != NULL ? widen(dresidual[first + c]) : 0.0F;

        narrow(&din[first + c], before + rstd[row] * (g - g_sum - n * gn_sum));
    }
}

/* A block of rows and a column: partials (2,blocks,C). */
template <typename NUMBER>
__global__ void column_sums(float *partials, const float *dout, const NUMBER *in, const float *mean,
                            const float *rstd, size_t rows, size_t C, size_t block_rows)
{
    size_t c = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t begin = blockIdx.y * block_rows;
    size_t end = begin + block_rows < rows ? begin + block_rows : rows;
    float dweight = 0.0F;
    float dbias = 0.0F;

    if (c >= C) {
        return;
    }
    for (size_t row = begin; row < end; row++) {
        float d = dout[row * C + c];

        dweight += d * ((widen(in[row * C + c]) - mean[row]) * rstd[row]);
        dbias += d;
    }
    partials[blockIdx.y * C + c] = dweight;
    partials[((size_t)gridDim.y + blockIdx.y) * C + c] = dbias;
}

__global__ void add_column_sums(float *dweight, float *dbias, const float *partials, size_t C,
                                size_t blocks)
{
    size_t c = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float weight_sum = 0.0F;
    float bias_sum = 0.0F;

    if (c >= C) {
        return;
    }
    for (size_t block = 0; block < blocks; block++) {
        weight_sum += partials[block * C + c];
        bias_sum += partials[(blocks + block) * C + c];
    }
    dweight[c] += weight_sum;
    dbias[c] += bias_sum;
}

template <typename NUMBER>
static enum status launch_forward(NUMBER *out, float *mean, float *rstd, const NUMBER *in,
                                  const float *weight, const float *bias, size_t rows, size_t C,
                                  float eps, struct stream *stream)
{
    LAUNCH(normalize_rows<NUMBER>, grid_of(rows, ROWS, UINT32_MAX), dim3(WARP_LANES, ROWS), stream,
           out, mean, rstd, in, weight, bias, rows, C, eps);
}

enum status KERNEL(layernorm_forward)(void *out, float *mean, float *rstd, const void *in,
                                      const float *weight, const float *bias, size_t rows, size_t C,
                                      float eps, enum dtype type, struct stream *stream)
{
    if (rows == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_forward((NUMBER *)out, mean, rstd, (const NUMBER *)in, weight, bias,
                                        rows, C, eps, stream));
}

template <typename NUMBER>
static enum status launch_input(NUMBER *din, const float *dout, const NUMBER *dresidual,
                                const NUMBER *in, const float *weight, const float *mean,
                                const float *rstd, size_t rows, size_t C, struct stream *stream)
{
    LAUNCH(input_gradients<NUMBER>, grid_of(rows, ROWS, UINT32_MAX), dim3(WARP_LANES, ROWS), stream,
           din, dout, dresidual, in, weight, mean, rstd, rows, C);
}

template <typename NUMBER>
static enum status launch_columns(float *partials, const float *dout, const NUMBER *in,
                                  const float *mean, const float *rstd, size_t rows, size_t C,
                                  size_t blocks, struct stream *stream)
{
    size_t block_rows = (rows + blocks - 1) / blocks;
    unsigned columns = grid_of(C, THREADS, UINT32_MAX);

    LAUNCH(column_sums<NUMBER>, dim3(columns, (unsigned)blocks), THREADS, stream, partials, dout,
           in, mean, rstd, rows, C, block_rows);
}

static enum status launch_adding(float *dweight, float *dbias, const float *partials, size_t C,
                                 size_t blocks, struct stream *stream)
{
    LAUNCH(add_column_sums, grid_of(C, THREADS, UINT32_MAX), THREADS, stream, dweight, dbias,
           partials, C, blocks);
}

enum status KERNEL(layernorm_backward)(void *din, float *dweight, float *dbias, const float *dout,
                                       const void *dresidual, const void *in, const float *weight,
                                       const float *mean, const float *rstd, size_t rows, size_t C,
                                       float *partials, enum dtype type, struct stream *stream)
{
    size_t blocks = (rows + LAYERNORM_BLOCK_ROWS - 1) / LAYERNORM_BLOCK_ROWS;

    if (rows == 0) {
        return STATUS_OK;
    }
    if (blocks > LAYERNORM_MOST_BLOCKS) {
        blocks = LAYERNORM_MOST_BLOCKS;
    }
    /* Columns first: din may lie where dout does. */
    BY_TYPE(type, TRY(launch_columns(partials, dout, (const NUMBER *)in, mean, rstd, rows, C,
                                     blocks, stream));
            break);
    TRY(launch_adding(dweight, dbias, partials, C, blocks, stream));
    BY_TYPE(type, return launch_input((NUMBER *)din, dout, (const NUMBER *)dresidual,
                                      (const NUMBER *)in, weight, mean, rstd, rows, C, stream));
}
