#include "scheduler/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/graph.h"
#include "scheduler/large.h"
#include "scheduler/plan_index.h"
#include "scheduler/stopwatch.h"

double plan_action_cost(const struct plan_costs *costs, const struct action *action)
{
    switch ((enum action_kind)action->kind) {
    case ACTION_F:
        return costs->F[action->virtual_stage];
    case ACTION_I:
        return costs->I[action->virtual_stage];
    case ACTION_W:
        return costs->W[action->virtual_stage];
    case ACTION_B:
        return costs->I[action->virtual_stage] + costs->W[action->virtual_stage];
    case ACTION_RECV: {
        const double *into = costs->message_into[action->direction];

        return into != NULL ? into[action->virtual_stage] : costs->message;
    }
    case ACTION_SEND:
        return costs->send;
    case ACTION_GATHER:
        return costs->gather;
    default:
        return 0.0;
    }
}

static enum status simulation_init(struct simulation *simulation, const struct plan *plan,
                                   const struct plan_index *index)
{
    size_t ranks = (size_t)plan->shape.ranks;
    size_t nodes = (size_t)index->first[ranks];
    size_t rank;

    memset(simulation, 0, sizeof(*simulation));
    simulation->times = large_alloc(2 * nodes, sizeof(*simulation->times));
    simulation->begin = calloc(2 * ranks, sizeof(*simulation->begin));
    if (simulation->times == NULL || simulation->begin == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "simulation: no memory for %zu actions", nodes);
    }
    simulation->end = simulation->begin + ranks;
    for (rank = 0; rank < ranks; rank++) {
        simulation->begin[rank] = simulation->times + index->first[rank];
        simulation->end[rank] = simulation->times + nodes + index->first[rank];
    }
    return STATUS_OK;
}

/* Sums up the compute actions of each rank. */
static void sum_up(struct simulation *simulation, const struct plan *plan,
                   const struct plan_costs *costs)
{
    double span = 0.0;
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        const struct plan_line *line = &plan->lines[rank];
        double load = 0.0;
        double first = -1.0;
        double last = 0.0;

        for (i = 0; i < line->count; i++) {
            if (action_is_compute((enum action_kind)line->actions[i].kind)) {
                first = first < 0.0 ? simulation->begin[rank][i] : first;
                last = simulation->end[rank][i];
                load += plan_action_cost(costs, &line->actions[i]);
            }
        }
        simulation->makespan = last > simulation->makespan ? last : simulation->makespan;
        simulation->ideal = load > simulation->ideal ? load : simulation->ideal;
        span = first >= 0.0 && last - first > span ? last - first : span;
    }
    simulation->bubble = simulation->makespan - simulation->ideal;
    simulation->span_bubble = span - simulation->ideal;
}

static enum status simulate(const struct plan *plan, const struct plan_index *index,
                            const struct plan_costs *costs, struct simulation *simulation)
{
    struct graph graph = {.plan = plan, .index = index, .rules = {.unbounded = costs->unbounded}};
    struct stopwatch stopwatch = {
        .graph = &graph, .costs = costs, .begin = simulation->begin[0], .end = simulation->end[0]};
    struct graph_walk walk;
    bool cyclic;

    TRY(graph_walk_run(&graph, stopwatch_visit, &stopwatch, &walk));
    cyclic = walk.cyclic;
    graph_walk_release(&walk);
    if (cyclic) {
        return status_fail(STATUS_ERR_REFUSED,
                           "simulation: the plan deadlocks; validation names the cycle");
    }
    sum_up(simulation, plan, costs);
    return STATUS_OK;
}

enum status plan_simulate_indexed(const struct plan *lowered, const struct plan_index *index,
                                  const struct plan_costs *costs, struct simulation *simulation_out)
{
    struct simulation simulation = {.times = NULL};
    enum status status;

    TRY_OR(fail, status, simulation_init(&simulation, lowered, index));
    TRY_OR(fail, status, simulate(lowered, index, costs, &simulation));
    *simulation_out = simulation;
    return STATUS_OK;

fail:
    simulation_release(&simulation);
    return status;
}

enum status plan_simulate(const struct plan *lowered, const struct plan_costs *costs,
                          struct simulation *simulation_out)
{
    struct plan_index index;
    enum status status;

    if (!lowered->lowered) {
        return status_fail(STATUS_ERR_INVALID, "simulation: the plan is not lowered yet");
    }
    TRY(plan_index_init(&index, lowered));
    status = plan_simulate_indexed(lowered, &index, costs, simulation_out);
    plan_index_release(&index);
    return status;
}

void simulation_release(struct simulation *simulation)
{
    /* begin and end are two halves of one table. */
    free(simulation->times);
    free(simulation->begin);
    memset(simulation, 0, sizeof(*simulation));
}

enum status plan_costs_uniform(const struct plan *plan, double F, double I, double W,
                               double message, struct plan_costs *costs_out)
{
    size_t stages = (size_t)plan_stages(plan);
    double v = (double)plan->shape.virtual_stages * (double)plan_slices(plan);
    double *table = malloc(3 * stages * sizeof(*table));
    size_t s;

    if (table == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "costs: no memory for %zu virtual stages", stages);
    }
    for (s = 0; s < stages; s++) {
        table[s] = F / v;
        table[stages + s] = I / v;
        table[2 * stages + s] = W / v;
    }
    *costs_out = (struct plan_costs){
        .F = table, .I = table + stages, .W = table + 2 * stages, .message = message};
    return STATUS_OK;
}

enum status plan_costs_copy(const struct plan_costs *costs, int32_t stages,
                            struct plan_costs *copy_out)
{
    const double *from[PLAN_COSTS_ARRAYS] = {
        costs->F, costs->I, costs->W, costs->message_into[LANE_F], costs->message_into[LANE_B]};
    size_t count = (size_t)stages;
    double *table = malloc(PLAN_COSTS_ARRAYS * count * sizeof(*table));

    if (table == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "costs: no memory for %zu virtual stages", count);
    }
    for (size_t i = 0; i < PLAN_COSTS_ARRAYS; i++) {
        for (size_t s = 0; s < count; s++) {
            table[i * count + s] = from[i] != NULL ? from[i][s] : costs->message;
        }
    }
    *copy_out = *costs;
    copy_out->F = table;
    copy_out->I = table + count;
    copy_out->W = table + 2 * count;
    copy_out->message_into[LANE_F] = table + 3 * count;
    copy_out->message_into[LANE_B] = table + 4 * count;
    return STATUS_OK;
}

void plan_costs_release(struct plan_costs *costs)
{
    free((void *)costs->F);
    memset(costs, 0, sizeof(*costs));
}

enum status plan_peaks(const struct plan *plan, bool w_holds, double *peak_out)
{
    enum action_kind last = w_holds ? ACTION_W : ACTION_I;
    bool trains = plan_trains(plan);
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        int32_t held = 0; /* stashes of chunks */
        int32_t peak = 0;

        for (i = 0; i < plan->lines[rank].count; i++) {
            enum action_kind kind = (enum action_kind)plan->lines[rank].actions[i].kind;

            held += kind == ACTION_F;
            peak = held > peak ? held : peak;
            held -= trains ? kind == ACTION_B || kind == last : kind == ACTION_F;
        }
        peak_out[rank] = (double)peak / (double)(plan->shape.virtual_stages * plan_slices(plan));
    }
    return STATUS_OK;
}

enum status plan_idle_share(const struct plan *lowered, const struct plan_costs *costs,
                            double *share_out)
{
    struct simulation simulation = {.makespan = 0.0};
    double busy = 0.0;
    double share = 0.0;

    TRY(plan_simulate(lowered, costs, &simulation));
    for (int32_t stage = 0; stage < plan_stages(lowered); stage++) {
        busy += lowered->shape.microbatches * (costs->F[stage] + costs->I[stage] + costs->W[stage]);
    }
    if (simulation.makespan > 0.0) {
        share = 1.0 - busy / (lowered->shape.ranks * simulation.makespan);
        /* Where nothing is idle, rounding may leave less than nothing. */
        share = share > 0.0 ? share : 0.0;
    }
    simulation_release(&simulation);
    *share_out = share;
    return STATUS_OK;
}
