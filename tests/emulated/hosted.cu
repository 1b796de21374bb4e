#include "tests/emulated/hosted.h"

#include "tensor/cuda/mma.cuh"

#define MOST 1024

__global__ void number_kernel(int32_t *out)
{
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;

    out[at] += (int32_t)at;
}

void hosted_number(int32_t *out, unsigned blocks, unsigned threads)
{
    on_host::launch(blocks, threads, 0, [=] { number_kernel(out); });
}

__global__ void reverse_kernel(float *out, const float *in, bool barrier)
{
    __shared__ float all[MOST];

    all[threadIdx.x] = in[threadIdx.x];
    if (barrier) {
        __syncthreads();
    }
    out[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}

void hosted_reverse(float *out, const float *in, unsigned threads, int barrier)
{
    on_host::launch(1, threads, 0, [=] { reverse_kernel(out, in, barrier != 0); });
}

__global__ void warp_sums_kernel(float *out, const float *in)
{
    unsigned warp = threadIdx.x / 32;
    float sum = in[threadIdx.x];

    if (warp % 2 == 0) {
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFFU, sum, lanes);
        }
    } else {
        for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
            sum += __shfl_down_sync(0xFFFFFFFFU, sum, lanes);
        }
        sum = __shfl_sync(0xFFFFFFFFU, sum, 0);
    }
    for (unsigned round = 0; round < warp; round++) {
        __syncwarp();
    }
    __syncthreads();
    out[threadIdx.x] = sum;
}

void hosted_warp_sums(float *out, const float *in, unsigned threads)
{
    on_host::launch(1, threads, 0, [=] { warp_sums_kernel(out, in); });
}

__global__ void votes_kernel(uint32_t *out, const float *in, unsigned leavers)
{
    if (threadIdx.x >= leavers) {
        return;
    }
    out[threadIdx.x] = __ballot_sync(0xFFFFFFFFU, in[threadIdx.x] > 0.0F);
    __syncthreads();
}

void hosted_votes(uint32_t *out, const float *in, unsigned threads, unsigned leavers)
{
    on_host::launch(1, threads, 0, [=] { votes_kernel(out, in, leavers); });
}

/* Two groups: each thread's own 16 bytes, twice; the second is what `out` is read from. */
__global__ void copies_kernel(float *out, const float *in, bool waits_for_all)
{
    SHARED_MEMORY(shared);
    float *all = (float *)shared;

    for (unsigned group = 0; group < 2; group++) {
        copy_16_bytes(all + (group * blockDim.x + threadIdx.x) * 4, in + threadIdx.x % 16 * 4,
                      threadIdx.x < 16);
        commit_copies();
    }
    if (waits_for_all) {
        wait_for_copies<0>();
    } else {
        wait_for_copies<1>();
    }
    __syncthreads();
    out[threadIdx.x] = all[(blockDim.x * 2 - 1 - threadIdx.x) * 4 + 3];
}

void hosted_copies(float *out, const float *in, unsigned threads, int waits_for_all)
{
    on_host::launch(1, threads, (size_t)threads * 32,
                    [=] { copies_kernel(out, in, waits_for_all != 0); });
}

__global__ void wait_kernel()
{
    if (threadIdx.x % 2 == 0) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

void hosted_wait_for_ever(unsigned threads)
{
    on_host::launch(1, threads, 0, [] { wait_kernel(); });
}

__global__ void ask_kernel()
{
    if (threadIdx.x < 16) {
        (void)__shfl_sync(0x0000FFFFU, 1.0F, 20);
    }
}

void hosted_ask_outside(unsigned threads)
{
    on_host::launch(1, threads, 0, [] { ask_kernel(); });
}
