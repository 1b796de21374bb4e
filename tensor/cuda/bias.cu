#include "tensor/kernels/bias.h"

#include "tensor/cuda/columns.cuh"
#include "tensor/cuda/pack.cuh"

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

template <typename NUMBER>
__global__ void __launch_bounds__(COLUMN_THREADS)
    sum_columns(float *dbias, const NUMBER *dout, size_t rows, size_t K)
{
    size_t k = column_here();
    float sum = 0.0F;

    if (k < K) {
        FOR_COLUMN_ROWS(row, rows)
        {
            sum += widen(dout[row * K + k]);
        }
    }
    column_add(dbias, sum, k, K);
}

template <typename NUMBER>
static enum status launch_forward(NUMBER *inout, const NUMBER *bias, size_t rows, size_t K,
                                  struct stream *stream)
{
    BY_WIDTH(in_packs(K, inout, bias), LAUNCH((add_bias<NUMBER, WIDTH>), PACK_GRID(rows),
                                              PACK_BLOCK, stream, inout, bias, rows, K));
}

template <typename NUMBER>
static enum status launch_backward(float *dbias, const NUMBER *dout, size_t rows, size_t K,
                                   struct stream *stream)
{
    LAUNCH(sum_columns<NUMBER>, COLUMN_GRID(K), COLUMN_BLOCK, stream, dbias, dout, rows, K);
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
