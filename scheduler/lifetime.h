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

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the buffer counts of all chunks can be: in range, at least one landing buffer for each
 * virtual stage that gets something and none for one that gets nothing. */
enum status lifetime_check_counts(const struct plan *plan);

/* Slots, gradient sets and the landing buffers that a chunk of the same rank writes to are free
 * when taken and stay with their micro-batch until their last reader; landing buffers of a lane go
 * in turn and are the same at both ends and at their readers; accumulation ascends. That nobody
 * writes into a landing or out buffer that is still read is the graph's to say: those are edges. */
enum status lifetime_check(const struct plan *plan, const struct plan_index *index);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LIFETIME_H */
