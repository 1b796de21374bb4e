/*
 * precedence -- whether a virtual stage does all of every micro-batch, in an order that can be.
 *
 * Part of plan_validate(), virtual stage by virtual stage. The first two look at the line of its rank
 * alone.
 */
#ifndef SCHEDULER_PRECEDENCE_H
#define SCHEDULER_PRECEDENCE_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One F, one B or I and W, and the messages that there are neighbours for; nothing else. */
enum status precedence_check_complete(const struct plan *plan, const struct plan_index *index,
                                      int32_t stage);

/* Each action stands behind what it needs of its rank and names it: its message, its earlier half, and
 * the chunk before it on the same rank. */
enum status precedence_check(const struct plan *plan, const struct plan_index *index,
                             int32_t stage);

/* Both ends of each message give it the same place in the lane. */
enum status precedence_check_tags(const struct plan *plan, const struct plan_index *index,
                                  int32_t stage);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PRECEDENCE_H */
