/*
 * lane_order -- the messages of each lane along the lines at its two ends.
 *
 * Part of plan_validate(): messages are numbered as they stand, and whoever makes the next message of
 * a lane waits for the SEND before, which holds the only out buffer.
 */
#ifndef SCHEDULER_LANE_ORDER_H
#define SCHEDULER_LANE_ORDER_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What has been seen of each lane while the lines are read. */
struct lane_order {
    int32_t *sent; /* owns, and what follows; [lane] */
    int32_t *received;
    int32_t *last_send; /* index in the sender's line */
};

enum status lane_order_init(struct lane_order *order, const struct plan_index *index);

/* Lines in any order, each once; the plan is complete. */
enum status lane_order_check_line(const struct plan *plan, const struct plan_index *index,
                                  struct lane_order *order, int32_t rank);

/* The same of action i, a SEND or RECV, of a line that is gone through in its order. */
enum status lane_order_check(const struct plan *plan, const struct plan_index *index,
                             struct lane_order *order, int32_t rank, int32_t i);

/* Safe on a zeroed order, and twice. */
void lane_order_release(struct lane_order *order);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LANE_ORDER_H */
