/*
 * worker -- the door where an action becomes work on a slot of this rank, on the CPU.
 *
 * Fills scheduler/worker.h's table. Compute runs inside issue(); before it, issue() waits for
 * what the action depends on: its message, and the out buffer that an earlier SEND may still
 * hold. A SEND is posted and may stay pending; every later wait retries it. A RECV is no work:
 * the message arrives by itself, and is waited for by the action that reads it. After the last
 * reader of a message the credit goes back.
 *
 * Everything leaves a span (meaning in scheduler/trace.h), and the compute times of the step are
 * added up for the bubble of the step line.
 */
#ifndef STAGES_WORKER_H
#define STAGES_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/span.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/control.h"
#include "collectives/embedding_sync.h"
#include "mixedprec/params.h"
#include "scheduler/plan.h"
#include "scheduler/worker.h"
#include "stages/data/loader.h"
#include "stages/fault.h"
#include "stages/model/chunk.h"

#ifdef __cplusplus
extern "C" {
#endif

struct update;

/* Both ends of a lane direction at this rank; NULL where there is no such neighbour. */
struct worker_lane {
    struct lane *in;  /* messages to this rank */
    struct lane *out; /* messages from it */
    float *buffer;    /* the out buffer, (N,C) */
    /* The SEND that may be pending, for its span. */
    const struct action *sending; /* NULL where none is */
    int32_t sending_index;
};

/* Compute of one step on this rank, for the step line and the simulation beside it. */
struct worker_times {
    int64_t busy_ns[3]; /* F, I, W */
    int32_t count[3];
    int64_t first_begin_ns; /* of a compute action; 0 where there was none */
    int64_t last_end_ns;
};

/* What a run of a line works on; set before executor_run(). */
struct worker_run {
    const struct plan_line *line;
    struct loader_batch batch;
    int64_t step;    /* attempt */
    uint64_t number; /* of runs of this job, evaluations included; part of every tag */
    bool evaluation; /* a forward-only plan */
    float loss_seed; /* 1 / targets of the global batch */
    int64_t version; /* update count that the head's copy must have */
    int64_t deadline_ns;
};

struct stage_worker {
    struct worker base;
    int32_t rank;
    int32_t stage; /* pipeline rank */
    struct chunk *chunk;
    struct params *params;
    struct comm *comm; /* NULL where pp is 1 */
    struct worker_lane lanes[LANE_DIRECTIONS];
    struct control *control;
    struct embedding_sync *sync; /* NULL where the embedding is not shared */
    struct update *update;
    struct span_ring *spans;
    const struct cancel *cancel;
    struct fault fault;
    unsigned char *received; /* owns; by index: this RECV's message has been used */
    int32_t *slot_landing;   /* owns; by stash slot: the landing buffer that its F read, or none */
    int32_t capacity;
    struct worker_run run;
    struct worker_times times;
    double loss_sum; /* of the run, over micro-batches in ascending order */
};

/* Sets the table and takes memory for lines of up to `actions` actions and for `slots` stash
 * slots; the other fields are the caller's to fill. */
enum status stage_worker_init(struct stage_worker *worker, int32_t actions, int32_t slots);

/* Begins a run: sums and times are zero again. */
void stage_worker_begin(struct stage_worker *worker, const struct worker_run *run);

void stage_worker_release(struct stage_worker *worker);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_WORKER_H */
