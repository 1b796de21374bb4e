/*
 * partition_table -- loads and needs of runs of layers, for the searches behind partition.h.
 *
 * Private to partition*.c.
 */
#ifndef SCHEDULER_PARTITION_TABLE_H
#define SCHEDULER_PARTITION_TABLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* More than the bytes, or the units of cost, of any split; sums stay exact in a double. */
#define PARTITION_MOST_BYTES ((int64_t)1 << 52)

struct partition_table {
    const struct partition_problem *problem; /* borrows */
    int32_t stages;                          /* p·v */
    int64_t first;                           /* costs in whole units */
    int64_t last;
    int64_t *cost;  /* owns, with the two below; [layers + 1], sums of the layers before */
    int64_t *fixed; /* bytes */
    int64_t *stash;
    /* A load is then what a rank needs beyond its limit, and limits do not bind: the split with the
     * least load is the one that comes nearest to fitting. */
    bool by_memory;
};

/* Checks the problem. STATUS_ERR_REFUSED names what is not a number that makes sense. */
enum status partition_table_init(struct partition_table *table,
                                 const struct partition_problem *problem);

/* Safe on a zeroed table, and twice. */
void partition_table_release(struct partition_table *table);

int32_t partition_rank_of(const struct partition_table *table, int32_t stage);

/* Units of cost of layers from … to-1 on virtual stage `stage`, embedding and head included; bytes by
 * memory. */
int64_t partition_units(const struct partition_table *table, int32_t stage, int32_t from,
                        int32_t to);

/* The load of a rank with so many units in all. Divided by the speed once, so that equal sums give
 * equal loads. */
double partition_load(const struct partition_table *table, int32_t rank, int64_t units);

/* Bytes of those layers with their stashes. */
int64_t partition_need(const struct partition_table *table, int32_t stage, int32_t from,
                       int32_t to);

/* Whether a rank may need so much. */
bool partition_fits(const struct partition_table *table, int32_t rank, int64_t need);

/* The two largest of `top` and `load`, the larger first. */
static inline void partition_insert(double top[2], double load)
{
    if (load > top[0]) {
        top[1] = top[0];
        top[0] = load;
    } else if (load > top[1]) {
        top[1] = load;
    }
}

/* The square of a load, in units in which sums of squares are exact where no speeds are given: what
 * makes splits of equal layers equal. */
static inline double partition_square(double load)
{
    double units = rint(load / (double)(1 << 26));

    return units * units;
}

/* Loads and needs of all ranks for these counts, p elements each. Returns the bytes by which the
 * fullest rank exceeds its limit, 0 where all fit, and that rank. */
int64_t partition_loads(const struct partition_table *table, const int32_t *counts,
                        double *loads_out, int64_t *needs_out, int32_t *fullest_out);

/* One run a rank. *found_out is false where nothing fits. */
enum status partition_line_search(const struct partition_table *table, int32_t *counts_out,
                                  bool *found_out);

/* V: virtual stages s and 2p-1-s on one rank. */
enum status partition_ends_search(const struct partition_table *table, int32_t *counts_out,
                                  bool *found_out);

/* Moves single layers while that makes the loads better, from `counts` on. */
enum status partition_level(const struct partition_table *table, int32_t *counts);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PARTITION_TABLE_H */
