/*
 * total -- one number of all elements of a tensor, in two launches.
 *
 * At most TOTAL_BLOCKS blocks add what lies between edges that the number of elements alone decides, and
 * leave their sums in the stream's partials; one block adds those, in a fixed order. What is added is a
 * TERM: its type `sum`, and of(element). Where the tensor begins on 16 bytes, elements are read four at
 * once; they are added in the same order everywhere.
 */
#ifndef TENSOR_CUDA_TOTAL_CUH
#define TENSOR_CUDA_TOTAL_CUH

#include "tensor/cuda/kernel.cuh"
#include "tensor/stream.h"

#define TOTAL_THREADS  512
#define TOTAL_BLOCKS   256
#define TOTAL_TOGETHER 4

/* Blocks begin on multiples of this many elements. */
#define TOTAL_GRAIN ((size_t)TOTAL_THREADS * TOTAL_TOGETHER)

/* The sum over a block, for its first thread. */
template <typename SUM> static __device__ __forceinline__ SUM total_of_block(SUM sum)
{
    __shared__ SUM sums[TOTAL_THREADS];

    sums[threadIdx.x] = sum;
    for (unsigned half = TOTAL_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
    }
    return sums[0];
}

template <typename TERM>
__global__ void __launch_bounds__(TOTAL_THREADS)
    total_blocks(typename TERM::sum *partials, const float *in, size_t elems, size_t block_elems,
                 bool aligned)
{
    size_t begin = blockIdx.x * block_elems;
    size_t end = begin + block_elems < elems ? begin + block_elems : elems;
    typename TERM::sum sum = 0;

    UNROLL_BY(4)
    for (size_t i = begin + (size_t)threadIdx.x * TOTAL_TOGETHER; i < end; i += TOTAL_GRAIN) {
        if (aligned && i + TOTAL_TOGETHER <= end) {
            float4 x = *(const float4 *)(in + i);

            sum += TERM::of(x.x);
            sum += TERM::of(x.y);
            sum += TERM::of(x.z);
            sum += TERM::of(x.w);
        } else {
            for (size_t k = i; k < i + TOTAL_TOGETHER && k < end; k++) {
                sum += TERM::of(in[k]);
            }
        }
    }
    sum = total_of_block(sum);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
    }
}

template <typename SUM>
__global__ void __launch_bounds__(TOTAL_THREADS)
    total_partials(SUM *total, const SUM *partials, unsigned blocks)
{
    SUM sum = total_of_block(threadIdx.x < blocks ? partials[threadIdx.x] : (SUM)0);

    if (threadIdx.x == 0) {
        *total = sum;
    }
}

template <typename TERM>
static enum status launch_total_blocks(typename TERM::sum *partials, const float *in, size_t elems,
                                       size_t block_elems, unsigned blocks, struct stream *stream)
{
    LAUNCH(total_blocks<TERM>, blocks, TOTAL_THREADS, stream, partials, in, elems, block_elems,
           (uintptr_t)in % sizeof(float4) == 0);
}

template <typename SUM>
static enum status launch_total_partials(SUM *total, const SUM *partials, unsigned blocks,
                                         struct stream *stream)
{
    LAUNCH(total_partials<SUM>, 1, TOTAL_THREADS, stream, total, partials, blocks);
}

/* *total = the sum of TERM::of(element) over in (elems), when the stream has come to it. */
template <typename TERM>
static enum status total_of(typename TERM::sum *total, const float *in, size_t elems,
                            struct stream *stream)
{
    typename TERM::sum *partials = (typename TERM::sum *)stream_partials(stream);
    size_t block_elems = (elems / TOTAL_BLOCKS / TOTAL_GRAIN + 1) * TOTAL_GRAIN;
    unsigned blocks = (unsigned)((elems + block_elems - 1) / block_elems);

    static_assert(TOTAL_BLOCKS * sizeof(*partials) <= STREAM_PARTIALS_BYTES, "a partial a block");
    static_assert(TOTAL_BLOCKS <= TOTAL_THREADS, "a thread a partial");
    if (blocks > 0) {
        TRY(launch_total_blocks<TERM>(partials, in, elems, block_elems, blocks, stream));
    }
    return launch_total_partials(total, partials, blocks, stream);
}

#endif /* TENSOR_CUDA_TOTAL_CUH */
