/*
 * gpu_order -- in which order the GPU under test works: drawn from a seed where it is emulated, its own affair where it is
 * real (tests/on_gpu/real_gpu.c).
 */
#ifndef TESTS_EMULATED_GPU_ORDER_H
#define TESTS_EMULATED_GPU_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A GPU for the calling thread, before it opens a device: a new one, whose streams and kernels have the order of the
 * seed, or one of the host's. */
void gpu_begin(uint64_t seed);

/* The blocks and threads of the kernels that this thread launches from here on. */
void gpu_order_kernels(uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_GPU_ORDER_H */
