#include "scheduler/generate_order.h"

static int32_t stage_at(const struct order *order, int32_t chunk)
{
    const struct plan_shape *shape = &order->plan->shape;
    bool back = shape->placement == PLACEMENT_ZIGZAG && chunk % 2 == 1;

    if (order->stage_of != NULL) {
        return order->stage_of[(size_t)order->rank * (size_t)shape->virtual_stages + (size_t)chunk];
    }
    return chunk * shape->ranks + (back ? shape->ranks - 1 - order->rank : order->rank);
}

static inline struct action make_action(const struct order *order, enum action_kind kind,
                                        int32_t microbatch, int32_t chunk)
{
    int32_t slices = plan_slices(order->plan);

    return (struct action){.kind = (uint8_t)kind,
                           .chunk = (uint16_t)chunk,
                           .slices = slices > 1 ? slices : 0,
                           .virtual_stage = stage_at(order, chunk),
                           .microbatch = microbatch,
                           .peer = ACTION_NONE,
                           .sequence = ACTION_NONE,
                           .slot = ACTION_NONE,
                           .gradient = ACTION_NONE,
                           .landing = ACTION_NONE,
                           .target = ACTION_NONE,
                           .depends = {ACTION_NONE, ACTION_NONE, ACTION_NONE, ACTION_NONE}};
}

void order_add(struct order *order, enum action_kind kind, int32_t microbatch, int32_t chunk)
{
    struct action *at;

    if (order->status < 0 || microbatch >= order->plan->shape.microbatches) {
        return;
    }
    at = plan_next(order->plan, order->rank);
    if (at != NULL) {
        *at = make_action(order, kind, microbatch, chunk);
    } else {
        struct action action = make_action(order, kind, microbatch, chunk);

        order->status = plan_append(order->plan, order->rank, &action);
    }
}

_Static_assert(ACTION_DEPENDS == 4, "make_action() empties as many dependencies");

struct group_walk group_walk_of(const struct plan_shape *shape, int32_t groups)
{
    int32_t rest = shape->microbatches % groups;

    return (struct group_walk){.chunks = shape->virtual_stages,
                               .size = shape->microbatches / groups + (rest > 0 ? 1 : 0),
                               .rest = rest};
}

struct group_walk group_walk_begin(const struct plan_shape *shape)
{
    int32_t groups = shape->microbatches / shape->ranks;

    if (groups < 1 || shape->schedule == SCHEDULE_BFS) {
        groups = 1;
    }
    return group_walk_of(shape, groups);
}

void order_add_next(struct order *order, enum action_kind kind, struct group_walk *walk)
{
    int32_t chunk = kind == ACTION_F ? walk->chunk : walk->chunks - 1 - walk->chunk;

    order_add(order, kind, walk->first + walk->offset, chunk);
    walk->offset++;
    if (walk->offset < walk->size) {
        return;
    }
    walk->offset = 0;
    walk->chunk++;
    if (walk->chunk < walk->chunks) {
        return;
    }
    walk->chunk = 0;
    walk->first += walk->size;
    if (walk->rest > 0) {
        walk->rest--;
        walk->size -= walk->rest == 0 ? 1 : 0;
    }
}
