#include "tensor/cuda/kernel.cuh"

#include "tensor/kernels/add.h"

#define THREADS 256
#define BLOCKS  4096

__global__ void add_elements(float *out, const float *a, const float *b, size_t elems)
{
    FOR_EACH(i, elems)
    {
        out[i] = a[i] + b[i];
    }
}

enum status KERNEL(add)(float *out, const float *a, const float *b, size_t elems,
                        struct stream *stream)
{
    if (elems == 0) {
        return STATUS_OK;
    }
    LAUNCH(add_elements, grid_of(elems, THREADS, BLOCKS), THREADS, stream, out, a, b, elems);
}
