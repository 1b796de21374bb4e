/*
 * stopwatch -- when each action of a walk begins and ends.
 *
 * The one place where costs become times (scheduler/simulate.h says how). A walk of the graph calls
 * stopwatch_visit() for each node after those that it waits for.
 */
#ifndef SCHEDULER_STOPWATCH_H
#define SCHEDULER_STOPWATCH_H

#include <stdint.h>

#include "scheduler/graph.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stopwatch {
    const struct graph *graph;      /* borrows */
    const struct plan_costs *costs; /* borrows */
    double *begin;                  /* borrows; by graph_number(); NULL: not wanted */
    double *end;                    /* borrows; by graph_number() */
    double makespan;                /* end of the last compute action so far */
};

/* A graph_visit_fn; `context` is the stopwatch. */
void stopwatch_visit(void *context, struct graph_node node, const struct graph_edge *edges,
                     int32_t count);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_STOPWATCH_H */
