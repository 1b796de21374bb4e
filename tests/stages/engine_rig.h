/*
 * engine_rig -- a whole pipeline inside one test: each rank is a thread with an engine of its own.
 *
 * The planes are the real ones (shared memory, ZeroMQ over ipc in a directory of the test's own).
 * What a run came to is collected by name, so that layouts can be compared.
 */
#ifndef TESTS_STAGES_ENGINE_RIG_H
#define TESTS_STAGES_ENGINE_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define RIG_STEPS_MOST   64
#define RIG_TENSORS_MOST 256
#define RIG_RANKS_MOST   8

struct rig_tensor {
    char name[96];
    size_t elems;
    float *data; /* owns */
};

struct rig_result {
    enum status status; /* of the rank that failed first, or STATUS_OK */
    char message[1024]; /* why */
    int64_t steps;
    double loss[RIG_STEPS_MOST]; /* as rank 0 saw it; every rank must have the same */
    double norm[RIG_STEPS_MOST];
    double lr[RIG_STEPS_MOST];
    int skipped[RIG_STEPS_MOST];
    double valid_loss[RIG_STEPS_MOST]; /* where evaluated, else 0 */
    int32_t tensors;
    struct rig_tensor gradients[RIG_TENSORS_MOST]; /* of the first step, before clipping */
    struct rig_tensor weights[RIG_TENSORS_MOST];   /* at the end */
    struct rig_tensor
        copies[1];      /* the head's copy of wte at the end; elems 0 where there is none */
    int ranks_disagree; /* a rank had another loss or norm than rank 0 */
};

/* Runs the configuration `yaml` (text) with "section.key=value" overrides; evaluates after every
 * `eval_every` steps where > 0. The caller releases *result, whatever came of it. */
void rig_run(const char *yaml, const char *const *overrides, int override_count,
             struct rig_result *result);

const struct rig_tensor *rig_find(const struct rig_tensor *tensors, int32_t count,
                                  const char *name);

/* The bits of a number, so that equal means equal, NaN and signed zeros included. */
uint64_t rig_bits(double value);

void rig_release(struct rig_result *result);

#endif /* TESTS_STAGES_ENGINE_RIG_H */
