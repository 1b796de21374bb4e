/*
 * gathering -- GATHER and RELEASE of a lowered plan in their places.
 *
 * Where weights lie in slices, one a replica (plan_gathers()), every F, and every I or B, has a
 * GATHER of its own right before it, which it waits for, and a RELEASE of its own right behind it,
 * which waits for it. A GATHER waits for the RELEASE before it on its rank: what is gathered goes
 * where the action before read. There are no others.
 */
#ifndef SCHEDULER_GATHERING_H
#define SCHEDULER_GATHERING_H

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Part of plan_validate(): STATUS_ERR_REFUSED with rank, index and action. That a plan which does not
 * gather has none, the index of the plan has checked. */
enum status gathering_check(const struct plan *plan);

/* The same of one line. */
enum status gathering_check_line(const struct plan *plan, int32_t rank);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_GATHERING_H */
