#include "stages/config_layers.h"

#include <stdlib.h>

#include "scheduler/partition.h"
#include "stages/model/flops.h"

/* Virtual stages times layers squared: beyond this the search takes longer than it is worth, and so
 * many layers are even enough by count. */
#define MOST_WORK 2e7

/* Even: counts differ by at most 1, the last ones have fewer. */
static void split_evenly(int64_t layers, int64_t stages, int64_t *counts)
{
    for (int64_t i = 0; i < stages; i++) {
        counts[i] = layers / stages + (i < layers % stages ? 1 : 0);
    }
}

enum placement config_placement(const struct config *config)
{
    const struct config_parallel *parallel = &config->parallel;

    if (parallel->schedule == SCHEDULE_AUTO) {
        return parallel->virtual_stages % 2 == 0 ? PLACEMENT_ZIGZAG : PLACEMENT_LOOP;
    }
    return schedule_placement(parallel->schedule);
}

static void place(const struct config *config, int32_t *rank_of)
{
    int32_t pp = (int32_t)config->parallel.pp;
    int32_t stages = pp * (int32_t)config->parallel.virtual_stages;
    bool zigzag = config_placement(config) == PLACEMENT_ZIGZAG;

    for (int32_t stage = 0; stage < stages; stage++) {
        bool back = zigzag && stage / pp % 2 == 1;

        rank_of[stage] = back ? pp - 1 - stage % pp : stage % pp;
    }
}

static enum status split_by_flops(struct config *config, double *cost, int32_t *rank_of,
                                  int32_t *counts)
{
    struct flops layer = flops_of_layer(config, config->train.recompute[0]);
    const struct partition_problem problem = {
        .ranks = (int32_t)config->parallel.pp,
        .virtual_stages = (int32_t)config->parallel.virtual_stages,
        .layers = (int32_t)config->model.num_layers,
        .rank_of = rank_of,
        .cost = cost,
        .last_cost = flops_of_head(config),
    };

    for (int32_t i = 0; i < problem.layers; i++) {
        cost[i] = layer.F + layer.I + layer.W;
    }
    place(config, rank_of);
    TRY(partition_make(&problem, counts));
    for (int32_t i = 0; i < problem.ranks * problem.virtual_stages; i++) {
        config->parallel.layers_per_stage[i] = counts[i];
    }
    return STATUS_OK;
}

enum status config_split_layers(struct config *config)
{
    int64_t stages = config->parallel.pp * config->parallel.virtual_stages;
    int64_t layers = config->model.num_layers;
    double *cost = NULL;
    int32_t *numbers = NULL;
    enum status status;

    if ((double)stages * (double)layers * (double)layers > MOST_WORK) {
        split_evenly(layers, stages, config->parallel.layers_per_stage);
        return STATUS_OK;
    }
    cost = calloc((size_t)layers + 1, sizeof(*cost));
    numbers = calloc(2 * (size_t)stages, sizeof(*numbers));
    status = cost != NULL && numbers != NULL
                 ? split_by_flops(config, cost, numbers, numbers + stages)
                 : status_fail(STATUS_ERR_NO_MEMORY, "a split of %lld layers", (long long)layers);
    free(cost);
    free(numbers);
    return status;
}
