#include "scheduler/deadlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Edges that the search for a shorter cycle looks at before it is content with what it has. */
#define MOST_WORK ((int64_t)1 << 27)

/* A node that a breadth-first search has reached, and from where. */
struct reached {
    struct graph_edge edge; /* the node and the kind by which it is waited for */
    int64_t parent;         /* place in the queue; -1 for the root */
    int32_t depth;
};

struct search {
    const struct graph *graph;
    const struct graph_walk *walk;
    struct reached *queue; /* owns */
    int64_t capacity;
    int64_t queued;
    uint32_t *stamp; /* owns; the round in which a node was reached, by graph_number() */
    uint32_t round;
    int64_t work;
    struct deadlock *best;
};

static enum status enqueue(struct search *search, struct graph_edge edge, int64_t parent,
                           int32_t depth)
{
    if (search->queued == search->capacity) {
        int64_t capacity = search->capacity == 0 ? 1024 : search->capacity * 2;
        struct reached *queue = realloc(search->queue, (size_t)capacity * sizeof(*queue));

        if (queue == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "deadlock: no memory for a search of %lld",
                               (long long)capacity);
        }
        search->queue = queue;
        search->capacity = capacity;
    }
    search->stamp[graph_number(search->graph, edge.from)] = search->round;
    search->queue[search->queued++] =
        (struct reached){.edge = edge, .parent = parent, .depth = depth};
    return STATUS_OK;
}

/* The cycle root → … → the node at `last` of the queue → root. `closing` is the kind by which the
 * last one waits for the root. */
static enum status keep_cycle(struct search *search, int64_t last, enum edge_kind closing)
{
    int32_t count = search->queue[last].depth + 1;
    struct graph_edge *edges = realloc(search->best->edges, (size_t)count * sizeof(*edges));
    int32_t i;

    if (edges == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "deadlock: no memory for a cycle of %d", count);
    }
    for (i = count - 1; i >= 0; i--) {
        edges[i] = search->queue[last].edge;
        last = search->queue[last].parent;
    }
    edges[0].kind = closing;
    search->best->edges = edges;
    search->best->count = count;
    return STATUS_OK;
}

/* Looks at what the node at `at` of the queue waits for. */
static enum status expand(struct search *search, int64_t at, bool *found_out)
{
    struct reached reached = search->queue[at];
    struct graph_node root = search->queue[0].edge.from;
    struct graph_edge edges[GRAPH_EDGES];
    int32_t count = graph_edges(search->graph, reached.edge.from, edges);
    int32_t i;

    search->work += count;
    for (i = 0; i < count; i++) {
        int64_t number = graph_number(search->graph, edges[i].from);

        if (edges[i].from.rank == root.rank && edges[i].from.index == root.index) {
            *found_out = true;
            return keep_cycle(search, at, edges[i].kind);
        }
        if (search->walk->state[number] == GRAPH_DONE || search->stamp[number] == search->round) {
            continue;
        }
        TRY(enqueue(search, edges[i], at, reached.depth + 1));
    }
    return STATUS_OK;
}

/* The shortest cycle through `root`, where it is shorter than the best one so far. */
static enum status search_from(struct search *search, struct graph_node root)
{
    bool found = false;
    int64_t at;

    search->round++;
    search->queued = 0;
    TRY(enqueue(search, (struct graph_edge){.from = root, .kind = EDGE_ORDER}, -1, 0));
    for (at = 0; at < search->queued && !found; at++) {
        if (search->best->count > 0 && search->queue[at].depth + 1 >= search->best->count) {
            break;
        }
        TRY(expand(search, at, &found));
    }
    return STATUS_OK;
}

static enum status search_all(struct search *search)
{
    struct graph_node node = {.rank = 0, .index = -1};
    enum status status = search_from(search, search->walk->on_cycle);

    while (status == STATUS_OK && search->work <= MOST_WORK && graph_next(search->graph, &node)) {
        if (search->walk->state[graph_number(search->graph, node)] != GRAPH_DONE) {
            status = search_from(search, node);
        }
    }
    return status;
}

enum status deadlock_find(const struct graph *graph, struct deadlock *deadlock_out)
{
    struct deadlock best = {.count = 0};
    struct graph_walk walk;
    struct search search = {.graph = graph, .walk = &walk, .best = &best};
    enum status status = STATUS_OK;

    TRY(graph_walk_run(graph, NULL, NULL, &walk));
    if (walk.cyclic) {
        search.stamp = calloc((size_t)graph_nodes(graph), sizeof(*search.stamp));
        status = search.stamp == NULL
                     ? status_fail(STATUS_ERR_NO_MEMORY, "deadlock: no memory for %lld actions",
                                   (long long)graph_nodes(graph))
                     : search_all(&search);
    }
    free(search.stamp);
    free(search.queue);
    graph_walk_release(&walk);
    if (status < 0) {
        deadlock_release(&best);
        return status;
    }
    *deadlock_out = best;
    return STATUS_OK;
}

void deadlock_print(const struct deadlock *deadlock, const struct plan *plan, char *text,
                    size_t text_bytes)
{
    size_t at = 0;
    int32_t i;

    text[0] = '\0';
    for (i = 0; i <= deadlock->count && deadlock->count > 0; i++) {
        const struct graph_edge *edge = &deadlock->edges[i % deadlock->count];
        char action[32];
        char step[96];
        size_t step_bytes;

        (void)action_print(&plan->lines[edge->from.rank].actions[edge->from.index], action,
                           sizeof(action));
        (void)snprintf(step, sizeof(step), "%s%s%srank %d #%d %s", i > 0 ? " -(" : "",
                       i > 0 ? edge_text(edge->kind) : "", i > 0 ? ")-> " : "", edge->from.rank,
                       edge->from.index, action);
        step_bytes = strlen(step);
        if (at + step_bytes + sizeof(" ...") > text_bytes) {
            (void)snprintf(text + at, text_bytes - at, " ...");
            return;
        }
        memcpy(text + at, step, step_bytes + 1);
        at += step_bytes;
    }
}

void deadlock_release(struct deadlock *deadlock)
{
    free(deadlock->edges);
    memset(deadlock, 0, sizeof(*deadlock));
}
