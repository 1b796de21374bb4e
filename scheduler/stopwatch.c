#include "scheduler/stopwatch.h"

/* What the SENDs between the compute action at `before` and the one at `index` take of their rank.
 * Each compute action makes one message at most. */
static double copies_between(const struct stopwatch *stopwatch, const struct plan_line *line,
                             int32_t before, int32_t index)
{
    double copies = 0.0;

    while (++before < index) {
        copies += line->actions[before].kind == ACTION_SEND ? stopwatch->costs->send : 0.0;
    }
    return copies;
}

void stopwatch_visit(void *context, struct graph_node node, const struct graph_edge *edges,
                     int32_t count)
{
    struct stopwatch *stopwatch = context;
    const struct plan_line *line = &stopwatch->graph->plan->lines[node.rank];
    const struct action *action = &line->actions[node.index];
    bool compute = action_is_compute((enum action_kind)action->kind);
    int64_t number = graph_number(stopwatch->graph, node);
    double begin = 0.0;
    int32_t i;

    for (i = 0; i < count; i++) {
        double end = stopwatch->end[graph_number(stopwatch->graph, edges[i].from)];

        if (compute && edges[i].kind == EDGE_ORDER && stopwatch->costs->send > 0.0) {
            end += copies_between(stopwatch, line, edges[i].from.index, node.index);
        }
        begin = end > begin ? end : begin;
    }
    begin += compute ? stopwatch->costs->action : 0.0;
    if (stopwatch->begin != NULL) {
        stopwatch->begin[number] = begin;
    }
    begin += plan_action_cost(stopwatch->costs, action);
    stopwatch->end[number] = begin;
    if (compute && begin > stopwatch->makespan) {
        stopwatch->makespan = begin;
    }
}
