#include "tensor/kernels/bias.h"

#include "tensor/cuda/columns.cuh"
#include "tensor/cuda/pack.cuh"

/* Rows that a thread reads at once. */
#define TOGETHER 4

template <typename NUMBER, int WIDTH>
__global__ void add_bias(NUMBER *inout, const NUMBER *bias, size_t rows, size_t K)
{
    size_t row = pack_row();

    if (row >= rows) {
        return;
    }
    FOR_PACKS(k, K)
    {
        float x[WIDTH];
        float b[WIDTH];

        pack_read(x, inout + row * K + k);
        pack_read(b, bias + k);
        UNROLL
        for (int i = 0; i < WIDTH; i++) {
            x[i] += b[i];
        }
        pack_write(inout + row * K + k, x);
    }
}

template <typename NUMBER, bool WHOLE>
__global__ void __launch_bounds__(COLUMN_THREADS, COLUMN_RESIDENT)
    sum_columns(float *dbias, float *partials, const NUMBER *dout, size_t rows, size_t K,
                size_t block_rows)
{
    size_t k = column_here();
    float sum[PACK] = {0.0F};
    float x[TOGETHER][PACK];

    if (k < K) {
        column_rows<TOGETHER>(
            rows, block_rows,
            [&](int n, size_t row) { pack_take<WHOLE>(x[n], dout + row * K + k, K - k); },
            [&](int n, size_t) {
                UNROLL
                for (int i = 0; i < PACK; i++) {
                    sum[i] += x[n][i];
                }
            });
    }
    column_leave(dbias, partials, sum, K);
}

template <typename NUMBER>
static enum status launch_forward(NUMBER *inout, const NUMBER *bias, size_t rows, size_t K,
                                  struct stream *stream)
{
    BY_WIDTH(in_packs(K, inout, bias), LAUNCH((add_bias<NUMBER, WIDTH>), PACK_GRID(rows),
                                              PACK_BLOCK, stream, inout, bias, rows, K));
}

template <typename NUMBER>
static enum status launch_sums(float *dbias, float *partials, const NUMBER *dout, size_t rows,
                               size_t K, const struct column_blocks &blocks, struct stream *stream)
{
    BY_WHOLE(in_packs(K, dout),
             LAUNCH((sum_columns<NUMBER, WHOLE>), COLUMN_GRID(K, blocks), COLUMN_BLOCK, stream,
                    dbias, partials, dout, rows, K, blocks.rows));
}

template <typename NUMBER>
static enum status launch_backward(float *dbias, const NUMBER *dout, size_t rows, size_t K,
                                   struct stream *stream)
{
    float *partials = (float *)stream_partials(stream);
    struct column_blocks blocks = column_blocks_of(rows, K);

    TRY(launch_sums(dbias, partials, dout, rows, K, blocks, stream));
    return blocks.count == 1 ? STATUS_OK
                             : columns_add_cuda(dbias, NULL, partials, blocks.count, K, stream);
}

enum status KERNEL(bias_forward)(void *inout, const void *bias, size_t rows, size_t K,
                                 enum dtype type, struct stream *stream)
{
    if (rows == 0 || K == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_forward((NUMBER *)inout, (const NUMBER *)bias, rows, K, stream));
}

enum status KERNEL(bias_backward)(float *dbias, const void *dout, size_t rows, size_t K,
                                  enum dtype type, struct stream *stream)
{
    if (rows == 0 || K == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_backward(dbias, (const NUMBER *)dout, rows, K, stream));
}
