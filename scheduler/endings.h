/*
 * endings -- what ends the step of each rank: SYNC, REDUCE, STEP in their places.
 *
 * Part of plan_validate(), of plans that are complete. Each looks at the line of its rank alone.
 */
#ifndef SCHEDULER_ENDINGS_H
#define SCHEDULER_ENDINGS_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* STEP last; one REDUCE where there is to be one, behind the last compute action, which it names, and
 * the last SEND, and named by STEP. */
enum status endings_check_line(const struct plan *plan, const struct plan_index *index,
                               int32_t rank);

/* The SYNC of the head's rank and of the owner's. Nothing on the others. */
enum status endings_check_sync(const struct plan *plan, const struct plan_index *index,
                               int32_t rank);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_ENDINGS_H */
