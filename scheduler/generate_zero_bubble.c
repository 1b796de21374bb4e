/* generate_zero_bubble -- zb_h1, zb_h2, izb: W is put off until the rank would have to wait. */
#include "scheduler/generate_order.h"

/* What tells one from the other: on rank r, W of the k-th backward stands behind I of backward
 * k + lag. */
struct delay {
    int64_t warmup; /* forwards before the first I */
    int64_t lag;
};

static struct delay delay_of(const struct plan_shape *shape, int32_t rank)
{
    int64_t below = shape->ranks - 1 - rank;
    int64_t v = shape->virtual_stages;

    switch (shape->schedule) {
    case SCHEDULE_ZB_H1:
        return (struct delay){.warmup = below, .lag = rank};
    case SCHEDULE_ZB_H2:
        return (struct delay){.warmup = 2 * below + 1, .lag = 2 * (int64_t)rank};
    default: /* I goes back at once, so that a hop takes one chunk and not two */
        return (struct delay){.warmup = below + (v - 1) * group_walk_begin(shape).size,
                              .lag = rank};
    }
}

/* zb_h2 has one micro-batch more in flight than there is room for before its W: the forward comes
 * behind W. The others begin the forward first, because the next rank waits for it. */
void order_zero_bubble(struct order *order)
{
    const struct plan_shape *shape = &order->plan->shape;
    struct delay delay = delay_of(shape, order->rank);
    bool forward_last = shape->schedule == SCHEDULE_ZB_H2;
    struct group_walk forward = group_walk_begin(shape);
    struct group_walk backward = forward;
    struct group_walk weight = forward;
    int64_t all = (int64_t)shape->microbatches * shape->virtual_stages;
    int64_t begun = 0;
    int64_t k;

    for (; begun < delay.warmup && begun < all; begun++) {
        order_add_next(order, ACTION_F, &forward);
    }
    for (k = 0; k < all; k++) {
        if (!forward_last && begun < all) {
            order_add_next(order, ACTION_F, &forward);
            begun++;
        }
        order_add_next(order, ACTION_I, &backward);
        if (k >= delay.lag) {
            order_add_next(order, ACTION_W, &weight);
        }
        if (forward_last && begun < all) {
            order_add_next(order, ACTION_F, &forward);
            begun++;
        }
    }
    for (k = all > delay.lag ? all - delay.lag : 0; k < all; k++) {
        order_add_next(order, ACTION_W, &weight);
    }
}
