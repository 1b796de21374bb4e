#include "tests/stages/landing.h"

#include <stdlib.h>
#include <string.h>

/* The tables of one pass. */
struct landings {
    struct plan *plan;
    int32_t *sent[LANE_DIRECTIONS];       /* owns [0], two tables; messages into a virtual stage */
    int32_t *received[LANE_DIRECTIONS];   /* the same, counted by the receiver */
    int32_t *landing_of[LANE_DIRECTIONS]; /* owns [0]; of one rank, [chunk · m + microbatch] */
};

static bool landings_init(struct landings *landings, struct plan *plan)
{
    size_t stages = (size_t)plan_stages(plan);
    size_t cells = (size_t)plan->shape.virtual_stages * (size_t)plan->shape.microbatches;

    memset(landings, 0, sizeof(*landings));
    landings->plan = plan;
    landings->sent[LANE_F] = calloc(4 * stages, sizeof(int32_t));
    landings->landing_of[LANE_F] = malloc(2 * cells * sizeof(int32_t));
    if (landings->sent[LANE_F] == NULL || landings->landing_of[LANE_F] == NULL) {
        return false;
    }
    landings->sent[LANE_B] = landings->sent[LANE_F] + stages;
    landings->received[LANE_F] = landings->sent[LANE_F] + 2 * stages;
    landings->received[LANE_B] = landings->sent[LANE_F] + 3 * stages;
    landings->landing_of[LANE_B] = landings->landing_of[LANE_F] + cells;
    return true;
}

static void landings_release(struct landings *landings)
{
    free(landings->sent[LANE_F]);
    free(landings->landing_of[LANE_F]);
}

/* The landing buffer of the message after `*count` others into `stage`. */
static int32_t next_landing(const struct plan *plan, int32_t stage, enum lane_direction direction,
                            int32_t *count)
{
    const struct plan_buffers *buffers =
        plan_buffers_of(plan, plan->rank_of[stage], plan->chunk_of[stage]);
    int32_t landings = direction == LANE_F ? buffers->landing_f : buffers->landing_b;

    return (*count)++ % landings;
}

static void number_action(struct landings *landings, struct action *action)
{
    const struct plan *plan = landings->plan;
    enum action_kind kind = (enum action_kind)action->kind;
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t *landing_of;

    if (kind == ACTION_SEND) {
        int32_t target = plan_target(plan, action->virtual_stage, direction);

        action->landing = next_landing(plan, target, direction, &landings->sent[direction][target]);
        return;
    }
    if (kind != ACTION_RECV && !action_is_compute(kind)) {
        return;
    }
    if (action_is_compute(kind)) {
        direction = kind == ACTION_F ? LANE_F : LANE_B;
        if (plan_source(plan, action->virtual_stage, direction) == ACTION_NONE) {
            return;
        }
    }
    landing_of =
        &landings->landing_of[direction][(size_t)action->chunk * (size_t)plan->shape.microbatches +
                                         (size_t)action->microbatch];
    if (kind == ACTION_RECV) {
        *landing_of = next_landing(plan, action->virtual_stage, direction,
                                   &landings->received[direction][action->virtual_stage]);
    }
    action->landing = *landing_of;
}

enum status landing_number(struct plan *lowered)
{
    size_t cells = (size_t)lowered->shape.virtual_stages * (size_t)lowered->shape.microbatches;
    struct landings landings;
    int32_t rank;
    int32_t i;

    if (!landings_init(&landings, lowered)) {
        landings_release(&landings);
        return status_fail(STATUS_ERR_NO_MEMORY, "test: no memory for %d landing counts",
                           plan_stages(lowered));
    }
    for (rank = 0; rank < lowered->shape.ranks; rank++) {
        memset(landings.landing_of[LANE_F], 0xff, 2 * cells * sizeof(int32_t));
        for (i = 0; i < lowered->lines[rank].count; i++) {
            number_action(&landings, &lowered->lines[rank].actions[i]);
        }
    }
    landings_release(&landings);
    return STATUS_OK;
}
