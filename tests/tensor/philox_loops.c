#include "philox_loops.h"

#include "tensor/kernels/philox_cpu.h"
#include "tensor/kernels/variant.h"

void KERNEL(philox_loop)(uint16_t *numbers, struct rng_mask mask, uint64_t first, size_t count)
{
    struct philox_keys keys;

    philox_keys_init(&keys, mask);
    philox_numbers(numbers, &keys, first, count);
}
