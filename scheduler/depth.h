/*
 * depth -- how many landing buffers the lanes of a lowered plan need.
 *
 * Two questions with an answer each: what does it take to end at all, and what does it take to lose
 * no time. A deeper lane only takes waits away, so that both have a least answer. `_indexed` is for
 * whoever has an index of the lowered plan.
 */
#ifndef SCHEDULER_DEPTH_H
#define SCHEDULER_DEPTH_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Least number of landing buffers, the same on every lane and released at receipt, at which the
 * plan has no deadlock on a transport that blocks in the order of the line (`min_depth` of the JSON
 * form). STATUS_ERR_REFUSED where it deadlocks at every depth. */
enum status plan_min_depth(const struct plan *lowered, int32_t *depth_out);
enum status plan_min_depth_indexed(const struct plan *lowered, const struct plan_index *index,
                                   int32_t *depth_out);

/* Least lane_depth at which the plan is as short as with landing buffers without end, at these
 * costs and this latency (`d_perf`); `unbounded` of `costs` does not matter.
 * STATUS_ERR_REFUSED where it deadlocks at every depth. */
enum status plan_perf_depth(const struct plan *lowered, const struct plan_costs *costs,
                            int32_t *depth_out);
enum status plan_perf_depth_indexed(const struct plan *lowered, const struct plan_index *index,
                                    const struct plan_costs *costs, int32_t *depth_out);

/* Least lane_depth at which a plan that deadlocks at its own would not; 0 where none helps. */
enum status plan_free_depth(const struct plan *lowered, const struct plan_index *index,
                            int32_t *depth_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_DEPTH_H */
