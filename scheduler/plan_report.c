#include "scheduler/plan_report.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/depth.h"
#include "scheduler/plan_index.h"
#include "scheduler/validate.h"

static int64_t count_messages(const struct plan *plan)
{
    int64_t messages = 0;
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        for (i = 0; i < plan->lines[rank].count; i++) {
            messages += plan->lines[rank].actions[i].kind == ACTION_SEND;
        }
    }
    return messages;
}

/* Walks over all actions, a dozen of them for the two depths: seconds where there are many. */
static enum status find_depths(const struct plan *lowered, const struct plan_index *index,
                               const struct plan_costs *costs, struct plan_report *report)
{
    if (index->first[lowered->shape.ranks] > PLAN_REPORT_MOST_ACTIONS) {
        return STATUS_OK;
    }
    TRY(plan_min_depth_indexed(lowered, index, &report->min_depth));
    return plan_perf_depth_indexed(lowered, index, costs, &report->perf_depth);
}

static enum status make(const struct plan *lowered, const struct plan_index *index,
                        const struct plan_costs *costs, struct plan_report *report)
{
    size_t ranks = (size_t)lowered->shape.ranks;
    const struct simulation *simulation = &report->simulation;

    report->peak_w0 = calloc(ranks, sizeof(*report->peak_w0));
    report->peak_wall = calloc(ranks, sizeof(*report->peak_wall));
    if (report->peak_w0 == NULL || report->peak_wall == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan report: no memory for %zu ranks", ranks);
    }
    TRY(plan_validate_indexed(lowered, index));
    TRY(plan_peaks(lowered, false, report->peak_w0));
    TRY(plan_peaks(lowered, true, report->peak_wall));
    TRY(find_depths(lowered, index, costs, report));
    TRY(plan_simulate_indexed(lowered, index, costs, &report->simulation));
    report->messages = count_messages(lowered);
    report->bubble_ratio =
        simulation->makespan > 0.0 ? simulation->bubble / simulation->makespan : 0.0;
    return STATUS_OK;
}

enum status plan_report_make(const struct plan *lowered, const struct plan_costs *costs,
                             struct plan_report *report_out)
{
    struct plan_report report = {.messages = 0};
    struct plan_index index;
    enum status status;

    if (!lowered->lowered) {
        return status_fail(STATUS_ERR_REFUSED, "plan report: the plan is not lowered yet");
    }
    TRY(plan_index_init(&index, lowered));
    status = make(lowered, &index, costs, &report);
    plan_index_release(&index);
    if (status < 0) {
        plan_report_release(&report);
        return status;
    }
    *report_out = report;
    return STATUS_OK;
}

void plan_report_release(struct plan_report *report)
{
    free(report->peak_w0);
    free(report->peak_wall);
    simulation_release(&report->simulation);
    memset(report, 0, sizeof(*report));
}
