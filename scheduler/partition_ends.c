/*
 * partition_ends -- the best split on a V, consumed from both ends of the model.
 *
 * Rank r takes the next layers from the left and the next from the right, so that a state is (layers
 * taken on the left, on the right). With more layers gone the rest is never harder: every later run
 * can be cut shorter. So one number a (rank, left) says everything about a bound on the loads: the
 * least right with which the rest can be done. The least bound is found by halving.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/partition_table.h"

#define NOWHERE INT32_MAX

/* `above` loads of ranks may still exceed limit[1], up to limit[0]: 0 or 1. */
struct ends_search {
    const struct partition_table *table;
    int32_t layers;
    int32_t ranks;
    double limit[2];
    double below; /* the largest load up to limit[1] that was met, and the least above it */
    double above;
    int32_t *least; /* owns; [ranks + 1][layers + 1][above] */
};

/* What rank `rank` takes: layers from[0] … to[0]-1 and the from[1]-th … to[1]-1-th counted from the
 * end of the model. */
struct ends_step {
    int32_t from[2];
    int32_t to[2];
};

static int32_t *least_at(const struct ends_search *search, int32_t rank, int32_t left, int above)
{
    return &search->least[2 * ((size_t)rank * (size_t)(search->layers + 1) + (size_t)left) +
                          (size_t)above];
}

/* INFINITY where it does not fit. */
static double load_of(const struct ends_search *search, int32_t rank, const struct ends_step *step)
{
    const struct partition_table *table = search->table;
    int32_t back = table->stages - 1 - rank;
    int32_t from = search->layers - step->to[1];
    int32_t to = search->layers - step->from[1];

    if (!partition_fits(table, rank,
                        partition_need(table, rank, step->from[0], step->to[0]) +
                            partition_need(table, back, from, to))) {
        return INFINITY;
    }
    return partition_load(table, rank,
                          partition_units(table, rank, step->from[0], step->to[0]) +
                              partition_units(table, back, from, to));
}

/* Whether the load is within limit[1 - use]. */
static bool is_within(struct ends_search *search, double load, int use)
{
    if (load > search->limit[1]) {
        search->above = load < search->above ? load : search->above;
    } else {
        search->below = load > search->below ? load : search->below;
    }
    return load <= search->limit[1 - use];
}

/* The least right from which rank `rank` can go on, left at step->from[0] and step->to[0] and right
 * up to step->to[1]; NOWHERE where there is none. */
static int32_t least_right(struct ends_search *search, int32_t rank, struct ends_step step, int use)
{
    int32_t low = 0;
    int32_t high = step.to[1];

    step.from[1] = high;
    if (!is_within(search, load_of(search, rank, &step), use)) {
        return NOWHERE;
    }
    while (low < high) {
        int32_t middle = low + (high - low) / 2;

        step.from[1] = middle;
        if (!is_within(search, load_of(search, rank, &step), use)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int32_t least_from(struct ends_search *search, int32_t rank, int32_t left, int above)
{
    int32_t best = NOWHERE;
    int32_t to;

    for (to = left; to <= search->layers; to++) {
        int use;

        for (use = 0; use <= above; use++) {
            int32_t next = *least_at(search, rank + 1, to, above - use);
            struct ends_step step = {.from = {left, 0}, .to = {to, next}};

            if (next != NOWHERE) {
                int32_t right = least_right(search, rank, step, use);

                best = right < best ? right : best;
            }
        }
    }
    return best;
}

/* Whether a split keeps the limits; fills `least`. */
static bool probe(struct ends_search *search, double first, double second)
{
    int32_t rank;
    int32_t left;
    int above;

    search->limit[0] = first;
    search->limit[1] = second;
    for (left = 0; left <= search->layers; left++) {
        *least_at(search, search->ranks, left, 0) = search->layers - left;
        *least_at(search, search->ranks, left, 1) = search->layers - left;
    }
    for (rank = search->ranks - 1; rank >= 0; rank--) {
        for (left = 0; left <= search->layers; left++) {
            for (above = 0; above < 2; above++) {
                *least_at(search, rank, left, above) = least_from(search, rank, left, above);
            }
        }
    }
    return *least_at(search, 0, 0, 1) == 0;
}

/* What the ranks that are left would have each, were it the same. */
static double share_of(const struct ends_search *search, const struct ends_step *step, int32_t rank)
{
    int64_t units = partition_units(search->table, search->ranks, step->from[0],
                                    search->layers - step->from[1]);

    return partition_load(search->table, rank, units / (search->ranks - rank));
}

/* By how much the load of one chunk of the rank exceeds that of the other. */
static int64_t unevenness_of(const struct ends_search *search, int32_t rank,
                             const struct ends_step *step)
{
    const struct partition_table *table = search->table;
    int64_t ahead = partition_units(table, rank, step->from[0], step->to[0]);
    int64_t back = partition_units(table, table->stages - 1 - rank, search->layers - step->to[1],
                                   search->layers - step->from[1]);

    return ahead > back ? ahead - back : back - ahead;
}

/* What rank `rank` takes so that the rest can be done, as near to `share` as that allows, and of what
 * is as near the chunks that are most alike. Returns how many loads above the second the rest has
 * left. */
static int choose_step(const struct ends_search *search, int32_t rank, int above, double share,
                       struct ends_step *step)
{
    struct ends_step best = *step;
    double nearest = INFINITY;
    int64_t evenest = INT64_MAX;
    int left_over = above;

    for (step->to[0] = step->from[0]; step->to[0] <= search->layers - step->from[1];
         step->to[0]++) {
        for (step->to[1] = step->from[1]; step->to[1] <= search->layers - step->to[0];
             step->to[1]++) {
            double load = load_of(search, rank, step);
            double off = fabs(load - share);
            int64_t uneven = unevenness_of(search, rank, step);
            int rest = above - (load > search->limit[1] ? 1 : 0);

            if (load <= search->limit[0] && rest >= 0 &&
                step->to[1] >= *least_at(search, rank + 1, step->to[0], rest) &&
                (off < nearest || (off == nearest && uneven <= evenest))) {
                nearest = off;
                evenest = uneven;
                best = *step;
                left_over = rest;
            }
        }
    }
    *step = best;
    return left_over;
}

/* Reads a split off the last probe, which found one. */
static void take_counts(const struct ends_search *search, int32_t *counts_out)
{
    const struct partition_table *table = search->table;
    struct ends_step step = {.from = {0, 0}};
    int above = 1;
    int32_t rank;

    for (rank = 0; rank < search->ranks; rank++) {
        above = choose_step(search, rank, above, share_of(search, &step, rank), &step);
        counts_out[rank] = step.to[0] - step.from[0];
        counts_out[table->stages - 1 - rank] = step.to[1] - step.from[1];
        step.from[0] = step.to[0];
        step.from[1] = step.to[1];
    }
}

/* The least `limit` for which probe(limit, limit) holds, or probe(*first, limit) where `first` is given.
 * It does for `high`, and not below `low`. A limit between two loads decides as the lower one does, so
 * that only loads that were met need be tried. */
static double halve(struct ends_search *search, const double *first, double low, double high)
{
    while (low < high) {
        double middle = low + (high - low) / 2.0;
        bool found;

        search->below = low;
        search->above = high;
        found = first != NULL ? probe(search, *first, middle) : probe(search, middle, middle);
        if (found) {
            high = search->below;
        } else {
            low = search->above;
        }
    }
    return high;
}

static void search_ends(struct ends_search *search, int32_t *counts_out, bool *found_out)
{
    double everything = (double)PARTITION_MOST_BYTES;
    double floor = search->table->by_memory ? -everything : 0.0;
    const double *speed = search->table->problem->speed;
    double slowest = 1.0;
    double first;
    double second;
    int32_t rank;

    for (rank = 0; speed != NULL && rank < search->ranks; rank++) {
        slowest = speed[rank] < slowest ? speed[rank] : slowest;
    }
    everything /= slowest;
    *found_out = probe(search, everything, everything);
    if (!*found_out) {
        return;
    }
    first = halve(search, NULL, floor, everything);
    second = halve(search, &first, floor, first);
    (void)probe(search, first, second);
    take_counts(search, counts_out);
}

enum status partition_ends_search(const struct partition_table *table, int32_t *counts_out,
                                  bool *found_out)
{
    struct ends_search search = {
        .table = table, .layers = table->problem->layers, .ranks = table->problem->ranks};

    search.least =
        calloc(2 * ((size_t)search.ranks + 1) * ((size_t)search.layers + 1), sizeof(*search.least));
    if (search.least == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "partition: no memory for %d layers on %d ranks",
                           search.layers, search.ranks);
    }
    search_ends(&search, counts_out, found_out);
    free(search.least);
    return STATUS_OK;
}
