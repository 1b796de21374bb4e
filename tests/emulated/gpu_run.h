/*
 * gpu_run -- whole trainings on the GPU as a device, for tests: each rank is a thread with a GPU of its own, whose memory the
 * host cannot touch, and whose streams run as late as they may, in an order drawn from a seed. Ranks reach each other through
 * the host (collectives/comm_staged.h). Over the real runtime (tests/on_gpu) they share a GPU, and the order is its own.
 */
#ifndef TESTS_EMULATED_GPU_RUN_H
#define TESTS_EMULATED_GPU_RUN_H

#include <stdint.h>

#include "tests/stages/base_run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of ranks whose kernels and streams have the order of `seed`, which must live as long. */
struct rig_hooks gpu_run_hooks(uint64_t *seed);

/* As base_train(), in the order of `seed`. */
void gpu_run_train(const struct base_run *base, uint64_t seed, struct rig_result *run);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_GPU_RUN_H */
