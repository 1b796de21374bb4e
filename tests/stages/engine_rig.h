/*
 * engine_rig -- a whole job inside one test: each rank is a thread with an engine of its own.
 *
 * The planes are the real ones (shared memory, ZeroMQ over ipc in a directory of the test's own).
 * What a run came to is collected by name, put together from the shards, so that layouts can be
 * compared; where several ranks have the same elements (replicas, and what shards have in common)
 * they must have the same bits.
 *
 * Where the configuration has checkpoint.every, checkpoints go to checkpoint.dir; with checkpoint.resume
 * must, the job goes on from the last one there.
 */
#ifndef TESTS_STAGES_ENGINE_RIG_H
#define TESTS_STAGES_ENGINE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define RIG_STEPS_MOST   64
#define RIG_TENSORS_MOST 512
#define RIG_RANKS_MOST   64

struct device_backend;
struct engine;
struct engine_options;

/* A look into a running job, from the thread of each rank, one rank at a time. Any may be
 * NULL. */
struct rig_hooks {
    void *context;
    const struct device_backend *backend; /* what the ranks compute on; NULL: the CPU */
    void (*on_begin)(void *context);      /* on each rank's thread, before anything else */
    void (*on_open)(void *context,
                    struct engine_options *options); /* may change how it is opened */
    /* The gradients of a step are complete, its update has not begun: may change them. */
    void (*on_gradients)(void *context, const struct engine *engine);
    /* After a step (and its evaluation), when the update has arrived everywhere. */
    void (*on_step)(void *context, const struct engine *engine);
};

/* A whole tensor. */
struct rig_tensor {
    char name[96];
    size_t elems;
    float *data;         /* owns */
    unsigned char *seen; /* owns; whether a rank has given the element */
};

struct rig_result {
    enum status status; /* of the first rank that failed by itself, or STATUS_OK */
    char message[1024]; /* why */
    int64_t first; /* steps before the checkpoint that it went on from; nothing is known of them */
    int64_t steps;
    double loss[RIG_STEPS_MOST]; /* as rank 0 saw it; every rank must have the same */
    double norm[RIG_STEPS_MOST];
    double lr[RIG_STEPS_MOST];
    int skipped[RIG_STEPS_MOST];
    int64_t skipped_in_a_row[RIG_STEPS_MOST]; /* after the step */
    double scale[RIG_STEPS_MOST];             /* the loss scale of the step */
    double valid_loss[RIG_STEPS_MOST];        /* where evaluated, else 0 */
    int32_t tensors;
    struct rig_tensor gradients[RIG_TENSORS_MOST]; /* of the first step, before clipping */
    struct rig_tensor weights[RIG_TENSORS_MOST];   /* main params at the end */
    struct rig_tensor models[RIG_TENSORS_MOST];    /* the model's copies of them, widened */
    int32_t gradient_count;
    int32_t model_count;
    struct rig_tensor
        copies[1]; /* the head's copy of wte at the end, widened; elems 0 where there is none */
    int32_t copy_count;
    int ranks_disagree; /* a rank had another loss, norm, lr, skip or held-out loss than rank 0 */
    /* Elements that two ranks have with other bits, or that are not the rounded main param. */
    int copies_disagree;
    int holes; /* elements that no rank has given */
};

/* Runs the configuration `yaml` (text) with "section.key=value" overrides; evaluates after every
 * `eval_every` steps where > 0. The caller releases *result, whatever came of it. */
void rig_run(const char *yaml, const char *const *overrides, int override_count,
             struct rig_result *result);

/* The same, watched; hooks may be NULL. */
void rig_run_watched(const char *yaml, const char *const *overrides, int override_count,
                     const struct rig_hooks *hooks, struct rig_result *result);

const struct rig_tensor *rig_find(const struct rig_tensor *tensors, int32_t count,
                                  const char *name);

/* Whether two runs are the same to the last bit: losses, norms, first gradients, weights. Writes what
 * differs first, and returns false, where they are not. */
bool rig_same(const struct rig_result *a, const struct rig_result *b, char *text,
              size_t text_bytes);

/* The same of two runs of which one, or both, went on from a checkpoint: losses, norms and learning rates of
 * the steps that both have run, and the weights at the end. */
bool rig_same_end(const struct rig_result *a, const struct rig_result *b, char *text,
                  size_t text_bytes);

/* The bits of a number, so that equal means equal, NaN and signed zeros included. */
uint64_t rig_bits(double value);

void rig_release(struct rig_result *result);

#endif /* TESTS_STAGES_ENGINE_RIG_H */
