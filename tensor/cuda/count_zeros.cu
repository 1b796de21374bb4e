#include "tensor/kernels/count_zeros.h"

#include "tensor/cuda/total.cuh"

struct zeros {
    using sum = size_t;
    static __device__ __forceinline__ size_t of(float element)
    {
        return element == 0.0F ? 1 : 0;
    }
};

enum status KERNEL(count_zeros)(size_t *count_out, const float *in, size_t elems,
                                struct stream *stream)
{
    return total_of<zeros>(count_out, in, elems, stream);
}
