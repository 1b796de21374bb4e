/*
 * cuda_on_host_seed -- what C asks of cuda_on_host.hpp.
 */
#ifndef TESTS_EMULATED_CUDA_ON_HOST_SEED_H
#define TESTS_EMULATED_CUDA_ON_HOST_SEED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order of blocks and threads in the launches of this host thread; 0 is ascending. */
void cuda_on_host_seed(uint64_t seed);

/* How often this host thread has gone from one fiber to another. */
uint64_t cuda_on_host_switches(void);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_CUDA_ON_HOST_SEED_H */
