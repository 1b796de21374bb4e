#include "stages/tune/cost_table.h"

#include <stdlib.h>

#include "base/check.h"

#define LEAST_STAGES 3

bool tune_point_equal(const struct tune_point *left, const struct tune_point *right)
{
    return left->pp == right->pp && left->tp == right->tp && left->dp == right->dp &&
           left->micro_batch_size == right->micro_batch_size && left->recompute == right->recompute;
}

static double at_least_zero(double value)
{
    return value > 0.0 ? value : 0.0;
}

/* (p90 - typical) / typical over all virtual stages and costs. */
static double spread_of(const struct tune_measure *measure)
{
    double typical = 0.0;
    double p90 = 0.0;

    for (int c = 0; c < TUNE_COSTS; c++) {
        for (int32_t s = 0; s < measure->stages; s++) {
            typical += measure->typical[c][s];
            p90 += measure->p90[c][s];
        }
    }
    return typical > 0.0 ? at_least_zero(p90 - typical) / typical : 0.0;
}

enum status tune_layer_costs_solve(const struct tune_measure *measure, const int64_t *layers,
                                   struct tune_layer_costs *costs_out)
{
    int32_t last = measure->stages - 1;
    double squares = 0.0;

    for (int32_t s = 1; s < last; s++) {
        squares += (double)layers[s] * (double)layers[s];
    }
    if (measure->stages < LEAST_STAGES || squares == 0.0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: costs of a layer, embedding and head need %d virtual stages "
                           "with a layer in the middle, found %d",
                           LEAST_STAGES, measure->stages);
    }
    *costs_out = (struct tune_layer_costs){
        .send_s = measure->send_s,
        .message_s = measure->message_s,
        .action_s = measure->action_s,
        .gather_s = measure->gather_s,
        .optimizer_s = measure->optimizer_s,
        .outside_s = measure->outside_s,
        .spread = spread_of(measure),
    };
    for (int c = 0; c < TUNE_COSTS; c++) {
        const double *chunk = measure->typical[c];
        double product = 0.0;

        for (int32_t s = 1; s < last; s++) {
            product += (double)layers[s] * chunk[s];
        }
        costs_out->layer[c] = product / squares;
        costs_out->first[c] = at_least_zero(chunk[0] - (double)layers[0] * costs_out->layer[c]);
        costs_out->last[c] =
            at_least_zero(chunk[last] - (double)layers[last] * costs_out->layer[c]);
    }
    return STATUS_OK;
}

enum status tune_cost_table_put(struct tune_cost_table *table, const struct tune_point *point,
                                const struct tune_layer_costs *costs)
{
    struct tune_cost_entry *entries = NULL;

    for (size_t i = 0; i < table->count; i++) {
        if (tune_point_equal(&table->entries[i].point, point)) {
            table->entries[i].costs = *costs;
            return STATUS_OK;
        }
    }
    entries = realloc(table->entries, (table->count + 1) * sizeof(*entries));
    if (entries == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: costs of %zu points",
                           table->count + 1);
    }
    table->entries = entries;
    table->entries[table->count++] = (struct tune_cost_entry){.point = *point, .costs = *costs};
    return STATUS_OK;
}

/* How far `other` is from what is asked for, its micro-batch size apart; 0: as asked. */
static int distance(const struct tune_point *point, const struct tune_point *other)
{
    bool same_grid = point->pp == other->pp && point->tp == other->tp && point->dp == other->dp;

    return (point->recompute != other->recompute ? 1 : 0) + (point->tp != other->tp ? 4 : 0) +
           (same_grid ? 0 : 2);
}

static bool alike(const struct tune_point *left, const struct tune_point *right)
{
    return distance(left, right) == 0;
}

/* The entries of `family` with the sizes next to `size`, from below (or equal) and from above; NULL
 * where there is none. */
static void find_neighbours(const struct tune_cost_table *table, const struct tune_point *family,
                            int64_t size, const struct tune_cost_entry **below_out,
                            const struct tune_cost_entry **above_out)
{
    const struct tune_cost_entry *below = NULL;
    const struct tune_cost_entry *above = NULL;

    for (size_t i = 0; i < table->count; i++) {
        const struct tune_cost_entry *entry = &table->entries[i];
        int64_t own = entry->point.micro_batch_size;

        if (!alike(&entry->point, family)) {
            continue;
        }
        if (own <= size && (below == NULL || own > below->point.micro_batch_size)) {
            below = entry;
        }
        if (own >= size && (above == NULL || own < above->point.micro_batch_size)) {
            above = entry;
        }
    }
    *below_out = below;
    *above_out = above;
}

/* The entry of the family next beyond `from`, away from `size`, for a line through the two. */
static const struct tune_cost_entry *find_next(const struct tune_cost_table *table,
                                               const struct tune_cost_entry *from, int64_t size)
{
    int64_t own = from->point.micro_batch_size;
    const struct tune_cost_entry *below = NULL;
    const struct tune_cost_entry *above = NULL;

    find_neighbours(table, &from->point, own > size ? own + 1 : own - 1, &below, &above);
    return own > size ? above : below;
}

/* The value at `part` of the way from a to b: 0 is a, 1 is b, beyond is a guess that stays above 0. */
static double between(double a, double b, double part)
{
    double value = a + part * (b - a);

    return at_least_zero(value);
}

static void mix(const struct tune_layer_costs *a, const struct tune_layer_costs *b, double part,
                struct tune_layer_costs *mixed)
{
    *mixed = *a;
    for (int c = 0; c < TUNE_COSTS; c++) {
        mixed->layer[c] = between(a->layer[c], b->layer[c], part);
        mixed->first[c] = between(a->first[c], b->first[c], part);
        mixed->last[c] = between(a->last[c], b->last[c], part);
    }
    mixed->send_s = between(a->send_s, b->send_s, part);
    mixed->message_s = between(a->message_s, b->message_s, part);
    mixed->gather_s = between(a->gather_s, b->gather_s, part);
    mixed->action_s =
        part > 0.0 && part < 1.0 ? between(a->action_s, b->action_s, part) : a->action_s;
    mixed->spread = a->spread > b->spread ? a->spread : b->spread;
    if (part > 0.0 && part < 1.0) {
        mixed->optimizer_s = between(a->optimizer_s, b->optimizer_s, part);
        mixed->outside_s = between(a->outside_s, b->outside_s, part);
    }
}

static double part_of(const struct tune_cost_entry *a, const struct tune_cost_entry *b,
                      int64_t size)
{
    return (double)(size - a->point.micro_batch_size) /
           (double)(b->point.micro_batch_size - a->point.micro_batch_size);
}

/* As many sequences as `size` has, each as long as one of the entry. */
static void scale(const struct tune_layer_costs *from, double factor,
                  struct tune_layer_costs *scaled)
{
    *scaled = *from;
    for (int c = 0; c < TUNE_COSTS; c++) {
        scaled->layer[c] *= factor;
        scaled->first[c] *= factor;
        scaled->last[c] *= factor;
    }
    scaled->send_s *= factor;
}

static enum tune_quality find_in_family(const struct tune_cost_table *table,
                                        const struct tune_point *family, int64_t size,
                                        struct tune_layer_costs *costs)
{
    const struct tune_cost_entry *below = NULL;
    const struct tune_cost_entry *above = NULL;
    const struct tune_cost_entry *nearest = NULL;
    const struct tune_cost_entry *next = NULL;

    find_neighbours(table, family, size, &below, &above);
    if (below != NULL && below == above) {
        *costs = below->costs;
        return TUNE_MEASURED;
    }
    if (below != NULL && above != NULL) {
        mix(&below->costs, &above->costs, part_of(below, above, size), costs);
        return TUNE_INTERPOLATED;
    }
    nearest = below != NULL ? below : above;
    ENSURE(nearest != NULL, "a family of no costs");
    next = find_next(table, nearest, size);
    if (next != NULL) {
        mix(&nearest->costs, &next->costs, part_of(nearest, next, size), costs);
    } else {
        scale(&nearest->costs, (double)size / (double)nearest->point.micro_batch_size, costs);
    }
    return TUNE_GUESSED;
}

/* What another kind of recompute would take, at least: the forward once more, or not. */
static void guess_recompute(enum recompute from, enum recompute to, struct tune_layer_costs *costs)
{
    if (from == RECOMPUTE_NONE && to == RECOMPUTE_FULL) {
        costs->layer[1] += costs->layer[0];
    } else if (from == RECOMPUTE_FULL && to != RECOMPUTE_FULL) {
        costs->layer[1] = at_least_zero(costs->layer[1] - costs->layer[0]);
    }
}

enum tune_quality tune_cost_table_find(const struct tune_cost_table *table,
                                       const struct tune_point *point,
                                       struct tune_layer_costs *costs_out)
{
    const struct tune_point *best = NULL;
    struct tune_layer_costs costs;
    enum tune_quality quality = TUNE_UNKNOWN;

    for (size_t i = 0; i < table->count; i++) {
        const struct tune_point *own = &table->entries[i].point;

        if (best == NULL || distance(point, own) < distance(point, best)) {
            best = own;
        }
    }
    if (best == NULL) {
        return TUNE_UNKNOWN;
    }
    quality = find_in_family(table, best, point->micro_batch_size, &costs);
    if (distance(point, best) == 0) {
        *costs_out = costs;
        return quality;
    }
    scale(&costs, (double)best->tp / (double)point->tp, costs_out);
    /* A shard sends whole rows all the same. */
    costs_out->send_s = costs.send_s;
    guess_recompute(best->recompute, point->recompute, costs_out);
    return TUNE_GUESSED;
}

void tune_cost_table_release(struct tune_cost_table *table)
{
    free(table->entries);
    *table = (struct tune_cost_table){.entries = NULL};
}
