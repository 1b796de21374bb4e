/*
 * nccl_job -- whole trainings over NCCL, for tests: ranks are threads with a GPU each, over the fakes of both.
 */
#ifndef TESTS_EMULATED_NCCL_JOB_H
#define TESTS_EMULATED_NCCL_JOB_H

#include <stdint.h>

#include "tests/stages/base_run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The order of streams and kernels of the jobs from here on. */
void nccl_job_order(uint64_t seed);

/* Ranks that reach each other by NCCL; and, for comparison, through the host. */
struct rig_hooks nccl_job_hooks(void);
struct rig_hooks nccl_job_staged_hooks(void);

/* As base_train(), in an order of `seed`; nothing of NCCL is left. */
void nccl_job_train(const struct base_run *base, struct rig_hooks hooks, uint64_t seed,
                    struct rig_result *run);

/* Fails the test unless, where no stream waits for another, the job goes wrong under some order. */
void nccl_job_catch_forgotten_waits(const struct base_run *base, struct rig_hooks hooks);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_NCCL_JOB_H */
