#include "stages/ideal_bubble.h"

int64_t ideal_bubble_steps(const struct plan *lowered)
{
    int64_t actions = 0;

    for (int32_t rank = 0; rank < lowered->shape.ranks; rank++) {
        actions += lowered->lines[rank].count;
    }
    return actions <= IDEAL_BUBBLE_ACTIONS
               ? 1
               : (actions + IDEAL_BUBBLE_ACTIONS - 1) / IDEAL_BUBBLE_ACTIONS;
}

enum status ideal_bubble_next(struct ideal_bubble *bubble, const struct plan *lowered,
                              const struct plan_costs *costs, double *share_out)
{
    if (bubble->asked % ideal_bubble_steps(lowered) == 0) {
        TRY(plan_idle_share(lowered, costs, &bubble->share));
        bubble->simulations++;
    }
    bubble->asked++;
    *share_out = bubble->share;
    return STATUS_OK;
}
