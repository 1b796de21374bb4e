#include "tensor/cuda/scale_rows.h"

#include "tensor/cuda/kernel.cuh"

#define THREADS 256
#define BLOCKS  4096

template <typename NUMBER>
__global__ void scale_elements(NUMBER *c, size_t rows, size_t columns, size_t distance, float beta)
{
    FOR_EACH(i, rows * columns)
    {
        NUMBER *at = &c[i / columns * distance + i % columns];

        narrow(at, beta == 0.0F ? 0.0F : beta * widen(*at));
    }
}

template <typename NUMBER>
static enum status launch_scale(NUMBER *c, size_t rows, size_t columns, size_t distance, float beta,
                                struct stream *stream)
{
    LAUNCH(scale_elements<NUMBER>, grid_of(rows * columns, THREADS, BLOCKS), THREADS, stream, c,
           rows, columns, distance, beta);
}

enum status scale_rows_cuda(void *c, enum dtype type, size_t rows, size_t columns, size_t distance,
                            float beta, struct stream *stream)
{
    BY_TYPE(type, return launch_scale((NUMBER *)c, rows, columns, distance, beta, stream));
}
