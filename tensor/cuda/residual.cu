#include "tensor/kernels/residual.h"

#include "tensor/cuda/pack.cuh"

template <typename NUMBER, int WIDTH>
__global__ void add_rows(NUMBER *out, const float *in, const NUMBER *bias, const NUMBER *residual,
                         size_t rows, size_t C)
{
    size_t row = pack_row();

    if (row >= rows) {
        return;
    }
    FOR_PACKS(c, C)
    {
        float x[WIDTH];
        float b[WIDTH];
        float before[WIDTH];

        pack_read(x, in + row * C + c);
        pack_read(b, bias + c);
        pack_read(before, residual + row * C + c);
        UNROLL
        for (int i = 0; i < WIDTH; i++) {
            x[i] = before[i] + (x[i] + b[i]);
        }
        pack_write(out + row * C + c, x);
    }
}

template <typename NUMBER>
static enum status launch_forward(NUMBER *out, const float *in, const NUMBER *bias,
                                  const NUMBER *residual, size_t rows, size_t C,
                                  struct stream *stream)
{
    BY_WIDTH(in_packs(C, out, in, bias, residual),
             LAUNCH((add_rows<NUMBER, WIDTH>), PACK_GRID(rows), PACK_BLOCK, stream, out, in, bias,
                    residual, rows, C));
}

enum status KERNEL(bias_residual_forward)(void *out, const float *in, const void *bias,
                                          const void *residual, size_t rows, size_t C,
                                          enum dtype type, struct stream *stream)
{
    if (rows == 0 || C == 0) {
        return STATUS_OK;
    }
    BY_TYPE(type, return launch_forward((NUMBER *)out, in, (const NUMBER *)bias,
                                        (const NUMBER *)residual, rows, C, stream));
}
