/*
 * deadlock -- the shortest cycle of a plan's graph, as a witness that a reader can follow.
 */
#ifndef SCHEDULER_DEADLOCK_H
#define SCHEDULER_DEADLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* edges[i].from waits, by edges[i + 1].kind, for edges[i + 1].from, and the last one for the
 * first. Empty (count 0) where the graph has no cycle. */
struct deadlock {
    struct graph_edge *edges; /* owns */
    int32_t count;
};

/* Finds out whether the graph has a cycle, and a shortest one; in a plan of many millions of
 * actions the search for a shorter one ends after a fixed amount of work. */
enum status deadlock_find(const struct graph *graph, struct deadlock *deadlock_out);

/* "rank 0 #4 0F2 -(out buffer)-> rank 0 #3 0SEND_F1 -(landing)-> ...": each waits for the next.
 * Cut to `text_bytes`, "..." at the end then. */
void deadlock_print(const struct deadlock *deadlock, const struct plan *plan, char *text,
                    size_t text_bytes);

/* Safe on a zeroed deadlock, and twice. */
void deadlock_release(struct deadlock *deadlock);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_DEADLOCK_H */
