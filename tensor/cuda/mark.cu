#include "tensor/cuda/mark.h"

#include "tensor/cuda/kernel.cuh"

__global__ void write_begin(volatile int32_t *mark)
{
    mark[MARK_INSIDE] = 1;
}

__global__ void write_end(volatile int32_t *mark, int32_t index)
{
    mark[MARK_ENDED] = index;
    mark[MARK_INSIDE] = 0;
}

enum status mark_cuda_begin(int32_t *mark, struct stream *stream)
{
    LAUNCH(write_begin, 1, 1, stream, mark);
}

enum status mark_cuda_end(int32_t *mark, int32_t index, struct stream *stream)
{
    LAUNCH(write_end, 1, 1, stream, mark, index);
}
