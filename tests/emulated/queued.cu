#include "tests/emulated/queued.h"

#include "tensor/cuda/kernel.cuh"
#include "tests/emulated/fake_cuda.hpp"

__global__ void scale_kernel(float *inout, float factor, float term)
{
    inout[0] = factor * inout[0] + term;
}

enum status queued_scale(float *inout, float factor, float term, struct stream *stream)
{
    LAUNCH(scale_kernel, 1, 1, stream, inout, factor, term);
}

int queued_until(void *queue, const int *flag)
{
    return fake_cuda::enqueue((cudaStream_t)queue, "flag",
                              [flag] { return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0; });
}
