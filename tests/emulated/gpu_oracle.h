/*
 * gpu_oracle -- trainings on GPUs beside independent trajectories (tests/stages/oracle.h).
 */
#ifndef TESTS_EMULATED_GPU_ORACLE_H
#define TESTS_EMULATED_GPU_ORACLE_H

#include <stdint.h>

#include "tensor/dtype.h"
#include "tests/stages/oracle.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_layout {
    int pp;
    int tp;
    int dp;
    int micro_batch;
    int steps; /* 0: all of the oracle's */
};

/* Fails the test unless the training in this layout follows the oracle: in fp32 in all that it says, in 16 bits in its losses.
 * Streams and kernels have the order of `seed`. */
void gpu_oracle_follow(const struct oracle *oracle, enum dtype type,
                       const struct gpu_layout *layout, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_GPU_ORACLE_H */
