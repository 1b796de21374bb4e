/*
 * partition -- which layers go to which virtual stage.
 *
 * Contiguous runs of layers, in model order, one for each of the p·v virtual stages; a run may be
 * empty. Every layer has a cost (F + I + W of one micro-batch), the embedding adds to the first
 * virtual stage and the head to the last one, and what takes time is the largest load of a rank: the
 * sum over its chunks, divided by its speed. Of the splits that fit into memory this finds one whose
 * largest load is the least, among those the least second largest, then the fewest bytes in the
 * messages between virtual stages, then the evenest (the least sum of squares), the last ones
 * having fewer.
 *
 *   one chunk a rank      exact, by dynamic programming
 *   V (v = 2, virtual stages s and 2p-1-s on one rank)
 *                         exact in the two largest loads, by a search from both ends of the model,
 *                         then the chunks of a rank as even as they can be with that, rank by rank;
 *                         bytes of messages are not looked at
 *   anything else (loop with v > 1, zigzag)
 *                         the exact answer for the largest chunk, then single layers are moved
 *                         while that makes the loads better: no promise of the best
 *
 * Minimising the difference between the largest and the smallest load, as others do, is not the
 * same: [1,5,2,2] on three ranks would become [6,2,2] and not [1,5,4].
 *
 * Costs are taken as whole multiples of 2^-50 of a number above their sum, rounded to the nearest,
 * so that equal sums are equal and no order of additions decides.
 */
#ifndef SCHEDULER_PARTITION_H
#define SCHEDULER_PARTITION_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Borrows all arrays. */
struct partition_problem {
    int32_t ranks;          /* p >= 1 */
    int32_t virtual_stages; /* v >= 1 chunks a rank */
    int32_t layers;         /* >= 0 */
    const int32_t *rank_of; /* [p·v]; NULL: a loop, virtual stage s on rank s mod p */
    const double *cost;     /* [layers]; >= 0 */
    double first_cost;      /* embedding */
    double last_cost;       /* head */
    const double *speed;    /* [ranks]; > 0, twice the speed is half the time; NULL: all alike */
    /* [layers + 1]; the message between two virtual stages whose cut is in front of layer k. NULL:
     * all alike. */
    const int64_t *boundary_bytes;

    /* Memory of a rank: what lies there for good, and a stash for each micro-batch in flight. */
    const int64_t *memory_limit; /* [ranks], bytes; NULL: none, and what follows is not read */
    const int64_t *fixed_bytes;  /* [layers] */
    const int64_t *stash_bytes;  /* [layers]; of one micro-batch */
    const int32_t *in_flight;    /* [p·v]; stashes of a virtual stage that the schedule holds */
    int64_t first_bytes;         /* for good, on the first virtual stage */
    int64_t last_bytes;          /* for good, on the last one */
};

/* Writes p·v counts. STATUS_ERR_REFUSED where nothing fits, naming the rank, its need and its limit
 * in the split that comes nearest, or where a cost or size is not a number that makes sense. */
enum status partition_make(const struct partition_problem *problem, int32_t *counts_out);

/* How good a split is; less is better. */
typedef enum status (*partition_evaluate_fn)(void *context, const int32_t *counts,
                                             double *value_out);

/* Moves one layer at a time from one virtual stage to another, everything between moving up by one,
 * while `evaluate` says that it helps, at most `evaluations` times asked. Neighbours are tried
 * first. Leaves memory limits as they are: a split that keeps them stays inside. `counts` is both
 * what it starts from and the result. */
enum status partition_polish(const struct partition_problem *problem,
                             partition_evaluate_fn evaluate, void *context, int32_t evaluations,
                             int32_t *counts);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PARTITION_H */
