/*
 * worker -- the door where an action becomes work on a slot of this rank, on the CPU.
 *
 * Fills scheduler/worker.h's table. Compute runs inside issue(); before it, issue() waits for
 * what the action depends on: its message, and the out buffer that an earlier SEND may still
 * hold. A SEND is posted and may stay pending; every later wait retries it. A RECV is no work:
 * the message arrives by itself, and is waited for by the action that reads it. After the last
 * reader of a message the credit goes back. What tensor-parallel shards do together happens inside
 * F and I, and with rows of their own in W and first thing in REDUCE too; the replicas meet in REDUCE
 * and, for the head, in SYNC. Where they keep slices of the weights, GATHER brings the first layer
 * that F or I asks for; the others come inside F and I, and count as their time. So do gradients of layers
 * that become sums inside W.
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
#include "collectives/grid.h"
#include "mixedprec/params.h"
#include "scheduler/plan.h"
#include "scheduler/trace.h"
#include "scheduler/worker.h"
#include "stages/buckets.h"
#include "stages/data/loader.h"
#include "stages/data/sampler.h"
#include "stages/fault.h"
#include "stages/inputs.h"
#include "stages/lanes.h"
#include "stages/model/chunk.h"
#include "stages/replicas.h"
#include "stages/tied_lanes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct update;

/* Compute of one chunk in one step: F, I, W. */
struct worker_times {
    int64_t busy_ns[3];
    int32_t count[3];
};

/* One chunk of this rank. */
struct worker_chunk {
    struct chunk chunk;
    int32_t virtual_stage;
    int32_t *slot_landing; /* owns; by stash slot: the landing buffer that its F read, or none */
    struct worker_times times;
};

/* Compute that the device may still be at: its times are stamps 2·i and 2·i + 1 of the device, where it is the i-th. */
struct worker_compute {
    struct worker_chunk *chunk;
    const struct action *action;
    int32_t index;
    int32_t which; /* 0 F, 1 I, 2 W */
};

/* What a run of a line works on; set before executor_run(). */
struct worker_run {
    const struct plan_line *line;
    struct loader_batch batch;
    int64_t step;     /* attempt */
    uint64_t number;  /* of runs of this job, evaluations included; part of every tag */
    bool evaluation;  /* a forward-only plan */
    int64_t consumed; /* samples of the whole run before this step */
    float loss_seed;  /* loss scale / targets of the global batch */
    int64_t version;  /* update count that the head's copy must have */
    int64_t deadline_ns;
};

struct stage_worker {
    struct worker base;
    int32_t rank;
    char place[GRID_PLACE_BYTES]; /* of this rank, for messages */
    struct worker_chunk *chunks;  /* borrows; chunk_count of them */
    int32_t chunk_count;
    struct device *device;       /* borrows */
    bool ranges;                 /* each action is one of the device's, under its name in plans */
    const struct inputs *inputs; /* borrows */
    double *losses;              /* borrows: of DEVICE_HOST, by micro-batch, or piece of one */
    int32_t loss_count;          /* of them */
    struct workspace *workspace; /* borrows */
    struct params *params;
    struct head_memory *head;
    struct comm *comm;               /* NULL where the world is 1 */
    struct lanes *lanes;             /* borrows */
    const struct replicas *replicas; /* borrows */
    struct buckets *buckets;         /* borrows */
    int32_t microbatches;            /* of a step, or pieces of them */
    struct sampler sampler;          /* of this replica; stages without data number samples too */
    struct control *control;
    struct embedding_sync *sync; /* NULL where the embedding is not shared */
    struct tied_lanes *tied;     /* borrows; the other way that the embedding may go */
    void *sync_out; /* borrows, of DEVICE_HOST: head on a device: its gradient as it leaves, */
    void *sync_in;  /* and weights as they arrive; else NULL */
    struct gathered *gathered; /* borrows */
    struct update *update;
    struct span_ring *spans;
    const struct cancel *cancel;
    struct fault fault;
    struct worker_compute *computes; /* owns; begun and not yet among the times */
    int32_t compute_count;
    unsigned char *received; /* owns; by index: this RECV's message has been used */
    int32_t capacity;
    struct worker_run run;
    int64_t head_version; /* update count of the head's copy, whole */
    /* The embedding sync at this end since the last STEP: how long what it waited for had travelled,
     * and how long it stood still for it. */
    int64_t sync_transfer_ns;
    int64_t sync_exposed_ns;
    int64_t first_begin_ns; /* of a compute action of this run; 0 where there was none */
    int64_t last_end_ns;
    double loss_sum; /* of the run, micro-batches ascending: stage_worker_collect() */
};

/* Sets the table and takes memory for lines of up to `actions` actions and for the slots of its
 * chunks; the other fields are the caller's to fill before. */
enum status stage_worker_init(struct stage_worker *worker, int32_t actions);

/* Waits shorter than this are not worth a span of their own. */
#define STAGE_WORKER_WAIT_SPAN_NS 2000

/* A span of the run; what does not apply of `action` is in no argument of it. */
void stage_worker_put_span(struct stage_worker *worker, enum trace_kind kind, int64_t begin_ns,
                           int64_t end_ns, const struct action *action, int32_t index,
                           uint64_t bytes);

/* F, I and W of a micro-batch, whose messages are here. Each gives back the landing buffers that it is the
 * last to read. */
enum status stage_worker_forward(struct stage_worker *worker, const struct action *action,
                                 int32_t index);
enum status stage_worker_input_gradient(struct stage_worker *worker, const struct action *action,
                                        int32_t index);
enum status stage_worker_weight_gradient(struct stage_worker *worker, const struct action *action,
                                         int32_t index);

/* SYNC. Head: blocks until the replicas have summed their gradients; each sends its slice in the
 * background.
 * Owner: blocks until its slice has arrived; where lanes carry it, in the order of the stream. */
enum status stage_worker_sync(struct stage_worker *worker, size_t *bytes_out);

/* Owner, after update `version`: its slice of the weights goes to the head in the background, and stays as it is
 * until the next SYNC of this rank. Nothing where this rank has no other end. */
enum status stage_worker_send_weights(struct stage_worker *worker, int64_t version);

/* REDUCE: blocks until all gradients of this rank are sums, over the shards where they have rows of their
 * own, and over the replicas; *bytes_out is what became sums here, and not in W (stages/buckets.h). */
enum status stage_worker_reduce(struct stage_worker *worker, size_t *bytes_out);

/* The fault switch's: spoils some gradient of this rank, where it has one that nothing replaces but the sum. */
enum status stage_worker_spoil(struct stage_worker *worker);

/* Blocks until the head's copy of a tied embedding is whole and of update count `version`: the owner
 * has sent this replica's slice, and all replicas have gathered theirs, who call this alike. Nothing
 * where this rank has no copy. */
enum status stage_worker_wait_head(struct stage_worker *worker, int64_t version,
                                   int64_t deadline_ns);

/* Blocks until the other end of the tied embedding has what this one has sent last, and has said so. Nothing
 * where this rank has no other end. */
enum status stage_worker_wait_sent(struct stage_worker *worker, int64_t deadline_ns);

/* Begins a run: sums and times are zero again, and the batch is brought to where the device reads it. */
enum status stage_worker_begin(struct stage_worker *worker, const struct worker_run *run);

/* What the device tells of a run, behind device_wait(): the times of its compute, and the losses of its micro-batches,
 * added up into loss_sum. */
void stage_worker_collect(struct stage_worker *worker);

/* How many of the device's stamps lines of up to `actions` actions need. */
int32_t stage_worker_stamps(int32_t actions);

/* Blocks until the device has done all of an evaluation, and collects it. */
enum status stage_worker_end_evaluation(struct stage_worker *worker);

void stage_worker_release(struct stage_worker *worker);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_WORKER_H */
