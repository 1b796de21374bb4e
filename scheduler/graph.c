#include "scheduler/graph.h"

#include <stdlib.h>
#include <string.h>

static const char *const edge_texts[EDGE_KINDS] = {
#define X(kind, text) text,
    EDGE_TABLE(X)
#undef X
};

const char *edge_text(enum edge_kind kind)
{
    return edge_texts[kind];
}

int64_t graph_number(const struct graph *graph, struct graph_node node)
{
    return graph->index->first[node.rank] + node.index;
}

int64_t graph_nodes(const struct graph *graph)
{
    return graph->index->first[graph->plan->shape.ranks];
}

bool graph_next(const struct graph *graph, struct graph_node *node)
{
    node->index++;
    while (node->rank < graph->plan->shape.ranks &&
           node->index >= graph->plan->lines[node->rank].count) {
        node->rank++;
        node->index = 0;
    }
    return node->rank < graph->plan->shape.ranks;
}

/* The edges of one node while they are collected. */
struct collector {
    const struct graph *graph;
    const struct action *action;
    struct graph_node node;
    struct graph_edge *out;
    int32_t count;
};

static void add(struct collector *collector, int32_t rank, int32_t index, enum edge_kind kind)
{
    if (index != ACTION_NONE) {
        collector->out[collector->count++] =
            (struct graph_edge){.from = {.rank = rank, .index = index}, .kind = kind};
    }
}

/* The compute action before this one on its rank. A SEND names its producer, which mostly is that
 * one, anyway. */
static void add_order(struct collector *collector)
{
    const struct plan_line *line = &collector->graph->plan->lines[collector->node.rank];
    int32_t i = collector->node.index - 1;

    while (i >= 0 && !action_is_compute((enum action_kind)line->actions[i].kind)) {
        i--;
    }
    if (collector->action->kind != ACTION_SEND || collector->action->depends[0] != i) {
        add(collector, collector->node.rank, i, EDGE_ORDER);
    }
}

static void add_depends(struct collector *collector)
{
    const struct plan_line *line = &collector->graph->plan->lines[collector->node.rank];
    bool unbounded = collector->graph->rules.unbounded;
    int i;

    for (i = 0; i < ACTION_DEPENDS && collector->action->depends[i] != ACTION_NONE; i++) {
        int32_t other = collector->action->depends[i];
        bool out_buffer = line->actions[other].kind == ACTION_SEND;

        if (!out_buffer || !unbounded) {
            add(collector, collector->node.rank, other, out_buffer ? EDGE_OUT : EDGE_DEPENDS);
        }
    }
}

/* Fills `out` where there is such an action. */
static bool name(struct graph_edge *out, int32_t rank, int32_t index, enum edge_kind kind)
{
    *out = (struct graph_edge){.from = {.rank = rank, .index = index}, .kind = kind};
    return index != ACTION_NONE;
}

static bool name_place(const struct graph *graph, struct graph_edge *out, enum plan_place place,
                       int32_t stage, int32_t microbatch, enum edge_kind kind)
{
    return name(out, graph->plan->rank_of[stage],
                plan_index_at(graph->index, place, stage, microbatch), kind);
}

bool graph_freed(const struct graph *graph, enum lane_direction direction, int32_t target,
                 int32_t *microbatch)
{
    const struct plan *plan = graph->plan;
    const struct plan_index *index = graph->index;
    const struct plan_buffers *buffers =
        plan_buffers_of(plan, plan->rank_of[target], plan->chunk_of[target]);
    int32_t landings = direction == LANE_F ? buffers->landing_f : buffers->landing_b;
    int32_t deep = landings + graph->rules.deeper;
    int32_t turn = *microbatch;

    deep = deep < 1 ? 1 : deep;
    if (index->shuffled[direction][target]) {
        turn = index->turn[direction][plan_index_cell(index, target, turn)];
    }
    if (turn < deep) {
        return false;
    }
    *microbatch = turn - deep;
    if (index->shuffled[direction][target]) {
        *microbatch = index->order[direction][plan_index_cell(index, target, turn - deep)];
    }
    return true;
}

/* The last reader of the message that lay in the landing buffer of a SEND before. */
static bool name_landing(const struct graph *graph, const struct action *action,
                         struct graph_edge *out)
{
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t target = plan_target(graph->plan, action->virtual_stage, direction);
    enum plan_place release = plan_trains(graph->plan) ? PLACE_I : PLACE_F;
    int32_t microbatch = action->microbatch;

    return graph_freed(graph, direction, target, &microbatch) &&
           name_place(graph, out, direction == LANE_F ? release : PLACE_W, target, microbatch,
                      EDGE_LANDING);
}

/* What a SEND waits for where the transport blocks in the order of the line. */
static bool name_receipt(const struct graph *graph, const struct action *action,
                         struct graph_edge *out)
{
    const struct plan *plan = graph->plan;
    const struct plan_index *index = graph->index;
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t depth = graph->rules.depth;
    int32_t target = plan_target(plan, action->virtual_stage, direction);
    int32_t lane = index->lane_of[direction][target];

    if (depth == 0) {
        int32_t receive =
            plan_index_at(index, plan_place_receive(direction), target, action->microbatch);

        return name(out, plan->rank_of[target], receive == ACTION_NONE ? receive : receive - 1,
                    EDGE_MEET);
    }
    return action->sequence >= depth && action->sequence - depth < index->lane_received[lane] &&
           name(out, plan->rank_of[target],
                index->receives[index->lane_first[lane] + action->sequence - depth], EDGE_LANDING);
}

bool graph_awaited(const struct graph *graph, struct graph_node node, struct graph_edge *out)
{
    const struct plan *plan = graph->plan;
    const struct action *action = &plan->lines[node.rank].actions[node.index];
    enum lane_direction direction = (enum lane_direction)action->direction;

    switch ((enum action_kind)action->kind) {
    case ACTION_RECV:
        return name_place(graph, out, plan_place_send(direction),
                          plan_source(plan, action->virtual_stage, direction), action->microbatch,
                          EDGE_MESSAGE);
    case ACTION_SEND:
        if (graph->rules.in_line) {
            return name_receipt(graph, action, out);
        }
        return !graph->rules.unbounded && name_landing(graph, action, out);
    case ACTION_SYNC:
        return node.rank == plan->rank_of[0] && name(out, plan->rank_of[graph->index->stages - 1],
                                                     graph->index->sync[0], EDGE_MESSAGE);
    default:
        return false;
    }
}

int32_t graph_edges(const struct graph *graph, struct graph_node node, struct graph_edge *out)
{
    struct collector collector = {.graph = graph,
                                  .action = &graph->plan->lines[node.rank].actions[node.index],
                                  .node = node,
                                  .out = out};
    enum action_kind kind = (enum action_kind)collector.action->kind;

    if (graph->rules.in_line) {
        add(&collector, node.rank, node.index - 1, EDGE_ORDER);
    } else {
        if (kind != ACTION_RECV && kind != ACTION_SYNC) {
            add_order(&collector);
        }
        add_depends(&collector);
    }
    collector.count += graph_awaited(graph, node, &out[collector.count]) ? 1 : 0;
    return collector.count;
}
