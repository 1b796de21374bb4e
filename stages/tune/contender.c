#include "stages/tune/contender.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/prove.h"
#include "scheduler/search_bound.h"
#include "scheduler/search_space.h"
#include "stages/backends.h"
#include "stages/engine.h"
#include "stages/memory.h"
#include "stages/plan_search.h"
#include "tensor/device.h"

/* What the system and the page cache keep of the host's memory. */
#define HOST_SHARE 0.9

int64_t tune_memory_limit(const struct config *config, bool *own_out)
{
    const struct config_parallel *parallel = &config->parallel;
    int64_t ranks = parallel->pp * parallel->tp * parallel->dp;
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);

    *own_out = config->train.memory_limit > 0;
    if (*own_out) {
        return config->train.memory_limit;
    }
    if (pages <= 0 || page <= 0 || !device_backend_tensors_are_here(backend_planned(config))) {
        return 0;
    }
    return (int64_t)((double)pages * (double)page * HOST_SHARE) / ranks;
}

/* Of a rank of the job, by one stash or gradient set. */
static size_t held_each(const struct tune_contender *contender, const struct memory_table *table,
                        int32_t rank)
{
    const struct config_parallel *parallel = &contender->config->parallel;
    int32_t pipeline_rank = rank / (int32_t)(parallel->tp * parallel->dp);
    size_t held =
        table->bytes[MEMORY_STASHES] + table->bytes[MEMORY_DY] + table->bytes[MEMORY_RECOMPUTED];
    size_t count = 0;

    for (int32_t chunk = 0; chunk < parallel->virtual_stages; chunk++) {
        const struct plan_buffers *buffers = plan_buffers_of(contender->plan, pipeline_rank, chunk);

        count += (size_t)buffers->slots + (size_t)buffers->gradients;
    }
    return count > 0 ? held / count : 0;
}

static enum status measure_memory(struct tune_contender *contender)
{
    struct grid_shape shape = config_grid_shape(contender->config);
    int32_t ranks = shape.pp * shape.tp * shape.dp;
    struct memory_table *tables = calloc((size_t)ranks, sizeof(*tables));
    struct plan *evaluation = NULL;
    int32_t largest = 0;
    enum status status = STATUS_OK;

    if (tables == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: the memory of %d ranks", ranks);
    }
    TRY_OR(done, status, plan_prove_evaluation(contender->plan, &evaluation));
    TRY_OR(done, status,
           engine_measure_job(contender->config, contender->plan, evaluation, ranks, tables,
                              &largest));
    contender->need_bytes = tables[largest].total_bytes;
    contender->held_bytes = held_each(contender, &tables[largest], largest);
    contender->parameters = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        if (tables[rank].parameters > contender->parameters) {
            contender->parameters = tables[rank].parameters;
        }
    }
done:
    plan_destroy(&evaluation);
    free(tables);
    return status;
}

/* The plan that every rank would find. */
static enum status search_plan(struct tune_contender *contender)
{
    struct grid_shape shape = config_grid_shape(contender->config);
    struct search_result found;
    enum status status = STATUS_OK;

    TRY(plan_search_run(contender->config, shape.pp * shape.tp * shape.dp, &found));
    status = plan_prove_made(&found.plan, &contender->plan);
    search_result_release(&found);
    return status;
}

enum status tune_contender_take_plan(struct tune_contender *contender)
{
    struct plan_shape shape;

    if (contender->plan != NULL) {
        return STATUS_OK;
    }
    config_plan_shape(contender->config, &shape);
    if (shape.schedule == SCHEDULE_AUTO) {
        return search_plan(contender);
    }
    return plan_prove(&shape, contender->config->parallel.schedule_file, &contender->plan);
}

void tune_contender_drop_plan(struct tune_contender *contender)
{
    if (!contender->keeps_plan && contender->config->parallel.schedule != SCHEDULE_AUTO) {
        plan_destroy(&contender->plan);
    }
}

int32_t tune_contender_stages(const struct tune_contender *contender)
{
    const struct config_parallel *parallel = &contender->config->parallel;

    return (int32_t)(parallel->pp * parallel->virtual_stages);
}

/* The candidate as it is. */
static enum status load(const struct tune_base *base, struct tune_contender *contender)
{
    config_destroy(&contender->config);
    plan_destroy(&contender->plan);
    TRY(tune_candidate_load(base, &contender->candidate, &contender->config));
    TRY(tune_contender_take_plan(contender));
    return measure_memory(contender);
}

static enum status copy_candidate(const struct tune_candidate *candidate,
                                  struct tune_contender *contender)
{
    struct tune_candidates one = {.all = NULL};

    TRY(tune_candidates_add(&one, candidate));
    contender->candidate = one.all[0];
    free(one.all);
    return STATUS_OK;
}

enum status tune_contender_open(const struct tune_base *base,
                                const struct tune_candidate *candidate, int64_t limit,
                                struct tune_contender *contender_out, bool *fits_out,
                                size_t *need_out)
{
    enum status status = STATUS_OK;

    *contender_out = (struct tune_contender){.quality = TUNE_UNKNOWN};
    *fits_out = false;
    *need_out = SIZE_MAX;
    TRY(copy_candidate(candidate, contender_out));
    status_hush(true);
    do {
        status = load(base, contender_out);
        if (status >= 0 && contender_out->need_bytes < *need_out) {
            *need_out = contender_out->need_bytes;
        }
        *fits_out = status >= 0 && (limit == 0 || contender_out->need_bytes <= (size_t)limit);
    } while (status >= 0 && !*fits_out && tune_candidate_recompute_more(&contender_out->candidate));
    status_hush(false);
    if (!*fits_out) {
        tune_contender_release(contender_out);
    }
    return status;
}

void tune_contender_point(const struct tune_contender *contender, int64_t stage,
                          struct tune_point *point_out)
{
    const struct config *config = contender->config;

    *point_out = (struct tune_point){
        .pp = config->parallel.pp,
        .tp = config->parallel.tp,
        .dp = config->parallel.dp,
        .micro_batch_size = config->train.micro_batch_size,
        .recompute = config->train.recompute[stage],
    };
}

/* Where one is not known, the rest is not looked at. */
static enum tune_quality fill_costs(const struct tune_contender *contender,
                                    const struct tune_cost_table *table, int32_t stages,
                                    struct tune_stage_costs *costs)
{
    enum tune_quality worst = TUNE_MEASURED;

    for (int32_t s = 0; s < stages && worst != TUNE_UNKNOWN; s++) {
        struct tune_layer_costs own = {.spread = 0.0};
        struct tune_point point;
        enum tune_quality quality = TUNE_UNKNOWN;

        tune_contender_point(contender, s, &point);
        quality = tune_cost_table_find(table, &point, &own);
        worst = quality > worst ? quality : worst;
        for (int c = 0; c < TUNE_COSTS; c++) {
            costs->values[c * stages + s] =
                (double)contender->config->parallel.layers_per_stage[s] * own.layer[c] +
                (s == 0 ? own.first[c] : 0.0) + (s == stages - 1 ? own.last[c] : 0.0);
        }
        costs->layers = s == 0 ? own : costs->layers;
    }
    return worst;
}

enum status tune_contender_costs(const struct tune_contender *contender,
                                 const struct tune_cost_table *table,
                                 struct tune_stage_costs *costs_out)
{
    int32_t stages = tune_contender_stages(contender);

    *costs_out = (struct tune_stage_costs){.quality = TUNE_UNKNOWN};
    costs_out->values = calloc((size_t)stages, TUNE_COSTS * sizeof(*costs_out->values));
    if (costs_out->values == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: costs of %d virtual stages", stages);
    }
    costs_out->quality = fill_costs(contender, table, stages, costs_out);
    costs_out->plan = (struct plan_costs){.F = costs_out->values,
                                          .I = costs_out->values + stages,
                                          .W = costs_out->values + 2 * (size_t)stages,
                                          .send = costs_out->layers.send_s,
                                          .message = costs_out->layers.message_s,
                                          .gather = costs_out->layers.gather_s,
                                          .action = costs_out->layers.action_s};
    return STATUS_OK;
}

void tune_stage_costs_release(struct tune_stage_costs *costs)
{
    free(costs->values);
    *costs = (struct tune_stage_costs){.quality = TUNE_UNKNOWN};
}

/* Of all ranks: what their actions take, and what lies before each. */
static double load_of(const struct plan *plan, const struct plan_costs *costs)
{
    double load = 0.0;

    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        for (int32_t i = 0; i < plan->lines[rank].count; i++) {
            const struct action *action = &plan->lines[rank].actions[i];

            if (action_is_compute((enum action_kind)action->kind)) {
                load += costs->action + plan_action_cost(costs, action);
            }
        }
    }
    return load;
}

/* What lies between actions is left out of both: an I with its W in one action has less of it than the orders
 * that the bound is about. */
static enum status compare_bound(struct tune_contender *contender, const struct plan_costs *costs)
{
    static const struct search_memory any = {.limit = NULL};
    const struct plan *plan = contender->plan;
    struct plan_costs bare = *costs;
    struct simulation simulation;
    struct search_space space;
    enum status status = STATUS_OK;

    bare.action = 0.0;
    TRY(search_space_init(&space, &plan->shape, plan->rank_of, &bare, &any));
    status = search_bound(&space, &contender->bound_s);
    search_space_release(&space);
    if (status >= 0) {
        status = plan_simulate(plan, &bare, &simulation);
    }
    if (status >= 0) {
        contender->bare_s = simulation.makespan;
        simulation_release(&simulation);
    }
    return status;
}

static double optimizer_s(const struct tune_contender *contender,
                          const struct tune_layer_costs *costs)
{
    return costs->parameters > 0.0
               ? costs->optimizer_s * (double)contender->parameters / costs->parameters
               : costs->optimizer_s;
}

static enum status simulate(struct tune_contender *contender, const struct tune_stage_costs *costs)
{
    const struct plan *plan = contender->plan;
    struct simulation simulation;
    double idle = 0.0;

    TRY(compare_bound(contender, &costs->plan));
    TRY(plan_simulate(plan, &costs->plan, &simulation));
    contender->span_s = simulation.makespan;
    idle = 1.0 - load_of(plan, &costs->plan) / ((double)plan->shape.ranks * simulation.makespan);
    contender->bubble = idle > 0.0 ? idle : 0.0; /* sums round */
    simulation_release(&simulation);
    return STATUS_OK;
}

/* Whether the simulation would be the last one again. */
static bool has_same_costs(const struct tune_contender *contender,
                           const struct tune_stage_costs *costs)
{
    size_t count = TUNE_COSTS * (size_t)tune_contender_stages(contender);

    return contender->costs != NULL &&
           memcmp(contender->costs, costs->values, count * sizeof(*costs->values)) == 0 &&
           contender->layers.send_s == costs->layers.send_s &&
           contender->layers.message_s == costs->layers.message_s &&
           contender->layers.gather_s == costs->layers.gather_s &&
           contender->layers.action_s == costs->layers.action_s;
}

/* What a step takes beside the plan. */
static void add_rest(struct tune_contender *contender, const struct tune_layer_costs *costs)
{
    contender->layers = *costs;
    contender->spread = costs->spread;
    contender->step_s = contender->span_s + optimizer_s(contender, costs) + costs->outside_s;
}

enum status tune_contender_predict(struct tune_contender *contender,
                                   const struct tune_cost_table *table)
{
    struct tune_stage_costs costs;
    enum status status = tune_contender_costs(contender, table, &costs);

    if (status >= 0) {
        contender->quality = costs.quality;
    }
    if (status >= 0 && costs.quality != TUNE_UNKNOWN && !has_same_costs(contender, &costs)) {
        status = tune_contender_take_plan(contender);
        status = status >= 0 ? simulate(contender, &costs) : status;
        tune_contender_drop_plan(contender);
        free(contender->costs);
        contender->costs = costs.values;
        costs.values = NULL;
    }
    if (status >= 0 && costs.quality != TUNE_UNKNOWN) {
        add_rest(contender, &costs.layers);
    }
    tune_stage_costs_release(&costs);
    return status;
}

enum status tune_contender_measured(struct tune_contender *contender,
                                    const struct tune_measure *measure)
{
    size_t count = (size_t)contender->measured_steps + (size_t)measure->steps;
    double *all = realloc(contender->measured_s, count * sizeof(*all));

    if (all == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: %zu steps", count);
    }
    contender->measured_s = all;
    memcpy(all + contender->measured_steps, measure->step_s, (size_t)measure->steps * sizeof(*all));
    contender->measured_steps += measure->steps;
    contender->measured_median_s = tune_quantile(all, contender->measured_steps, 0.5);
    return STATUS_OK;
}

double tune_contender_step_s(const struct tune_contender *contender)
{
    return contender->measured_steps > 0 ? contender->measured_median_s : contender->step_s;
}

void tune_contender_release(struct tune_contender *contender)
{
    free(contender->candidate.layers);
    free(contender->candidate.plan_path);
    config_destroy(&contender->config);
    plan_destroy(&contender->plan);
    free(contender->costs);
    free(contender->measured_s);
    *contender = (struct tune_contender){.quality = TUNE_UNKNOWN};
}
