/*
 * lifetime -- whether the numbered buffers of a lowered plan are free when they are taken.
 *
 * Part of plan_validate(), for plans that are complete and in order on each rank. Also checks that
 * everything that adds to a gradient comes in ascending micro-batch order, and where sequences are cut
 * slices of a chunk go forward in ascending and backward in descending order, micro-batch after
 * micro-batch, so that keys are there when they are read and gradients of keys are whole when they are.
 */
#ifndef SCHEDULER_LIFETIME_H
#define SCHEDULER_LIFETIME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the buffer counts of all chunks can be: in range, at least one landing buffer for each
 * virtual stage that gets something and none for one that gets nothing. */
enum status lifetime_check_counts(const struct plan *plan);

/* The last micro-batch that added to a gradient of a chunk. */
struct accumulation {
    int32_t head; /* F of the last virtual stage; of every one where sequences are cut */
    int32_t I;
    int32_t W;
};

/* One rank while its line is read. Holders are micro-batches, ACTION_NONE where free. */
struct lifetimes {
    bool has_locals; /* a chunk of the rank gets its input from another one of it */
    const struct plan *plan;
    const struct plan_index *index;
    int32_t rank;
    int32_t *slots;                   /* owns, and the ones below; [chunk · m + slot] */
    int32_t *gradients;               /* [chunk · m + set] */
    int32_t *locals[LANE_DIRECTIONS]; /* [chunk · m + landing buffer]: written on this rank */
    struct accumulation *last;        /* owns */
};

/* Slots, gradient sets and the landing buffers that a chunk of the same rank writes to are free
 * when taken and stay with their micro-batch until their last reader; landing buffers of a lane go
 * in turn and are the same at both ends and at their readers; accumulation ascends. That nobody
 * writes into a landing or out buffer that is still read is the graph's to say: those are edges. */
enum status lifetime_check(const struct plan *plan, const struct plan_index *index);

/* The same action by action along a line, of a plan whose counts were checked; borrows both. */
enum status lifetimes_init(struct lifetimes *lifetimes, const struct plan *plan,
                           const struct plan_index *index);
void lifetimes_begin_line(struct lifetimes *lifetimes, int32_t rank);
enum status lifetime_check_action(const struct lifetimes *lifetimes, int32_t i);
void lifetimes_release(struct lifetimes *lifetimes);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LIFETIME_H */
