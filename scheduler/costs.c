#include "scheduler/costs.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum status costs_init(struct costs *costs, const struct costs_plan *plan)
{
    size_t stages = (size_t)plan->ranks * (size_t)plan->virtual_stages;
    bool whole = true;

    ENSURE(plan->ranks >= 1 && plan->virtual_stages >= 1, "costs of %d ranks", plan->ranks);
    memset(costs, 0, sizeof(*costs));
    costs->plan = *plan;
    costs->stages = (int32_t)stages;
    costs->busy = calloc((size_t)plan->ranks, sizeof(*costs->busy));
    for (int i = 0; i < COST_KINDS; i++) {
        costs->compute[i] = calloc(stages, sizeof(*costs->compute[i]));
        whole = whole && costs->compute[i] != NULL;
    }
    for (int i = 0; i < LANE_DIRECTIONS; i++) {
        costs->latency[i] = calloc(stages, sizeof(*costs->latency[i]));
        whole = whole && costs->latency[i] != NULL;
    }
    if (!whole || costs->busy == NULL) {
        costs_release(costs);
        return status_fail(STATUS_ERR_NO_MEMORY, "costs: no memory for %zu virtual stages", stages);
    }
    return STATUS_OK;
}

void costs_release(struct costs *costs)
{
    for (int i = 0; i < COST_KINDS; i++) {
        free(costs->compute[i]);
    }
    for (int i = 0; i < LANE_DIRECTIONS; i++) {
        free(costs->latency[i]);
    }
    free(costs->busy);
    memset(costs, 0, sizeof(*costs));
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

/* The `share`-th of sorted samples, between two of them the weighted mean. */
static double quantile(const double *samples, size_t count, double share)
{
    double place = share * (double)(count - 1);
    size_t below = (size_t)place;
    size_t above = below + 1 < count ? below + 1 : below;
    double part = place - (double)below;

    return samples[below] * (1.0 - part) + samples[above] * part;
}

struct cost_stat cost_stat_of(double *samples, size_t count)
{
    struct cost_stat stat = {.count = (int64_t)count};
    double sum = 0.0;
    double typical = 0.0;
    size_t kept = 0;

    if (count == 0) {
        return stat;
    }
    qsort(samples, count, sizeof(*samples), compare);
    stat.median = quantile(samples, count, 0.5);
    stat.p90 = quantile(samples, count, 0.9);
    for (size_t i = 0; i < count; i++) {
        sum += samples[i];
        if (samples[i] <= 2.0 * stat.median) {
            typical += samples[i];
            kept++;
        }
    }
    stat.mean = sum / (double)count;
    stat.typical = kept > 0 ? typical / (double)kept : stat.median;
    return stat;
}

bool costs_are_of(const struct costs *costs, const struct plan *plan)
{
    const struct costs_plan *own = &costs->plan;

    return strcmp(own->schedule, schedule_text(plan->shape.schedule)) == 0 &&
           own->ranks == plan->shape.ranks && own->microbatches == plan->shape.microbatches &&
           own->virtual_stages == plan->shape.virtual_stages;
}

enum status costs_model(const struct costs *costs, const struct plan *plan,
                        struct plan_costs *model_out)
{
    size_t stages = (size_t)plan_stages(plan);
    double *table;
    double latency = 0.0;

    if (costs->stages != plan_stages(plan)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "costs: measured on %d virtual stages (pp %d, virtual_stages %d), the "
                           "plan has %d; measure a run with as many",
                           costs->stages, costs->plan.ranks, costs->plan.virtual_stages,
                           plan_stages(plan));
    }
    table = calloc(PLAN_COSTS_ARRAYS * stages, sizeof(*table));
    if (table == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "costs: no memory for %zu virtual stages", stages);
    }
    for (size_t s = 0; s < stages; s++) {
        for (size_t i = 0; i < COST_KINDS; i++) {
            table[i * stages + s] = costs->compute[i][s].typical;
        }
        for (size_t i = 0; i < LANE_DIRECTIONS; i++) {
            table[(COST_KINDS + i) * stages + s] = costs->latency[i][s].typical;
        }
    }
    for (size_t i = COST_KINDS * stages; i < PLAN_COSTS_ARRAYS * stages; i++) {
        latency += table[i] / (double)(LANE_DIRECTIONS * stages);
    }
    *model_out = (struct plan_costs){
        .F = table,
        .I = table + stages,
        .W = table + 2 * stages,
        .message = latency,
        .message_into = {table + 3 * stages, table + 4 * stages},
        .send = costs->send.typical,
        .action = costs->action.typical,
        .gather = costs->gather.typical,
    };
    return STATUS_OK;
}
