#include "stages/tune/split.h"

#include <stdlib.h>

#include "scheduler/partition.h"
#include "scheduler/simulate.h"

/* Of one split; a plan that takes longer to simulate than this many are worth is searched less. */
#define EVALUATIONS     200
#define ACTIONS_AT_MOST ((int64_t)4000000)

/* Less is noise. */
#define WORTH 0.999

struct splitting {
    const struct tune_contender *contender;
    struct tune_layer_costs costs;
    double *values; /* owns; F, I, W of each virtual stage */
    int32_t stages;
};

/* A partition_evaluate_fn. */
static enum status evaluate(void *context, const int32_t *counts, double *value_out)
{
    const struct splitting *splitting = context;
    const struct tune_layer_costs *costs = &splitting->costs;
    int32_t stages = splitting->stages;
    struct simulation simulation;
    struct plan_costs plan_costs = {.F = splitting->values,
                                    .I = splitting->values + stages,
                                    .W = splitting->values + 2 * (size_t)stages,
                                    .send = costs->send_s,
                                    .message = costs->message_s,
                                    .gather = costs->gather_s,
                                    .action = costs->action_s};

    for (int c = 0; c < TUNE_COSTS; c++) {
        for (int32_t s = 0; s < stages; s++) {
            splitting->values[c * stages + s] = (double)counts[s] * costs->layer[c] +
                                                (s == 0 ? costs->first[c] : 0.0) +
                                                (s == stages - 1 ? costs->last[c] : 0.0);
        }
    }
    TRY(plan_simulate(splitting->contender->plan, &plan_costs, &simulation));
    *value_out = simulation.makespan;
    simulation_release(&simulation);
    return STATUS_OK;
}

static double sum(const double *costs)
{
    return costs[0] + costs[1] + costs[2];
}

static int32_t evaluations_for(const struct plan *plan)
{
    int64_t actions = 1;

    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        actions += plan->lines[rank].count;
    }
    return (int32_t)(ACTIONS_AT_MOST / actions < EVALUATIONS ? ACTIONS_AT_MOST / actions
                                                             : EVALUATIONS);
}

static enum status find(struct splitting *splitting, const double *layers, int32_t *counts,
                        bool *better_out)
{
    const struct tune_contender *contender = splitting->contender;
    const struct config_parallel *own = &contender->config->parallel;
    const struct partition_problem problem = {
        .ranks = (int32_t)own->pp,
        .virtual_stages = (int32_t)own->virtual_stages,
        .layers = (int32_t)contender->config->model.num_layers,
        .rank_of = contender->plan->rank_of,
        .cost = layers,
        .first_cost = sum(splitting->costs.first),
        .last_cost = sum(splitting->costs.last),
    };
    double span_s = 0.0;
    bool differs = false;

    TRY(partition_make(&problem, counts));
    TRY(partition_polish(&problem, evaluate, splitting, evaluations_for(contender->plan), counts));
    for (int32_t s = 0; s < splitting->stages; s++) {
        differs = differs || counts[s] != own->layers_per_stage[s];
    }
    if (differs) {
        TRY(evaluate(splitting, counts, &span_s));
    }
    *better_out = differs && span_s < contender->span_s * WORTH;
    return STATUS_OK;
}

enum status tune_split_find(const struct tune_contender *contender,
                            const struct tune_cost_table *table, int32_t *counts, bool *better_out)
{
    struct splitting splitting = {.contender = contender, .stages = plan_stages(contender->plan)};
    int64_t count = contender->config->model.num_layers;
    double *layers = calloc((size_t)count, sizeof(*layers));
    struct tune_point point;
    enum status status = STATUS_OK;

    *better_out = false;
    splitting.values = calloc((size_t)splitting.stages, TUNE_COSTS * sizeof(*splitting.values));
    tune_contender_point(contender, 0, &point);
    if (layers == NULL || splitting.values == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "weir tune: a split of %lld layers",
                             (long long)count);
    } else if (tune_cost_table_find(table, &point, &splitting.costs) != TUNE_UNKNOWN) {
        for (int64_t l = 0; l < count; l++) {
            layers[l] = sum(splitting.costs.layer);
        }
        status = find(&splitting, layers, counts, better_out);
    }
    free(splitting.values);
    free(layers);
    return status;
}
