/*
 * search_anneal -- an order made shorter by small changes, some of which make it longer for a while.
 *
 * Simulated annealing (Kirkpatrick et al. 1983) over the moves of search_move.h: mostly neighbours on
 * the critical path, also an action that is moved further, and two messages that change places all
 * along their way. What has no time (a deadlock, too much memory) is never taken. It stops at the bound.
 *
 * The same order, seed and count give the same result on every machine: no clock, and of floating
 * point only what IEEE 754 rounds exactly.
 */
#ifndef SCHEDULER_SEARCH_ANNEAL_H
#define SCHEDULER_SEARCH_ANNEAL_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/search_order.h"

#ifdef __cplusplus
extern "C" {
#endif

struct search_anneal {
    uint64_t seed;
    int64_t evaluations; /* at most so many orders are timed */
    double bound;        /* nothing is shorter */
    double heat; /* how much longer than before an order may well be for a while, at the begin,
                            in actions of mean cost; less and less later. 0.5 is usual */
};

/* Makes `order`, which has a time, shorter where that is found; *makespan_out is what it has then,
 * *used_out how many were timed. */
enum status search_anneal_run(const struct search_anneal *anneal, struct search_order *order,
                              double *makespan_out, int64_t *used_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_ANNEAL_H */
