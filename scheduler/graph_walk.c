#include <stdlib.h>
#include <string.h>

#include "scheduler/graph.h"

#define FIRST_STACK 1024

static enum status push(struct graph_walk *walk, struct graph_node node)
{
    if (walk->stack_count == walk->stack_capacity) {
        int64_t capacity = walk->stack_capacity == 0 ? FIRST_STACK : walk->stack_capacity * 2;
        struct graph_node *stack = realloc(walk->stack, (size_t)capacity * sizeof(*stack));

        if (stack == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "plan graph: no memory for a path of %lld",
                               (long long)capacity);
        }
        walk->stack = stack;
        walk->stack_capacity = capacity;
    }
    walk->stack[walk->stack_count++] = node;
    return STATUS_OK;
}

/* Opens a new node: pushes what it waits for and is not done. An open one among them is an
 * ancestor on the path, because an open node stays on the stack until it is done. */
static enum status open_node(const struct graph *graph, struct graph_walk *walk,
                             struct graph_node node)
{
    struct graph_edge edges[GRAPH_EDGES];
    int32_t count = graph_edges(graph, node, edges);
    int32_t i;

    walk->state[graph_number(graph, node)] = GRAPH_OPEN;
    for (i = 0; i < count; i++) {
        uint8_t state = walk->state[graph_number(graph, edges[i].from)];

        if (state == GRAPH_OPEN) {
            walk->cyclic = true;
            walk->on_cycle = edges[i].from;
            return STATUS_OK;
        }
        if (state == GRAPH_DONE) {
            continue;
        }
        TRY(push(walk, edges[i].from));
    }
    return STATUS_OK;
}

static void close_node(const struct graph *graph, struct graph_walk *walk, struct graph_node node,
                       graph_visit_fn visit, void *context)
{
    walk->state[graph_number(graph, node)] = GRAPH_DONE;
    if (visit != NULL) {
        struct graph_edge edges[GRAPH_EDGES];
        int32_t count = graph_edges(graph, node, edges);

        visit(context, node, edges, count);
    }
}

/* Depth first from `root`, with a stack of its own: paths are as long as the plan. */
static enum status walk_from(const struct graph *graph, struct graph_walk *walk,
                             struct graph_node root, graph_visit_fn visit, void *context)
{
    enum status status = push(walk, root);

    while (walk->stack_count > 0 && !walk->cyclic && status == STATUS_OK) {
        struct graph_node node = walk->stack[walk->stack_count - 1];
        uint8_t state = walk->state[graph_number(graph, node)];

        if (state == GRAPH_NEW) {
            status = open_node(graph, walk, node);
            continue;
        }
        walk->stack_count--;
        if (state == GRAPH_OPEN) {
            close_node(graph, walk, node, visit, context);
        }
    }
    return status;
}

enum status graph_walk_run(const struct graph *graph, graph_visit_fn visit, void *context,
                           struct graph_walk *walk_out)
{
    struct graph_walk walk = {.stack_count = 0};
    struct graph_node node = {.rank = 0, .index = -1};
    enum status status = STATUS_OK;
    bool complete = false;

    TRY(graph_wave_run(graph, visit, context, &complete, &walk.turns));
    if (complete) {
        *walk_out = walk;
        return STATUS_OK;
    }
    walk.state = calloc((size_t)graph_nodes(graph) + 1, sizeof(*walk.state));
    if (walk.state == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan graph: no memory for %lld actions",
                           (long long)graph_nodes(graph));
    }
    while (status == STATUS_OK && !walk.cyclic && graph_next(graph, &node)) {
        if (walk.state[graph_number(graph, node)] == GRAPH_NEW) {
            status = walk_from(graph, &walk, node, visit, context);
        }
    }
    if (status < 0) {
        graph_walk_release(&walk);
        return status;
    }
    *walk_out = walk;
    return STATUS_OK;
}

void graph_walk_release(struct graph_walk *walk)
{
    free(walk->state);
    free(walk->stack);
    memset(walk, 0, sizeof(*walk));
}
