/*
 * cost_table -- what layers, embedding and head cost, from the jobs that measured them.
 *
 * A job measures a point: a grid, a micro-batch size, a kind of recompute. Its virtual stages have
 * different numbers of layers, the first one the embedding besides and the last one the head, so
 * that with three of them or more all three costs follow: the layer's by least squares over those
 * in the middle, the two others are what the ends have more. Costs are those of the world at work:
 * every rank computes meanwhile, as it will in the run.
 *
 * Between two measured micro-batch sizes a cost is alpha + beta·b; beyond them, on other grids and
 * with other recompute it is a guess, good enough to choose what to measure next, and never ranked.
 *
 * What a step takes beside its plan belongs to the grid: the optimizer by parameters of the fullest
 * rank, and all else (sums over replicas, round trip, embedding) as it is.
 */
#ifndef STAGES_TUNE_COST_TABLE_H
#define STAGES_TUNE_COST_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/model/recompute.h"
#include "stages/tune/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune_point {
    int64_t pp;
    int64_t tp;
    int64_t dp;
    int64_t micro_batch_size;
    enum recompute recompute;
};

bool tune_point_equal(const struct tune_point *left, const struct tune_point *right);

/* Seconds a micro-batch, or a step. */
struct tune_layer_costs {
    double layer[TUNE_COSTS]; /* F, I, W of one layer */
    double first[TUNE_COSTS]; /* of the embedding */
    double last[TUNE_COSTS];  /* of final norm and head */
    double send_s;
    double message_s;
    double gather_s;
    double action_s;    /* between what an action waits for and its begin */
    double optimizer_s; /* with `parameters` on the fullest rank */
    double parameters;
    double outside_s;
    double spread; /* what the 90th percentile of what was measured has more, relative */
};

/* How well a cost is known, best first. */
enum tune_quality {
    TUNE_MEASURED,
    TUNE_INTERPOLATED,
    TUNE_GUESSED,
    TUNE_UNKNOWN
};

/* Solves for the three from a traced measure whose virtual stage s has layers[s] of them. `parameters`
 * is the caller's to set. STATUS_ERR_REFUSED where it has fewer than three virtual stages, or none
 * in the middle has a layer. */
enum status tune_layer_costs_solve(const struct tune_measure *measure, const int64_t *layers,
                                   struct tune_layer_costs *costs_out);

struct tune_cost_entry {
    struct tune_point point;
    struct tune_layer_costs costs;
};

/* Zero is an empty table. */
struct tune_cost_table {
    struct tune_cost_entry *entries; /* owns */
    size_t count;
};

/* Instead of what the point had. */
enum status tune_cost_table_put(struct tune_cost_table *table, const struct tune_point *point,
                                const struct tune_layer_costs *costs);

/* The costs of a point, and how they are known. TUNE_UNKNOWN, and nothing written, for an empty table. */
enum tune_quality tune_cost_table_find(const struct tune_cost_table *table,
                                       const struct tune_point *point,
                                       struct tune_layer_costs *costs_out);

/* Safe on an empty table, and twice. */
void tune_cost_table_release(struct tune_cost_table *table);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_COST_TABLE_H */
