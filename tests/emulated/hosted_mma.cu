#include "tests/emulated/hosted_mma.h"

#include "tensor/cuda/mma.cuh"

template <typename NUMBER>
__global__ void multiply_add_kernel(float *c, const uint32_t *a, const uint32_t *b)
{
    float sums[4];

    memcpy(sums, c + threadIdx.x * 4, sizeof(sums));
    multiply_add(sums, a + threadIdx.x * 4, b[threadIdx.x * 2], b[threadIdx.x * 2 + 1], NUMBER());
    memcpy(c + threadIdx.x * 4, sums, sizeof(sums));
}

void hosted_multiply_add(float *c, const uint32_t *a, const uint32_t *b, enum dtype type)
{
    if (type == DTYPE_BF16) {
        on_host::launch(1, WARP_LANES, 0, [=] { multiply_add_kernel<bf16>(c, a, b); });
    } else {
        on_host::launch(1, WARP_LANES, 0, [=] { multiply_add_kernel<fp16>(c, a, b); });
    }
}

template <bool TRANSPOSED> __global__ void load_matrices_kernel(uint32_t *out, const uint16_t *in)
{
    SHARED_MEMORY(shared);
    uint16_t *all = (uint16_t *)shared;

    memcpy(all + threadIdx.x * 8, in + threadIdx.x * 8, 16);
    __syncwarp();
    load_matrices<TRANSPOSED>(out + threadIdx.x * 4, all + threadIdx.x * 8);
}

void hosted_load_matrices(uint32_t *out, const uint16_t *in, int transposed)
{
    if (transposed) {
        on_host::launch(1, WARP_LANES, 512, [=] { load_matrices_kernel<true>(out, in); });
    } else {
        on_host::launch(1, WARP_LANES, 512, [=] { load_matrices_kernel<false>(out, in); });
    }
}

__global__ void mixed_kernel()
{
    float sums[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    const uint32_t a[4] = {0, 0, 0, 0};

    if (threadIdx.x % 2 == 0) {
        multiply_add(sums, a, 0, 0, bf16());
    } else {
        multiply_add(sums, a, 0, 0, fp16());
    }
}

void hosted_mixed_instructions(unsigned threads)
{
    on_host::launch(1, threads, 0, [] { mixed_kernel(); });
}
