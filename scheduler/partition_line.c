/* partition_line -- the best split where each virtual stage stands alone on its rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/partition_table.h"

/* By what is decided between splits with the same two largest loads. */
struct line_rest {
    double bytes;
    double squares;
};

/* Tables of [stages + 1][layers + 1]: the first `s` virtual stages hold the first `i` layers. */
struct line_search {
    const struct partition_table *table;
    size_t width;           /* layers + 1 */
    double (*top)[2];       /* owns; the two largest loads of the best split */
    struct line_rest *rest; /* owns; [2] of them: without a load above the second, and with one */
    int32_t *cut;           /* owns; the same: where the last virtual stage begins, -1: nowhere */
    double limit[2];        /* the two largest loads that a split may have */
};

static bool line_search_init(struct line_search *search, const struct partition_table *table)
{
    size_t width = (size_t)table->problem->layers + 1;
    size_t cells = ((size_t)table->stages + 1) * width;

    *search = (struct line_search){.table = table, .width = width};
    search->top = malloc(cells * sizeof(*search->top));
    search->rest = malloc(2 * cells * sizeof(*search->rest));
    search->cut = malloc(2 * cells * sizeof(*search->cut));
    return search->top != NULL && search->rest != NULL && search->cut != NULL;
}

static void line_search_release(struct line_search *search)
{
    free(search->top);
    free(search->rest);
    free(search->cut);
}

/* The load of layers from … to-1 on `stage`; INFINITY where they do not fit. */
static double load_at(const struct partition_table *table, int32_t stage, int32_t from, int32_t to)
{
    int32_t rank = partition_rank_of(table, stage);

    if (!partition_fits(table, rank, partition_need(table, stage, from, to))) {
        return INFINITY;
    }
    return partition_load(table, rank, partition_units(table, stage, from, to));
}

/* The two largest loads of the best split of layers 0 … to-1 whose last run is on `stage`. A run more
 * never turns the order of two splits before it around, so that the best for each length is enough. */
static void find_top_of(struct line_search *search, int32_t stage, int32_t to)
{
    double(*before)[2] = search->top + (size_t)stage * search->width;
    double *best = before[search->width + (size_t)to];
    int32_t from;

    best[0] = INFINITY;
    best[1] = INFINITY;
    for (from = 0; from <= to; from++) {
        double top[2] = {before[from][0], before[from][1]};

        partition_insert(top, load_at(search->table, stage, from, to));
        if (top[0] < best[0] || (top[0] == best[0] && top[1] < best[1])) {
            best[0] = top[0];
            best[1] = top[1];
        }
    }
}

static void find_top(struct line_search *search)
{
    int32_t layers = search->table->problem->layers;
    int32_t stage;
    int32_t to;

    for (to = 0; to <= layers; to++) {
        search->top[to][0] = to == 0 ? -INFINITY : INFINITY;
        search->top[to][1] = -INFINITY;
    }
    for (stage = 0; stage < search->table->stages; stage++) {
        for (to = 0; to <= layers; to++) {
            find_top_of(search, stage, to);
        }
    }
}

/* The run from … to-1 on `stage` behind the best split before it; kept where it is the best for
 * its end. A later begin wins a tie, so that the last ones have fewer. */
static void try_run(struct line_search *search, int32_t stage, int32_t from, int32_t to)
{
    const int64_t *bytes = search->table->problem->boundary_bytes;
    double load = load_at(search->table, stage, from, to);
    bool above = load > search->limit[1];
    int with;

    if (load > search->limit[0]) {
        return;
    }
    for (with = above ? 1 : 0; with < 2; with++) {
        size_t before =
            2 * ((size_t)stage * search->width + (size_t)from) + (size_t)(above ? 0 : with);
        size_t at = 2 * ((size_t)(stage + 1) * search->width + (size_t)to) + (size_t)with;
        struct line_rest rest;

        if (search->cut[before] < 0) {
            continue;
        }
        rest = search->rest[before];
        rest.bytes += stage > 0 && bytes != NULL ? (double)bytes[from] : 0.0;
        rest.squares += partition_square(load);
        if (search->cut[at] < 0 || rest.bytes < search->rest[at].bytes ||
            (rest.bytes == search->rest[at].bytes && rest.squares <= search->rest[at].squares)) {
            search->rest[at] = rest;
            search->cut[at] = from;
        }
    }
}

static void find_rest(struct line_search *search)
{
    int32_t layers = search->table->problem->layers;
    size_t cells = ((size_t)search->table->stages + 1) * search->width;
    int32_t stage;
    int32_t to;
    int32_t from;

    memset(search->cut, 0xff, 2 * cells * sizeof(*search->cut));
    search->cut[0] = 0;
    search->rest[0] = (struct line_rest){.bytes = 0.0};
    for (stage = 0; stage < search->table->stages; stage++) {
        for (to = 0; to <= layers; to++) {
            for (from = 0; from <= to; from++) {
                try_run(search, stage, from, to);
            }
        }
    }
}

/* Reads the split off, from its end. */
static bool take_counts(const struct line_search *search, int32_t *counts_out)
{
    size_t with = 1;
    int32_t to = search->table->problem->layers;
    int32_t stage = search->table->stages;

    while (stage > 0) {
        size_t row = (size_t)stage * search->width + (size_t)to;
        int32_t from;

        if (stage == search->table->stages && search->cut[2 * row + 1] < 0) {
            with = 0;
        }
        from = search->cut[2 * row + with];
        if (from < 0) {
            return false;
        }
        stage--;
        if (load_at(search->table, stage, from, to) > search->limit[1]) {
            with = 0;
        }
        counts_out[stage] = to - from;
        to = from;
    }
    return true;
}

enum status partition_line_search(const struct partition_table *table, int32_t *counts_out,
                                  bool *found_out)
{
    struct line_search search;
    enum status status = STATUS_OK;

    *found_out = false;
    if (line_search_init(&search, table)) {
        const double *best;

        find_top(&search);
        best = search.top[(size_t)table->stages * search.width + search.width - 1];
        if (best[0] < INFINITY) {
            search.limit[0] = best[0];
            search.limit[1] = best[1];
            find_rest(&search);
            *found_out = take_counts(&search, counts_out);
        }
    } else {
        status = status_fail(STATUS_ERR_NO_MEMORY,
                             "partition: no memory for %d layers on %d virtual stages",
                             table->problem->layers, table->stages);
    }
    line_search_release(&search);
    return status;
}
