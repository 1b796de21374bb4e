/*
 * fake_worker -- a worker that ends its actions late and in random order, for tests.
 *
 * A fake_world stands for the whole pipeline: all ranks, the lanes between them with the plan's
 * landing buffers, credits and out buffers, and the stashes and gradient sets of every chunk. What
 * flows are tokens instead of tensors: each operation hashes its inputs, so that a wrong order, a
 * lost message, or a buffer that is written too early ends as a wrong token. Every action begins
 * and ends at two moments chosen at random among all that could happen; inputs are read at both,
 * outputs are poisoned in between, and so is every buffer that was given back.
 *
 * Each rank is driven by the thread that runs its executor. One lock for the whole world. Nothing
 * is allocated while ranks run. When no rank can go on, that is a hang, noticed at once.
 */
#ifndef TESTS_SCHEDULER_FAKE_WORKER_H
#define TESTS_SCHEDULER_FAKE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/worker.h"

#define FAKE_MOST_STAGES 16

enum fake_fault {
    FAKE_FAULT_NONE,
    FAKE_FAULT_ISSUE, /* issue() of the action fails */
    FAKE_FAULT_END,   /* the action ends badly */
    FAKE_FAULT_STALL  /* the action never begins */
};

struct fake_config {
    uint64_t seed;
    bool issue_waits; /* as a CPU worker: issue() returns when the action has ended, or could begin
                         where it is a message */
    int64_t deadline_ns;   /* watchdog of every wait */
    bool cancel_when_idle; /* when no rank can go on, cancel instead of calling it a hang */
    enum fake_fault fault;
    int32_t fault_rank;
    int32_t fault_index;
};

/* What a run came to: what was noticed first, but that a bad read tells more than the wrong token
 * that it leads to. */
enum fake_verdict {
    FAKE_RIGHT,
    FAKE_FAILED,   /* an executor returned an error that is none of the following */
    FAKE_HANG,     /* no rank could go on, or the watchdog ended it */
    FAKE_POISONED, /* a buffer was read that nobody had filled, or after it was given back */
    FAKE_WRONG     /* a token is not the one that one process alone would make */
};

/* The place where something went wrong first. */
struct fake_place {
    int32_t rank;
    int32_t index; /* of the action in its line */
};

/* The totals of one virtual stage; each is a hash chain, so the order of the additions counts. */
struct fake_totals {
    uint64_t forward; /* outputs of F */
    uint64_t head;    /* last virtual stage: gradients of the fused head */
    uint64_t input;   /* results of I */
    uint64_t weight;  /* additions of W */
    uint64_t synced;  /* virtual stage 0: the head's gradient as SYNC brought it */
};

struct fake_world;

/* `plan` and `config` are borrowed until fake_world_destroy(). */
enum status fake_world_create(const struct plan *plan, const struct fake_config *config,
                              struct fake_world **world_out);
void fake_world_destroy(struct fake_world **world);

/* Lends the worker of a rank, and the cancel of all. */
struct worker *fake_world_worker(struct fake_world *world, int32_t rank);
struct cancel *fake_world_cancel(struct fake_world *world);

/* The rank's executor has returned `status`; a failure cancels the others. */
void fake_world_finish(struct fake_world *world, int32_t rank, enum status status);

/* After all have finished: HANG, POISONED and WRONG as far as the world noticed them itself. */
enum fake_verdict fake_world_verdict(const struct fake_world *world, struct fake_place *place_out);

const struct fake_totals *fake_world_totals(const struct fake_world *world, int32_t virtual_stage);

/* What one process alone makes of stages and micro-batches, in closed form: no buffers, no lanes.
 * `totals_out` has `stages` <= FAKE_MOST_STAGES elements. */
void fake_totals_expect(int32_t stages, int32_t microbatches, bool trains, bool syncs,
                        struct fake_totals *totals_out);

#endif /* TESTS_SCHEDULER_FAKE_WORKER_H */
