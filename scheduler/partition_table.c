#include "scheduler/partition_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COST_BITS 50

static enum status check_cost(const char *what, int32_t index, double cost)
{
    if (!(cost >= 0.0) || !isfinite(cost)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "partition: %s %d is %g, expected a finite number >= 0", what, index,
                           cost);
    }
    return STATUS_OK;
}

static enum status check_costs(const struct partition_problem *problem)
{
    int32_t i;

    TRY(check_cost("cost of the embedding, virtual stage", 0, problem->first_cost));
    TRY(check_cost("cost of the head, virtual stage", problem->ranks * problem->virtual_stages - 1,
                   problem->last_cost));
    for (i = 0; i < problem->layers; i++) {
        TRY(check_cost("cost of layer", i, problem->cost[i]));
    }
    for (i = 0; problem->speed != NULL && i < problem->ranks; i++) {
        if (!(problem->speed[i] > 0.0) || !isfinite(problem->speed[i])) {
            return status_fail(STATUS_ERR_REFUSED,
                               "partition: the speed of rank %d is %g, expected a finite number "
                               "> 0",
                               i, problem->speed[i]);
        }
    }
    return STATUS_OK;
}

/* Every sum of bytes that a split can have stays exact in a double. */
static enum status check_memory(const struct partition_problem *problem,
                                const struct partition_table *table)
{
    int64_t fixed = table->fixed[problem->layers];
    int64_t stash = table->stash[problem->layers];
    int32_t i;

    if (problem->first_bytes < 0 || problem->last_bytes < 0 ||
        problem->first_bytes > PARTITION_MOST_BYTES / 4 ||
        problem->last_bytes > PARTITION_MOST_BYTES / 4) {
        return status_fail(STATUS_ERR_REFUSED,
                           "partition: embedding and head keep %lld and %lld bytes, expected 0 to "
                           "%lld each",
                           (long long)problem->first_bytes, (long long)problem->last_bytes,
                           (long long)PARTITION_MOST_BYTES / 4);
    }
    for (i = 0; i < table->stages; i++) {
        int64_t held = problem->in_flight[i];

        if (held < 0 || (stash > 0 && held > (PARTITION_MOST_BYTES / 4 - fixed) / stash)) {
            return status_fail(STATUS_ERR_REFUSED,
                               "partition: virtual stage %d holds %lld micro-batches of %lld bytes "
                               "in flight, expected 0 to %lld bytes in all",
                               i, (long long)held, (long long)stash,
                               (long long)PARTITION_MOST_BYTES / 4);
        }
    }
    for (i = 0; i < problem->ranks; i++) {
        if (problem->memory_limit[i] < 0) {
            return status_fail(STATUS_ERR_REFUSED,
                               "partition: the memory limit of rank %d is %lld bytes, expected at "
                               "least 0",
                               i, (long long)problem->memory_limit[i]);
        }
    }
    return STATUS_OK;
}

/* Adds `bytes` to those so far. */
static enum status add_bytes(const char *what, int32_t layer, int64_t bytes, int64_t *sum)
{
    if (bytes < 0 || bytes > PARTITION_MOST_BYTES / 4 - *sum) {
        return status_fail(STATUS_ERR_REFUSED,
                           "partition: %s of layer %d are %lld bytes, expected 0 to %lld in all",
                           what, layer, (long long)bytes, (long long)PARTITION_MOST_BYTES / 4);
    }
    *sum += bytes;
    return STATUS_OK;
}

/* The largest power of two by which the sum of all costs stays under 2^COST_BITS: whole numbers
 * stay whole. */
static double scale_of(const struct partition_problem *problem)
{
    double sum = problem->first_cost + problem->last_cost;
    int exponent = 0;
    int32_t i;

    for (i = 0; i < problem->layers; i++) {
        sum += problem->cost[i];
    }
    if (sum == 0.0) {
        return 1.0;
    }
    (void)frexp(sum, &exponent);
    return ldexp(1.0, COST_BITS - exponent);
}

static void fill_costs(struct partition_table *table, const struct partition_problem *problem)
{
    double scale = scale_of(problem);
    int32_t i;

    table->first = llround(problem->first_cost * scale);
    table->last = llround(problem->last_cost * scale);
    for (i = 0; i < problem->layers; i++) {
        table->cost[i + 1] = table->cost[i] + llround(problem->cost[i] * scale);
    }
}

static enum status fill_memory(struct partition_table *table,
                               const struct partition_problem *problem)
{
    int64_t fixed = 0;
    int64_t stash = 0;
    int32_t i;

    for (i = 0; i < problem->layers; i++) {
        TRY(add_bytes("weights", i, problem->fixed_bytes[i], &fixed));
        TRY(add_bytes("stashes", i, problem->stash_bytes[i], &stash));
        table->fixed[i + 1] = fixed;
        table->stash[i + 1] = stash;
    }
    return check_memory(problem, table);
}

enum status partition_table_init(struct partition_table *table,
                                 const struct partition_problem *problem)
{
    size_t sums = (size_t)(problem->layers < 0 ? 0 : problem->layers) + 1;
    enum status status;

    memset(table, 0, sizeof(*table));
    if (problem->ranks < 1 || problem->virtual_stages < 1 || problem->layers < 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "partition: %d layers on %d ranks of %d chunks, expected at least 1 "
                           "rank of 1 chunk",
                           problem->layers, problem->ranks, problem->virtual_stages);
    }
    TRY(check_costs(problem));
    table->problem = problem;
    table->stages = problem->ranks * problem->virtual_stages;
    table->cost = calloc(3 * sums, sizeof(*table->cost));
    if (table->cost == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "partition: no memory for %d layers",
                           problem->layers);
    }
    table->fixed = table->cost + sums;
    table->stash = table->cost + 2 * sums;
    fill_costs(table, problem);
    status = problem->memory_limit != NULL ? fill_memory(table, problem) : STATUS_OK;
    if (status < 0) {
        partition_table_release(table);
    }
    return status;
}

void partition_table_release(struct partition_table *table)
{
    free(table->cost);
    memset(table, 0, sizeof(*table));
}

int32_t partition_rank_of(const struct partition_table *table, int32_t stage)
{
    const struct partition_problem *problem = table->problem;

    return problem->rank_of != NULL ? problem->rank_of[stage] : stage % problem->ranks;
}

int64_t partition_need(const struct partition_table *table, int32_t stage, int32_t from, int32_t to)
{
    const struct partition_problem *problem = table->problem;
    int64_t need;

    if (problem->memory_limit == NULL) {
        return 0;
    }
    need = table->fixed[to] - table->fixed[from] +
           problem->in_flight[stage] * (table->stash[to] - table->stash[from]);
    need += stage == 0 ? problem->first_bytes : 0;
    return need + (stage == table->stages - 1 ? problem->last_bytes : 0);
}

int64_t partition_units(const struct partition_table *table, int32_t stage, int32_t from,
                        int32_t to)
{
    int64_t units = table->cost[to] - table->cost[from];

    if (table->by_memory) {
        return partition_need(table, stage, from, to);
    }
    units += stage == 0 ? table->first : 0;
    return units + (stage == table->stages - 1 ? table->last : 0);
}

double partition_load(const struct partition_table *table, int32_t rank, int64_t units)
{
    const struct partition_problem *problem = table->problem;

    if (table->by_memory) {
        int64_t limit = problem->memory_limit[rank];

        return (double)(units - (limit < PARTITION_MOST_BYTES ? limit : PARTITION_MOST_BYTES));
    }
    return problem->speed == NULL ? (double)units : (double)units / problem->speed[rank];
}

bool partition_fits(const struct partition_table *table, int32_t rank, int64_t need)
{
    return table->by_memory || table->problem->memory_limit == NULL ||
           need <= table->problem->memory_limit[rank];
}

int64_t partition_loads(const struct partition_table *table, const int32_t *counts,
                        double *loads_out, int64_t *needs_out, int32_t *fullest_out)
{
    const struct partition_problem *problem = table->problem;
    int64_t worst = 0;
    int32_t from = 0;
    int32_t stage;
    int32_t rank;

    for (rank = 0; rank < problem->ranks; rank++) {
        loads_out[rank] = 0.0;
        needs_out[rank] = 0;
    }
    for (stage = 0; stage < table->stages; stage++) {
        rank = partition_rank_of(table, stage);
        loads_out[rank] += (double)partition_units(table, stage, from, from + counts[stage]);
        needs_out[rank] += partition_need(table, stage, from, from + counts[stage]);
        from += counts[stage];
    }
    *fullest_out = 0;
    for (rank = 0; rank < problem->ranks; rank++) {
        loads_out[rank] = partition_load(table, rank, (int64_t)loads_out[rank]);
        if (problem->memory_limit != NULL &&
            needs_out[rank] - problem->memory_limit[rank] > worst) {
            worst = needs_out[rank] - problem->memory_limit[rank];
            *fullest_out = rank;
        }
    }
    return worst;
}
