/*
 * plan_check -- what can be said of an action of a plan by itself.
 *
 * Known kind, virtual stage on this rank, micro-batch in range, right peer, dependencies that point
 * backwards and to what this kind may wait for, nothing twice. Whoever indexes or counts a line asks
 * first, and can then use the action's numbers as indices.
 */
#ifndef SCHEDULER_PLAN_CHECK_H
#define SCHEDULER_PLAN_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything that can be said about action i of `rank` without looking at another rank.
 * STATUS_ERR_REFUSED with rank, index and action. */
enum status plan_check_action(const struct plan *plan, int32_t rank, int32_t i);

/* Writes i, the place of an action, to *at where none is yet; refuses what stands twice. */
enum status plan_refuse_place(const struct plan *plan, int32_t rank, int32_t i, int32_t other);
static inline enum status plan_check_place(const struct plan *plan, int32_t rank, int32_t i,
                                           int32_t *at)
{
    int32_t other = *at;

    if (other != ACTION_NONE) {
        return plan_refuse_place(plan, rank, i, other);
    }
    *at = i;
    return STATUS_OK;
}

/* `later` must stand behind `earlier` in the line and name it among its dependencies. Nothing where
 * one of them is ACTION_NONE, or both are the same action. */
enum status plan_check_after(const struct plan *plan, int32_t rank, int32_t earlier, int32_t later);

/* The first two of each action of one line of a compute-only plan, without an index. `seen` is scratch of
 * plan_check_cells() elements. STATUS_ERR_REFUSED as plan_index_init(). */
enum status plan_check_line(const struct plan *plan, int32_t rank, int32_t *seen);
size_t plan_check_cells(const struct plan *plan);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_CHECK_H */
