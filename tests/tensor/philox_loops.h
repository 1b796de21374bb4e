/*
 * philox_loops -- philox_cpu.h, compiled as the kernels are, once for each variant.
 */
#ifndef TESTS_TENSOR_PHILOX_LOOPS_H
#define TESTS_TENSOR_PHILOX_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* numbers (count) of the mask, from element `first`. */
void philox_loop_base(uint16_t *numbers, struct rng_mask mask, uint64_t first, size_t count);
/* In builds that have the variant only. */
void philox_loop_v3(uint16_t *numbers, struct rng_mask mask, uint64_t first, size_t count);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_PHILOX_LOOPS_H */
