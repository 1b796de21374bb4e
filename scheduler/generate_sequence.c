/* generate_sequence -- orders of slices of sequences. */
#include "scheduler/generate_order.h"

/* Enough forwards for the first piece to come back from the last rank, and for a whole micro-batch to be
 * there when its last slice goes back first. */
void order_sequence_slices(struct order *order)
{
    const struct plan *plan = order->plan;
    int32_t all = plan->shape.microbatches;
    int32_t warmup = plan->shape.ranks - 2 - order->rank + plan_slices(plan);
    int32_t k;

    warmup = warmup < all ? warmup : all;
    for (k = 0; k < warmup; k++) {
        order_add(order, ACTION_F, k, 0);
    }
    for (k = warmup; k < all; k++) {
        order_add(order, ACTION_F, k, 0);
        order_add(order, ACTION_B, plan_backward_place(plan, k - warmup), 0);
    }
    for (k = all - warmup; k < all; k++) {
        order_add(order, ACTION_B, plan_backward_place(plan, k), 0);
    }
}
