#include "scheduler/sequences.h"

int32_t plan_sequences(const struct plan *plan, int32_t rank, int32_t chunk)
{
    const struct plan_line *line = &plan->lines[rank];
    bool trains = plan_trains(plan);
    int32_t k = plan_slices(plan);
    int32_t held = 0;
    int32_t most = 0;

    for (int32_t i = 0; k > 1 && i < line->count; i++) {
        const struct action *action = &line->actions[i];
        int32_t slice = action->microbatch % k;
        bool forward = action->kind == ACTION_F;
        bool backward = action->kind == ACTION_I || action->kind == ACTION_B;

        if (action->chunk != chunk || (!forward && !backward)) {
            continue;
        }
        held += forward && slice == 0 ? 1 : 0;
        most = held > most ? held : most;
        held -= (trains ? backward && slice == 0 : slice == k - 1) ? 1 : 0;
    }
    return most;
}

int32_t plan_landing_window(const struct plan *plan, int32_t rank, int32_t chunk)
{
    const struct plan_line *line = &plan->lines[rank];
    int32_t forwards = 0;
    int32_t most = 0;

    for (int32_t i = 0; plan_slices(plan) > 1 && i < line->count; i++) {
        const struct action *action = &line->actions[i];
        int32_t window = forwards - action->microbatch;

        if (action->chunk != chunk) {
            continue;
        }
        forwards += action->kind == ACTION_F ? 1 : 0;
        if ((action->kind == ACTION_I || action->kind == ACTION_B) && window > most) {
            most = window;
        }
    }
    return most;
}
