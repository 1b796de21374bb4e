/* tests/tensor/philox_loops.h over tensor/cuda/philox.cuh: a thread a counter. */
#include "tests/tensor/philox_loops.h"

#include "tensor/cuda/philox.cuh"

#define THREADS 64

__global__ void number_elements(uint16_t *numbers, uint64_t key, uint64_t first, size_t count)
{
    uint64_t counter = first / MASK_NUMBERS + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    mask_numbers made(key, counter);

    for (unsigned i = 0; i < MASK_NUMBERS; i++) {
        uint64_t at = counter * MASK_NUMBERS + i - first; /* huge before `first` */

        if (at < count) {
            numbers[at] = (uint16_t)made.at(i);
        }
    }
}

void philox_loop_base(uint16_t *numbers, struct rng_mask mask, uint64_t first, size_t count)
{
    on_host::launch((unsigned)(count / MASK_NUMBERS + 2 + THREADS - 1) / THREADS, THREADS, 0,
                    [=] { number_elements(numbers, mask.key, first, count); });
}
