/*
 * plan -- the ordered list of actions of every pipeline rank for one step.
 *
 * Generators (scheduler/generate.h) make compute-only plans: F, B or I and W in an order.
 * Lowering (scheduler/lower.h) adds everything else, once and deterministically: SEND, RECV,
 * landing buffers, slots, GATHER, RELEASE, SYNC, REDUCE, STEP. The lowered plan is what is validated, simulated,
 * traced and run. All replicas and TP shards of a pipeline run the same plan.
 *
 * Buffers of a chunk, all numbered by the plan:
 *   stash slot     what the backward of one micro-batch needs: taken by F, given back by W
 *   gradient set   the dY of every operation between I and W of one micro-batch
 *   landing F      its input, read in place by F and I; the credit returns when I has ended
 *   landing B      the gradient of its output, read in place by I and W; when W has ended
 * A lane has one out buffer at its sender. Messages of a lane into one chunk fill its landing
 * buffers in turn.
 *
 * d is `lane_depth`; lanes that close the loop of groups have more (plan_lane_excess()), because so
 * many messages wait there.
 *
 * Where two neighbouring virtual stages are chunks of one rank, nothing is sent: the producer
 * writes into a landing buffer of the consumer's chunk (`target` of struct action). Those buffers
 * are taken like slots, when the producer stands in the line, and given back when the last reader
 * has ended; the line is their only order, so that they need neither lane nor credit.
 */
#ifndef SCHEDULER_PLAN_H
#define SCHEDULER_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/action.h"
#include "scheduler/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a plan is made from; equal shapes give equal plans on every rank. */
struct plan_shape {
    enum schedule schedule;
    int32_t ranks;           /* p >= 1 */
    int32_t microbatches;    /* m >= 1; where sequences are cut pieces, a multiple of k */
    int32_t virtual_stages;  /* v >= 1 chunks a rank, as many as the schedule takes */
    int32_t sequence_slices; /* k: > 1 where a sequence goes through in slices (seq1f1b, or a file's
                                 plan), and what is numbered and held are pieces of a micro-batch */
    int32_t extra_in_flight; /* e >= 0, of schedule_takes_extra(): rank r begins min(e, p-1-r) more
                                forwards before its first backward, against the latency of messages */
    enum placement placement; /* PLACEMENT_SCHEDULE asks for the schedule's own. Of plans from files
                                 and of those placed as another plan, rank_of tells */
    int32_t lane_depth;       /* d >= 1: landing buffers beyond what the orders hold */
    bool early_send;          /* a B becomes I, SEND, W */
    bool embedding_sync;      /* tied embedding and p > 1: a SYNC on the first and the last rank */
    bool
        reduce; /* gradients are summed over replicas, or shards with rows of their own; a REDUCE on each rank */
    bool gather; /* dp > 1 and ZeRO 3: the weights of layers lie in slices, one a replica; a GATHER
                    and a RELEASE around each F, and each I or B */
};

struct plan_line {
    struct action *actions; /* owns */
    int32_t count;
    int32_t source_line; /* where it stands in the plan's `source`, from 1; 0 where there is none */
    int32_t capacity;    /* private to plan.c */
    bool lent;           /* private to plan.c: `actions` lies in the block of the plan */
};

/* Buffers that a chunk of a rank needs; 0 in compute-only plans. */
struct plan_buffers {
    int32_t slots;     /* stash slots = peak of stashes */
    int32_t gradients; /* gradient sets = peak of I begun and W not ended */
    int32_t landing_f; /* landing buffers of its input: slots + d (more where sequences are cut,
                          scheduler/sequences.h); the peak of those in use where
                          the stage before is on this rank; 0 on virtual stage 0 */
    int32_t landing_b; /* landing buffers of dY: gradients + d; the peak where the stage behind is
                          on this rank; 0 on the last virtual stage */
};

struct plan {
    struct plan_shape shape;
    bool lowered;
    struct plan_line *lines;      /* owns; `shape.ranks` of them */
    struct plan_buffers *buffers; /* owns; [rank · v + chunk] */
    int32_t *rank_of;             /* owns; rank of each virtual stage, p·v */
    int32_t *chunk_of;            /* owns; chunk of each virtual stage on its rank */
    struct action *block;         /* owns; private to plan.c */
    char *source; /* owns; the file that the orders were read from, NULL where generated */
};

/* An empty compute-only plan with its placement, which its shape has in words, too.
 * STATUS_ERR_REFUSED where the shape is not legal, naming the key and the legal values. The
 * caller owns *plan_out. */
enum status plan_create(const struct plan_shape *shape, struct plan **plan_out);

/* Gives `plan` the placement of `other`, which has the same extents, and the places in a file that
 * its lines came from. */
enum status plan_place_as(struct plan *plan, const struct plan *other);

/* Whether virtual stage s is chunk s div p of rank s mod p. */
bool plan_is_loop(const struct plan *plan);

/* Makes room for `count` actions in the line of `rank`, so that as many plan_append() calls
 * neither fail nor move it. */
enum status plan_reserve(struct plan *plan, int32_t rank, int32_t count);

/* The same for the lines of all ranks of an empty plan, in one block: room for counts[rank]. */
enum status plan_reserve_all(struct plan *plan, const int32_t *counts);

/* Forgets the line of `from` and lets that of `to`, which has none yet, have its memory: for who needs
 * one line after the other. Not of lines that lie in one block. */
void plan_pass_memory(struct plan *plan, int32_t from, int32_t to);

/* Appends a copy of `action` to the line of `rank`. */
enum status plan_append(struct plan *plan, int32_t rank, const struct action *action);

/* The next action of a line that has room for it, to be written whole; NULL where plan_append() has to
 * make some. */
static inline struct action *plan_next(struct plan *plan, int32_t rank)
{
    struct plan_line *line = &plan->lines[rank];

    return line->count < line->capacity ? &line->actions[line->count++] : NULL;
}

/* p·v */
static inline int32_t plan_stages(const struct plan *plan)
{
    return plan->shape.ranks * plan->shape.virtual_stages;
}

/* k; 1 where sequences are whole. */
static inline int32_t plan_slices(const struct plan *plan)
{
    return plan->shape.sequence_slices > 1 ? plan->shape.sequence_slices : 1;
}

/* Which place piece `microbatch` has among the backwards of a chunk: micro-batches ascend, and slices
 * descend, because a slice adds to the gradients of keys before it. */
static inline int32_t plan_backward_place(const struct plan *plan, int32_t microbatch)
{
    int32_t k = plan_slices(plan);

    return k == 1 ? microbatch : microbatch / k * k + k - 1 - microbatch % k;
}

/* Whether it has backwards; false for forward-only plans. */
static inline bool plan_trains(const struct plan *plan)
{
    return schedule_trains(plan->shape.schedule);
}

/* `other` where it is a virtual stage and on the same rank as `stage`, or not, as wanted. */
static inline int32_t plan_neighbour(const struct plan *plan, int32_t stage, int32_t other,
                                     bool local)
{
    if (other < 0 || other >= plan_stages(plan) ||
        (plan->rank_of[other] == plan->rank_of[stage]) != local) {
        return ACTION_NONE;
    }
    return other;
}

/* The virtual stage that a message of `direction` into `stage` comes from, and the one that a
 * message from `stage` goes to. ACTION_NONE where there is none or it is on the same rank: nothing
 * is sent then. */
static inline int32_t plan_source(const struct plan *plan, int32_t stage,
                                  enum lane_direction direction)
{
    return plan_neighbour(plan, stage, direction == LANE_F ? stage - 1 : stage + 1, false);
}
static inline int32_t plan_target(const struct plan *plan, int32_t stage,
                                  enum lane_direction direction)
{
    return plan_neighbour(plan, stage, direction == LANE_B ? stage - 1 : stage + 1, false);
}

/* The virtual stage on the same rank that `stage` gets its input of `direction` from, and the one
 * that gets its result. ACTION_NONE where there is none or it is on another rank. */
static inline int32_t plan_local_source(const struct plan *plan, int32_t stage,
                                        enum lane_direction direction)
{
    return plan_neighbour(plan, stage, direction == LANE_F ? stage - 1 : stage + 1, true);
}
static inline int32_t plan_local_target(const struct plan *plan, int32_t stage,
                                        enum lane_direction direction)
{
    return plan_neighbour(plan, stage, direction == LANE_B ? stage - 1 : stage + 1, true);
}

/* Whether the embedding group is on two ranks and synced: SYNC at both ends. */
bool plan_syncs(const struct plan *plan);

/* Whether every rank sums gradients over replicas, or over shards with rows of their own: REDUCE on each. */
bool plan_reduces(const struct plan *plan);

/* Whether F, I and B ask for weights that lie in slices: GATHER and RELEASE around each. */
bool plan_gathers(const struct plan *plan);

static inline const struct plan_buffers *plan_buffers_of(const struct plan *plan, int32_t rank,
                                                         int32_t chunk)
{
    return &plan->buffers[(size_t)rank * (size_t)plan->shape.virtual_stages + (size_t)chunk];
}

/* Forgets the lines of all ranks but `rank`, which is all that a stage process runs; what the chunks of
 * the others have room for stays. */
enum status plan_keep_line(struct plan *plan, int32_t rank);

/* XXH3 of a lowered line's actions, all fields, in a fixed byte order: ranks compare it before a
 * job starts. */
uint64_t plan_line_hash(const struct plan *plan, int32_t rank);

/* NULL is fine; nulls the caller's pointer. */
void plan_destroy(struct plan **plan);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_H */
