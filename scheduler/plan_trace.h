/*
 * plan_trace -- a simulated plan as the trace that a run of it would leave.
 *
 * What reads traces then shows plans too: pictures, critical path, bubble by cause. A message's copy
 * takes no time, its latency is the RECV's; waits and RECVs fill the gaps before what they are for.
 */
#ifndef SCHEDULER_PLAN_TRACE_H
#define SCHEDULER_PLAN_TRACE_H

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Nanoseconds that the whole plan takes in the trace, whatever its costs are in. */
#define PLAN_TRACE_NS 1000000000

/* One step, 1, of one pipeline: ranks are stages. STATUS_ERR_REFUSED where the plan takes no time. The
 * caller releases *run_out. */
enum status plan_trace_make(const struct plan *lowered, const struct simulation *simulation,
                            struct trace_run *run_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_TRACE_H */
