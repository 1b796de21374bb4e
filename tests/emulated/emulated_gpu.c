#include "tests/emulated/cuda_on_host_seed.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/gpu_order.h"

void gpu_begin(uint64_t seed)
{
    fake_cuda_reset(seed);
    cuda_on_host_seed(seed);
}

void gpu_order_kernels(uint64_t seed)
{
    cuda_on_host_seed(seed);
}
