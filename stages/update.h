/*
 * update -- what STEP does: flags, norm, one round trip, then skip or update.
 *
 * The owner of the tied embedding adds the head's gradient to its own; every rank takes the sums
 * of squares of what it answers for (mixedprec/grad_norm.h); one control round gives every rank the
 * same answer: found_inf with its cause, the norm, the loss, the next step's number of targets, and
 * the figures of the step line. Gradients are those of the scaled loss: the norm is divided by the
 * scale, and the update too, together with the clip coefficient. A step whose gradients are not all
 * finite is skipped on all ranks alike, and all scale the next loss alike. Else gradients are clipped, the optimizer runs, and the owner sends the embedding back to
 * the head.
 *
 * Of a value that several ranks have, one gives it: shard 0 the loss and the targets of its
 * replica, and of a parameter's sum of squares whoever answers for it. So nothing counts twice.
 */
#ifndef STAGES_UPDATE_H
#define STAGES_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/control.h"
#include "collectives/embedding_sync.h"
#include "mixedprec/grad_norm.h"
#include "mixedprec/grad_scaler.h"
#include "mixedprec/lr_schedule.h"
#include "mixedprec/optimizer.h"
#include "mixedprec/params.h"
#include "stages/data/loader.h"
#include "stages/model/parameters.h"
#include "stages/replicas.h"
#include "stages/tied_lanes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stage_worker;

/* Meaning of control_progress.phase. */
enum update_phase {
    UPDATE_PHASE_START,
    UPDATE_PHASE_STEP,
    UPDATE_PHASE_EVALUATION,
    UPDATE_PHASE_SAVE,
    UPDATE_PHASE_END
};

struct update_config {
    struct lr_schedule lr;
    struct optimizer_config optimizer;
    struct grad_scaler_config scaler;
    double grad_clip;
    bool log_num_zeros;
    bool log_params_norm;
    int32_t norm_keys; /* norm_key_count() */
    int32_t stages;    /* virtual stages of the pipeline */
    int32_t ranks;     /* of the job */
    struct grad_norm_copy copy;
};

/* What one STEP came to; the same on every rank. */
struct update_outcome {
    bool skipped;
    bool empty;              /* no target in the whole batch: nothing was run */
    double loss;             /* mean over unmasked targets; 0 where empty */
    double grad_norm;        /* of the unscaled loss, before clipping */
    double lr;               /* of this update; of the next one where skipped */
    double loss_scale;       /* of this step */
    int32_t hysteresis_left; /* dynamic scale: bad steps until it shrinks; else 0 */
    bool has_num_zeros;      /* asked for: elements of the gradient that are zero */
    double num_zeros;
    bool has_params_norm; /* asked for: the norm of all parameters before this update */
    double params_norm;
    int64_t next_targets;           /* unmasked targets of the next step's global batch */
    int32_t stop_signal;            /* 0, or all ranks end after this step */
    char cause[CONTROL_TEXT_BYTES]; /* why it was skipped: tensor and rank */
    double bubble;                  /* 1 - busy / (ranks · span) */
    const double *F; /* lends until the next STEP: mean cost by virtual stage, seconds; of the
                        slowest shard and replica */
    const double *I;
    const double *W;
    int64_t mem_bytes; /* the largest of any rank */
    /* Embedding group: the gradient to the owner and the weights to the head, in seconds, and what
     * the slowest pair stood still for. */
    double sync_transfer_s;
    double sync_exposed_s;
};

/* When the parts of STEP began and ended, for the trace. */
struct update_times {
    int64_t norm_begin_ns;
    int64_t round_begin_ns;
    int64_t round_end_ns;
};

/* Called on gradients that are complete, before clipping and the update; for tests. */
typedef void (*update_inspect_fn)(void *context, const struct params *params);

struct update {
    struct update_config config;
    struct params *params;           /* borrows */
    struct device *device;           /* borrows */
    void *norm_results;              /* borrows: grad_norm_result_bytes() of DEVICE_HOST */
    struct control *control;         /* borrows */
    struct embedding_sync *sync;     /* borrows; NULL where none carries the embedding */
    struct tied_lanes *tied;         /* borrows; which may do so */
    struct head_memory *head;        /* borrows */
    const struct replicas *replicas; /* borrows */
    float *head_gradient;            /* owner: what is added to its own slice; NULL elsewhere */
    struct loader *loader;           /* borrows; last virtual stage only */
    struct control_key *keys;        /* owns */
    char (*names)[32];               /* owns; of the keys */
    struct control_value *values;    /* owns */
    double *numbers;                 /* owns */
    int32_t key_count;
    update_inspect_fn inspect; /* may be NULL */
    void *inspect_context;
    struct grad_scaler scaler; /* of the next step's loss; the same on every rank */
    int64_t updates;           /* done so far: Adam's t is the next one */
    int64_t mem_bytes;         /* of this rank, planned */
    int64_t targets;           /* unmasked targets of this step's global batch */
    bool empty;                /* set by the engine: this step has no target */
    struct update_outcome outcome;
};

/* Makes the table of keys; the borrowed fields are the caller's to set. */
enum status update_init(struct update *update, const struct update_config *config);

/* One STEP. A failure before the answer leaves the parameters as they were. */
enum status update_run(struct update *update, struct stage_worker *worker,
                       struct update_times *times_out);

/* Safe on a zeroed update, and twice. */
void update_release(struct update *update);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_UPDATE_H */
