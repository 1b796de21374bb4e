#include "tensor/kernels/gelu.h"

#include "tensor/cuda/columns.cuh"
#include "tensor/cuda/pack.cuh"

#define THREADS 256
#define BLOCKS  4096

/* Rows that a thread of the backward reads at once. */
#define TOGETHER 2

/* exp(-2u): sigmoid(2u) = 1 / (1 + exp(-2u)). What could be fused is said, here and below, so that every
 * kernel gives an element the same bits. */
static __device__ __forceinline__ float sigmoid_exponential(float x)
{
    const float twice_root = -2.0F * 0.79788456F;

    return expf(rounded_product(twice_root, fmaf(0.044715F, x * x * x, x)));
}

static __device__ __forceinline__ float gelu(float x)
{
    return x / rounded_sum(1.0F, sigmoid_exponential(x));
}

/* As the CPU's: s + x · 2u' · s (1 - s), with 1 - s = s · exp(-2u), which is 1 where the exponential is
 * large. The small factors come first, so that the slope of a far argument does not overflow. */
static __device__ __forceinline__ float gelu_gradient(float x)
{
    float e = sigmoid_exponential(x);
    float s = 1.0F / rounded_sum(1.0F, e);
    float rest = e > 1e30F ? 1.0F : s * e;
    float slope = (2.0F * 0.79788456F) * fmaf(3.0F * 0.044715F, x * x, 1.0F);

    return fmaf(x, slope * (s * rest), s);
}

template <typename NUMBER, int WIDTH>
__global__ void bias_gelu_rows(NUMBER *out, NUMBER *pre, const NUMBER *bias, size_t rows, size_t F)
{
    size_t row = pack_row();

    if (row >= rows) {
        return;
    }
    FOR_PACKS(f, F)
    {
        float x[WIDTH];
        float b[WIDTH];

        pack_read(x, pre + row * F + f);
        pack_read(b, bias + f);
        UNROLL
        for (int i = 0; i < WIDTH; i++) {
            NUMBER kept;

            narrow(&kept, rounded_sum(x[i], b[i]));
            x[i] = widen(kept);
            b[i] = gelu(x[i]);
        }
        pack_write(pre + row * F + f, x);
        pack_write(out + row * F + f, b);
    }
}

template <typename NUMBER, int WIDTH>
__global__ void gelu_elements(NUMBER *out, const NUMBER *pre, size_t elems)
{
    FOR_EACH(i, elems / WIDTH)
    {
        float x[WIDTH];

        pack_read(x, pre + i * WIDTH);
        UNROLL
        for (int k = 0; k < WIDTH; k++) {
            x[k] = gelu(x[k]);
        }
        pack_write(out + i * WIDTH, x);
    }
}

/* din and the sums of its columns as one, so that din is not read again. */
template <typename NUMBER, bool WHOLE>
__global__ void __launch_bounds__(COLUMN_THREADS, COLUMN_RESIDENT - 1)
    input_gradients(NUMBER *din, float *dbias, float *partials, const NUMBER *dout,
                    const NUMBER *pre, size_t rows, size_t F, size_t block_rows)
{
    size_t f = column_here();
    float sum[PACK] = {0.0F};
    float d[TOGETHER][PACK];
    float x[TOGETHER][PACK];
    auto take = [&](int k, size_t row) {
        pack_take<WHOLE>(d[k], dout + row * F + f, F - f);
        pack_take<WHOLE>(x[k], pre + row * F + f, F - f);
    };
    auto add = [&](int k, size_t row) {
        UNROLL
        for (int i = 0; i < PACK; i++) {
            NUMBER kept;

            narrow(&kept, rounded_product(d[k][i], gelu_gradient(x[k][i])));
            d[k][i] = widen(kept);
            sum[i] = rounded_sum(sum[i], d[k][i]);
        }
        pack_put<WHOLE>(din + row * F + f, d[k], F - f);
    };

    if (f < F) {
        column_rows<TOGETHER>(rows, block_rows, take, add);
    }
    column_leave(dbias, partials, sum, F);
}

template <typename NUMBER>
static enum status launch_forward(NUMBER *out, NUMBER *pre, const NUMBER *bias, size_t rows,
                                  size_t F, struct stream *stream)
{
    BY_WIDTH(in_packs(F, out, pre, bias), LAUNCH((bias_gelu_rows<NUMBER, WIDTH>), PACK_GRID(rows),
                                                 PACK_BLOCK, stream, out, pre, bias, rows, F));
}

template <typename NUMBER>
static enum status launch_elements(NUMBER *out, const NUMBER *pre, size_t elems,
                                   struct stream *stream)
{
    BY_WIDTH(in_packs(elems, out, pre),
             LAUNCH((gelu_elements<NUMBER, WIDTH>), grid_of(elems / WIDTH, THREADS, BLOCKS),
                    THREADS, stream, out, pre, elems));
}

template <typename NUMBER>
static enum status launch_gradients(NUMBER *din, float *dbias, float *partials, const NUMBER *dout,
                                    const NUMBER *pre, size_t rows, size_t F,
                                    const struct column_blocks &blocks, struct stream *stream)
{
    BY_WHOLE(in_packs(F, din, dout, pre),
             LAUNCH((input_gradients<NUMBER, WHOLE>), COLUMN_GRID(F, blocks), COLUMN_BLOCK, stream,
                    din, dbias, partials, dout, pre, rows, F, blocks.rows));
}

template <typename NUMBER>
static enum status launch_backward(NUMBER *din, float *dbias, const NUMBER *dout, const NUMBER *pre,
                                   size_t rows, size_t F, struct stream *stream)
{
    float *partials = (float *)stream_partials(stream);
    struct column_blocks blocks = column_blocks_of(rows, F);

    TRY(launch_gradients(din, dbias, partials, dout, pre, rows, F, blocks, stream));
    return blocks.count == 1 ? STATUS_OK
                             : columns_add_cuda(dbias, NULL, partials, blocks.count, F, stream);
}

enum status KERNEL(bias_gelu_forward)(void *out, void *pre, const void *bias, size_t rows, size_t F,
                                      enum dtype type, struct stream *stream)
{
    if (rows == 0 || F == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_forward((NUMBER *)out, (NUMBER *)pre, (const NUMBER *)bias, rows, F,
                                        stream));
}

enum status KERNEL(gelu_forward)(void *out, const void *pre, size_t elems, enum dtype type,
                                 struct stream *stream)
{
    if (elems == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_elements((NUMBER *)out, (const NUMBER *)pre, elems, stream));
}

enum status KERNEL(bias_gelu_backward)(void *din, float *dbias, const void *dout, const void *pre,
                                       size_t rows, size_t F, enum dtype type,
                                       struct stream *stream)
{
    if (rows == 0 || F == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_backward((NUMBER *)din, dbias, (const NUMBER *)dout,
                                         (const NUMBER *)pre, rows, F, stream));
}
