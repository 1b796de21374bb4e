#include "scheduler/search.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/generate.h"
#include "scheduler/search_anneal.h"
#include "scheduler/search_bound.h"
#include "scheduler/search_clock.h"
#include "scheduler/search_starts.h"

/* The heat of the first round, which goes through all starts, and of the rounds that the best one of
 * them gets. */
#define FIRST_HEAT 0.25
#define LATER_HEAT 0.1
#define LATER      2

struct searching {
    const struct search_options *options;
    struct search_space *spaces; /* owns */
    double *bounds;              /* owns; by space */
    int32_t count;
    struct search_starts starts;
};

static enum status searching_init(struct searching *searching,
                                  const struct search_variant *variants, int32_t count)
{
    int32_t i;

    for (i = 0; i < count; i++) {
        struct plan_costs costs = variants[i].costs;

        costs.unbounded = false;
        TRY(search_space_init(&searching->spaces[i], &variants[i].shape, variants[i].rank_of,
                              &costs, &variants[i].memory));
        searching->count++;
        TRY(search_bound(&searching->spaces[i], &searching->bounds[i]));
    }
    return STATUS_OK;
}

static void searching_release(struct searching *searching)
{
    int32_t i;

    search_starts_release(&searching->starts);
    for (i = 0; searching->spaces != NULL && i < searching->count; i++) {
        search_space_release(&searching->spaces[i]);
    }
    free(searching->spaces);
    free(searching->bounds);
}

/* Changes one start little by little. */
static enum status improve(struct searching *searching, struct search_start *start, double heat,
                           int64_t evaluations, uint64_t round)
{
    struct search_anneal anneal = {.seed = searching->options->seed + round,
                                   .evaluations = evaluations,
                                   .bound = searching->bounds[start->space],
                                   .heat = heat};
    double before = start->makespan;
    int64_t used = 0;

    if (evaluations < 2 || start->makespan <= anneal.bound) {
        return STATUS_OK;
    }
    TRY(search_anneal_run(&anneal, &start->order, &start->makespan, &used));
    searching->starts.evaluations += used;
    if (start->makespan < before && strstr(start->origin, ", changed") == NULL) {
        size_t length = strlen(start->origin);

        (void)snprintf(start->origin + length, sizeof(start->origin) - length, ", changed");
    }
    return STATUS_OK;
}

static struct search_start *best_start(struct searching *searching)
{
    struct search_start *best = &searching->starts.start[0];
    int32_t i;

    for (i = 1; i < searching->starts.count; i++) {
        if (searching->starts.start[i].makespan < best->makespan) {
            best = &searching->starts.start[i];
        }
    }
    return best;
}

/* Half of what is left goes to all starts, half to the one that is best then. */
static enum status improve_all(struct searching *searching)
{
    struct search_starts *starts = &searching->starts;
    int64_t left = searching->options->evaluations - starts->evaluations;
    int32_t i;

    if (starts->count == 0) {
        return STATUS_OK;
    }
    for (i = 0; i < starts->count; i++) {
        TRY(improve(searching, &starts->start[i], FIRST_HEAT, left / 2 / starts->count,
                    (uint64_t)i));
    }
    left = searching->options->evaluations - starts->evaluations;
    for (i = 0; i < LATER; i++) {
        TRY(improve(searching, best_start(searching), LATER_HEAT, left / LATER,
                    (uint64_t)(SEARCH_STARTS_MOST + i)));
    }
    return STATUS_OK;
}

static enum status refuse(const struct searching *searching)
{
    const struct search_starts *starts = &searching->starts;
    const char *limit_name = searching->options->limit_name;

    if (starts->least_excess == INT64_MAX || starts->least_excess <= 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "schedule search: %lld orders were tried, and none ends",
                           (long long)starts->evaluations);
    }
    return status_fail(
        STATUS_ERR_REFUSED,
        "schedule search: nothing fits into %s: in the nearest of %lld orders rank "
        "%d needs %lld, its limit is %lld; smaller micro-batches, recompute or fewer "
        "layers a rank need less",
        limit_name != NULL ? limit_name : "memory", (long long)starts->evaluations, starts->fullest,
        (long long)starts->need, (long long)(starts->need - starts->least_excess));
}

static enum status take_result(struct searching *searching, struct search_result *result)
{
    const struct search_named *named = &searching->starts.named;
    const struct search_start *best = searching->starts.count > 0 ? best_start(searching) : NULL;
    int32_t i;

    *result = (struct search_result){.bound = INFINITY,
                                     .named_makespan = named->makespan,
                                     .evaluations = searching->starts.evaluations};
    for (i = 0; i < searching->count; i++) {
        result->bound = searching->bounds[i] < result->bound ? searching->bounds[i] : result->bound;
    }
    if (named->makespan < SEARCH_NEVER) {
        search_named_print(&named->shape, result->named, sizeof(result->named));
    }
    if (best == NULL && named->makespan >= SEARCH_NEVER) {
        return refuse(searching);
    }
    if (best == NULL || named->makespan <= best->makespan) {
        result->makespan = named->makespan;
        result->variant = named->space;
        (void)snprintf(result->origin, sizeof(result->origin), "%s", result->named);
        TRY(plan_generate(&named->shape, &result->plan));
    } else {
        result->makespan = best->makespan;
        result->variant = best->space;
        (void)snprintf(result->origin, sizeof(result->origin), "%s", best->origin);
        TRY(search_order_plan(&best->order, &result->plan));
    }
    /* The bound adds up in another order than a simulation. */
    result->bound = result->bound < result->makespan ? result->bound : result->makespan;
    result->gap = result->bound > 0.0 ? result->makespan / result->bound - 1.0 : 0.0;
    return STATUS_OK;
}

static enum status run(struct searching *searching, const struct search_variant *variants,
                       int32_t count, struct search_result *result_out)
{
    TRY(searching_init(searching, variants, count));
    TRY(search_starts_make(&searching->starts, searching->spaces, count,
                           searching->options->evaluations));
    TRY(improve_all(searching));
    return take_result(searching, result_out);
}

enum status search_run(const struct search_variant *variants, int32_t count,
                       const struct search_options *options, struct search_result *result_out)
{
    struct searching searching = {.options = options};
    enum status status;

    if (count < 1 || options->evaluations < 1) {
        return status_fail(STATUS_ERR_REFUSED,
                           "schedule search: %d variants and %lld evaluations, expected at least 1 "
                           "of each",
                           count, (long long)options->evaluations);
    }
    searching.spaces = calloc((size_t)count, sizeof(*searching.spaces));
    searching.bounds = calloc((size_t)count, sizeof(*searching.bounds));
    status = searching.spaces != NULL && searching.bounds != NULL
                 ? run(&searching, variants, count, result_out)
                 : status_fail(STATUS_ERR_NO_MEMORY, "schedule search: no memory for %d variants",
                               count);
    searching_release(&searching);
    return status;
}

void search_result_release(struct search_result *result)
{
    plan_destroy(&result->plan);
    memset(result, 0, sizeof(*result));
}
