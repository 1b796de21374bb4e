#include "scheduler/lowering.h"

#include <stdlib.h>
#include <string.h>

#define CELL_TABLES 7 /* f_at, i_at, slot_of, gradient_of, local_of twice, landing_of */
#define POOLS       4 /* a chunk: slots, gradients, locals twice; each holds m numbers at most */
#define PEER_TABLES 6 /* sent, received, last_send of both directions */

bool lowering_init(struct lowering *lowering, const struct plan *compute, const int32_t *stage_of,
                   struct plan *lowered)
{
    size_t ranks = (size_t)compute->shape.ranks;
    size_t v = (size_t)compute->shape.virtual_stages;
    size_t cells = v * (size_t)compute->shape.microbatches;
    int32_t *at;
    int i;

    memset(lowering, 0, sizeof(*lowering));
    lowering->compute = compute;
    lowering->stage_of = stage_of;
    lowering->lowered = lowered;
    lowering->tables =
        malloc(((CELL_TABLES + POOLS) * cells + PEER_TABLES * ranks) * sizeof(int32_t));
    lowering->slots = calloc(POOLS * v, sizeof(*lowering->slots));
    lowering->routes = calloc(LANE_DIRECTIONS * v, sizeof(*lowering->routes));
    if (lowering->tables == NULL || lowering->slots == NULL || lowering->routes == NULL) {
        lowering_release(lowering);
        return false;
    }
    at = lowering->tables;
    lowering->gradients = lowering->slots + v;
    lowering->locals[LANE_F] = lowering->slots + 2 * v;
    lowering->locals[LANE_B] = lowering->slots + 3 * v;
    lowering->f_at = at;
    lowering->i_at = at + cells;
    lowering->slot_of = at + 2 * cells;
    lowering->gradient_of = at + 3 * cells;
    lowering->local_of[LANE_F] = at + 4 * cells;
    lowering->local_of[LANE_B] = at + 5 * cells;
    lowering->landing_of = at + 6 * cells;
    lowering->free_numbers = at + CELL_TABLES * cells;
    at += (CELL_TABLES + POOLS) * cells;
    for (i = 0; i < LANE_DIRECTIONS; i++) {
        lowering->sent[i] = at;
        lowering->received[i] = at + ranks;
        lowering->last_send[i] = at + 2 * ranks;
        at += 3 * ranks;
    }
    return true;
}

void lowering_release(struct lowering *lowering)
{
    free(lowering->tables);
    free(lowering->slots);
    free(lowering->routes);
    memset(lowering, 0, sizeof(*lowering));
}

/* Landing buffers of a chunk's messages. */
static int32_t landings_of(const struct plan *plan, int32_t stage, enum lane_direction direction)
{
    const struct plan_buffers *buffers =
        plan_buffers_of(plan, plan->rank_of[stage], plan->chunk_of[stage]);

    return direction == LANE_F ? buffers->landing_f : buffers->landing_b;
}

static int32_t or_none(const int32_t *table, int32_t stage)
{
    return stage == ACTION_NONE ? ACTION_NONE : table[stage];
}

/* The route of the chunk of `stage`, and of its lanes the counts from 0. */
static void begin_route(struct lowering *lowering, int32_t stage, enum lane_direction direction)
{
    const struct plan *plan = lowering->compute;
    int32_t chunk = plan->chunk_of[stage];
    int32_t source = plan_source(plan, stage, direction);
    int32_t target = plan_target(plan, stage, direction);
    struct route *route =
        &lowering->routes[(size_t)direction * (size_t)plan->shape.virtual_stages + (size_t)chunk];

    *route =
        (struct route){.source = or_none(plan->rank_of, source),
                       .target = or_none(plan->rank_of, target),
                       .before = or_none(plan->chunk_of, plan_local_source(plan, stage, direction)),
                       .behind = or_none(plan->chunk_of, plan_local_target(plan, stage, direction)),
                       .landings_here = landings_of(lowering->lowered, stage, direction)};
    if (source != ACTION_NONE) {
        lowering->received[direction][route->source] = 0;
    }
    if (target != ACTION_NONE) {
        route->landings_there = landings_of(lowering->lowered, target, direction);
        lowering->sent[direction][route->target] = 0;
        lowering->last_send[direction][route->target] = ACTION_NONE;
    }
}

void lowering_begin_line(struct lowering *lowering, int32_t rank)
{
    const struct plan *plan = lowering->compute;
    size_t m = (size_t)plan->shape.microbatches;
    size_t v = (size_t)plan->shape.virtual_stages;
    size_t chunk;

    lowering->rank = rank;
    lowering->line = &lowering->lowered->lines[rank];
    lowering->forwards = 0;
    lowering->last_release = ACTION_NONE;
    memset(lowering->f_at, 0xff, CELL_TABLES * v * m * sizeof(int32_t));
    for (chunk = 0; chunk < POOLS * v; chunk++) {
        lowering->slots[chunk].free = lowering->free_numbers + chunk * m;
        lowering->slots[chunk].free_count = 0;
        lowering->slots[chunk].made = 0;
    }
    for (chunk = 0; chunk < v; chunk++) {
        int32_t stage = lowering->stage_of[(size_t)rank * v + chunk];

        begin_route(lowering, stage, LANE_F);
        begin_route(lowering, stage, LANE_B);
    }
}
