/*
 * plan_report -- what is worth knowing about a plan before it runs, in numbers.
 */
#ifndef SCHEDULER_PLAN_REPORT_H
#define SCHEDULER_PLAN_REPORT_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The two depths take many walks over the plan: beyond so many actions they are not looked for. */
#define PLAN_REPORT_MOST_ACTIONS ((int64_t)4 << 20)

struct plan_report {
    double bubble_ratio;          /* bubble / makespan, in [0, 1) */
    double *peak_w0;              /* owns; by rank, in micro-batches: a stash ends with I */
    double *peak_wall;            /* owns; with W */
    int64_t messages;             /* SENDs of all ranks */
    int32_t min_depth;            /* plan_min_depth(); 0: not looked for */
    int32_t perf_depth;           /* plan_perf_depth() at these costs; 0: not looked for */
    struct simulation simulation; /* owns; times in the unit of the costs */
};

/* Validates the lowered plan and works everything out. STATUS_ERR_REFUSED as plan_validate(). */
enum status plan_report_make(const struct plan *lowered, const struct plan_costs *costs,
                             struct plan_report *report_out);

/* Safe on a zeroed report, and twice. */
void plan_report_release(struct plan_report *report);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PLAN_REPORT_H */
