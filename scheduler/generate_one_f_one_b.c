/* generate_one_f_one_b -- orders of whole backwards: some forwards, then in turn, then the rest. */
#include "scheduler/generate_order.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Forwards before the first backward: enough for a micro-batch to come back from the last rank, and
 * with several chunks for the first group to have passed all but one. */
static int64_t warmup_of(const struct plan_shape *shape, int32_t rank)
{
    int64_t below = shape->ranks - 1 - rank;
    int64_t v = shape->virtual_stages;

    if (shape->schedule == SCHEDULE_GPIPE || shape->schedule == SCHEDULE_BFS) {
        return shape->microbatches * v;
    }
    return v == 1 ? below + smaller(shape->extra_in_flight, below)
                  : 2 * below + (v - 1) * group_walk_begin(shape).size;
}

/* With all forwards as warm-up there is nothing in turn: gpipe and bfs. */
void order_one_f_one_b(struct order *order)
{
    const struct plan_shape *shape = &order->plan->shape;
    struct group_walk forward = group_walk_begin(shape);
    struct group_walk backward = forward;
    int64_t all = (int64_t)shape->microbatches * shape->virtual_stages;
    int64_t warmup = smaller(warmup_of(shape, order->rank), all);
    int64_t k;

    for (k = 0; k < warmup; k++) {
        order_add_next(order, ACTION_F, &forward);
    }
    for (k = warmup; k < all; k++) {
        order_add_next(order, ACTION_F, &forward);
        order_add_next(order, ACTION_B, &backward);
    }
    for (k = all - warmup; k < all; k++) {
        order_add_next(order, ACTION_B, &backward);
    }
}

void order_forwards(struct order *order, struct group_walk forward)
{
    const struct plan_shape *shape = &order->plan->shape;
    int64_t left = (int64_t)shape->microbatches * shape->virtual_stages;

    for (; left > 0; left--) {
        order_add_next(order, ACTION_F, &forward);
    }
}
