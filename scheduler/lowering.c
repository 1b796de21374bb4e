#include "scheduler/lowering.h"

#include <stdlib.h>
#include <string.h>

#define CELL_TABLES 6 /* f_at, i_at, slot_of, gradient_of, local_of twice */
#define POOLS       4 /* a chunk: slots, gradients, locals twice; each holds m numbers at most */
#define PEER_TABLES 6 /* sent, received, last_send of both directions */

int32_t pool_take(struct pool *pool)
{
    return pool->free_count > 0 ? pool->free[--pool->free_count] : pool->made++;
}

void pool_give(struct pool *pool, int32_t number)
{
    pool->free[pool->free_count++] = number;
}

bool lowering_init(struct lowering *lowering, const struct plan *compute,
                   const struct plan_index *index, struct plan *lowered)
{
    size_t ranks = (size_t)compute->shape.ranks;
    size_t v = (size_t)compute->shape.virtual_stages;
    size_t cells = v * (size_t)compute->shape.microbatches;
    int32_t *at;
    int i;

    memset(lowering, 0, sizeof(*lowering));
    lowering->compute = compute;
    lowering->index = index;
    lowering->lowered = lowered;
    lowering->tables =
        malloc(((CELL_TABLES + POOLS) * cells + PEER_TABLES * ranks) * sizeof(int32_t));
    lowering->slots = calloc(POOLS * v, sizeof(*lowering->slots));
    if (lowering->tables == NULL || lowering->slots == NULL) {
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
    memset(lowering, 0, sizeof(*lowering));
}

void lowering_begin_line(struct lowering *lowering, int32_t rank)
{
    const struct plan *plan = lowering->compute;
    size_t m = (size_t)plan->shape.microbatches;
    size_t v = (size_t)plan->shape.virtual_stages;
    size_t chunk;
    int i;

    lowering->rank = rank;
    lowering->forwards = 0;
    lowering->last_release = ACTION_NONE;
    memset(lowering->f_at, 0xff, CELL_TABLES * v * m * sizeof(int32_t));
    for (chunk = 0; chunk < POOLS * v; chunk++) {
        lowering->slots[chunk].free = lowering->free_numbers + chunk * m;
        lowering->slots[chunk].free_count = 0;
        lowering->slots[chunk].made = 0;
    }
    for (chunk = 0; chunk < v; chunk++) {
        int32_t stage = lowering->index->stage_of[(size_t)rank * v + chunk];

        for (i = 0; i < LANE_DIRECTIONS; i++) {
            int32_t from = plan_source(plan, stage, (enum lane_direction)i);
            int32_t to = plan_target(plan, stage, (enum lane_direction)i);

            if (from != ACTION_NONE) {
                lowering->received[i][plan->rank_of[from]] = 0;
            }
            if (to != ACTION_NONE) {
                lowering->sent[i][plan->rank_of[to]] = 0;
                lowering->last_send[i][plan->rank_of[to]] = ACTION_NONE;
            }
        }
    }
}
