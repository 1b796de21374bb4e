/*
 * mutant_world -- what a plan, right or wrong, works on: real lanes, and tokens as data.
 *
 * All ranks of a pipeline in one thread. The lanes are those of comm.h over shared memory: landing
 * buffers, marks, pending sends and credits are the real ones, and what lies in them is a token
 * that says what was computed from what. Stashes, gradient sets, hand-over buffers and out buffers
 * are memory of the world. Every buffer is poisoned until it is filled and when its last reader has
 * ended, an output is poisoned while it is being computed, and inputs are read at the begin and at
 * the end of an action. So whoever reads too early, too late or in the wrong place sees it.
 *
 * An action is two moments, begin and end; who chooses them is mutant_run.h. The fields of an action
 * mean here what they mean to the worker of a rank (stages/worker.c): `chunk`, `slot`, `gradient`,
 * `landing` and `target` say which memory, `peer` and `direction` which lane, `virtual_stage` and
 * `microbatch` what is computed, `sequence` which message of the lane it is.
 *
 * The world believes nothing about a plan: what would be a bad pointer, a failed ENSURE or a call
 * that nobody answers in a stage process is noted as a fault, and the run ends.
 */
#ifndef TESTS_STAGES_MUTANT_WORLD_H
#define TESTS_STAGES_MUTANT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/plan.h"
#include "tests/collectives/comm_rig.h"
#include "tests/stages/mutant.h"

#define WORLD_STAGES   (MUTANT_RANKS * MUTANT_CHUNKS)
#define WORLD_LANDINGS 24 /* of a chunk and direction, more than any mutant has */
#define WORLD_ACTIONS  192
#define WORLD_WAYS     (2 * LANE_DIRECTIONS) /* to the next rank and to the one before */

/* How a run of a plan ends; what came first. */
#define OUTCOME_TABLE(X)                                                                       \
    X(RIGHT, "right")                                                                          \
    X(HANG, "hang")         /* nobody can go on */                                             \
    X(WRONG, "message")     /* a message is not the one that its receiver takes it for */      \
    X(POISONED, "lifetime") /* memory was read or written that was not its reader's */         \
    X(SUM, "sum")           /* a sum lacks something, has it twice, or in another order */     \
    X(OUTSIDE, "outside")   /* it names what does not exist: buffer, lane, data, dependency */ \
    X(LEFT, "left over")    /* all ended, but something lies in a buffer that nobody took */

enum outcome {
#define X(kind, text) OUTCOME_##kind,
    OUTCOME_TABLE(X)
#undef X
    OUTCOMES
};

/* What travels. */
struct message {
    uint64_t token;
    int64_t ordinal;  /* how many the sender posted on the lane before */
    int64_t sequence; /* what the plan says of it */
};

/* A lane from a rank to a neighbour in one direction, both ends; all zero where the two neighbours are
 * the same rank. */
struct world_lane {
    struct lane *out;
    struct lane *in;
    struct message buffer; /* the out buffer */
    int32_t posted;        /* index of the SEND that waits for its landing buffer, or ACTION_NONE */
    int32_t landing;       /* where it goes */
    int64_t sent;          /* messages posted so far */
    /* The tag of what lies in a landing buffer, 0 while it is free. */
    uint64_t full[MUTANT_CHUNKS * WORLD_LANDINGS];
};

struct world_stash {
    uint64_t token;
    uint64_t head;
    int32_t landing; /* of the input of F */
};

struct world_chunk {
    struct world_stash stashes[WORLD_LANDINGS];
    uint64_t gradients[WORLD_LANDINGS];
    uint64_t handed[LANE_DIRECTIONS][WORLD_LANDINGS];
    uint64_t forward; /* of what F has made, in any order */
    uint64_t head;    /* sums: chains, so that the order counts */
    uint64_t input;
    uint64_t weight;
};

/* What a sum must come to, and every token on the way, as one process alone makes them. */
struct world_truth {
    uint64_t x[WORLD_STAGES + 1][MUTANT_MICROBATCHES];
    uint64_t dy[WORLD_STAGES + 1][MUTANT_MICROBATCHES]; /* of the output of a stage */
    uint64_t stash[WORLD_STAGES][MUTANT_MICROBATCHES];
    uint64_t gradient[WORLD_STAGES][MUTANT_MICROBATCHES];
    struct world_chunk sums[WORLD_STAGES]; /* the sums alone */
};

enum work_state {
    WORK_NEW,
    WORK_BEGUN,
    WORK_ENDED
};

struct world_rank {
    struct world_lane lanes[WORLD_WAYS]; /* that this rank sends on */
    struct world_chunk chunks[MUTANT_CHUNKS];
    enum work_state state[WORLD_ACTIONS];
    int32_t steps;    /* STEPs begun */
    int32_t reduces;  /* REDUCEs ended */
    uint64_t reduced; /* what the first one summed */
    uint64_t synced;  /* what the owner's SYNC brought, in a chain */
};

struct mutant_world {
    struct comm_rig rigs[MUTANT_RANKS + 1];                             /* by ranks; 2 … */
    struct world_lane ends[MUTANT_RANKS + 1][MUTANT_RANKS][WORLD_WAYS]; /* out and in */
    /* of one run */
    const struct plan *plan; /* borrows */
    struct world_truth truth;
    struct world_rank ranks[MUTANT_RANKS];
    int32_t syncs;     /* of the head, ended */
    uint64_t sync_sum; /* the head's gradient on its way */
    enum outcome outcome;
    int32_t fault_rank; /* where it was noticed */
    int32_t fault_index;
    const char *fault_text; /* static string */
};

/* Connects the lanes of 2 to MUTANT_RANKS ranks, once for all runs; fails the test where it cannot. */
void mutant_world_open(struct mutant_world *world);
void mutant_world_close(struct mutant_world *world);

/* A run of `plan` begins: all buffers free, all poisoned. It borrows the plan. */
void mutant_world_begin(struct mutant_world *world, const struct plan *plan);

/* Gives every landing buffer back and drops every message, however the run ended. */
void mutant_world_drain(struct mutant_world *world);

/* The two moments of an action; a fault is noted. STEP and SYNC end only where the caller has seen
 * that the others are there. */
void mutant_world_start(struct mutant_world *world, int32_t rank, int32_t index);
void mutant_world_finish(struct mutant_world *world, int32_t rank, int32_t index);

/* Whether the message of a RECV is there and is the one it must be. Where something else lies there
 * it is a fault if `strict`; else it may still be an earlier message that is being read. */
bool mutant_world_receive(struct mutant_world *world, int32_t rank, int32_t index, bool strict);

/* The lane from a rank to a neighbour of it. */
struct world_lane *mutant_world_lane(struct mutant_world *world, int32_t from, int32_t to,
                                     enum lane_direction direction);

/* Whether a message of the rank is still on its way out. */
bool mutant_world_sending(const struct mutant_world *world, int32_t rank);

/* Retries the pending sends of a rank. */
void mutant_world_progress(struct mutant_world *world, int32_t rank);

/* Whether a retry would send something. */
bool mutant_world_can_progress(const struct mutant_world *world, int32_t rank);

/* All actions have ended: sums, steps, and buffers that should be free. */
void mutant_world_check_end(struct mutant_world *world);

/* Notes the first fault of a run. */
void mutant_world_fault(struct mutant_world *world, enum outcome outcome, int32_t rank,
                        int32_t index, const char *text);

/* "hang"; a static string. */
const char *outcome_text(enum outcome outcome);

#endif /* TESTS_STAGES_MUTANT_WORLD_H */
