#include "scheduler/lane_order.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/refusal.h"

/* The producer of the next message of a lane waits for the SEND before, which holds the out
 * buffer. */
static enum status check_out_buffer(const struct plan *plan, const struct plan_index *index,
                                    int32_t rank, int32_t send, int32_t before)
{
    const struct plan_line *line = &plan->lines[rank];
    const struct action *action = &line->actions[send];
    int32_t producer =
        plan_index_at(index, plan_place_compute((enum lane_direction)action->direction),
                      action->virtual_stage, action->microbatch);
    int i;

    if (before == ACTION_NONE) {
        return STATUS_OK;
    }
    for (i = 0; i < ACTION_DEPENDS; i++) {
        if (line->actions[producer].depends[i] == before) {
            return STATUS_OK;
        }
    }
    return REFUSAL(plan, rank, producer,
                   "does not wait for action %d, which still holds its out buffer", before);
}

enum status lane_order_init(struct lane_order *order, const struct plan_index *index)
{
    size_t lanes = (size_t)index->lanes + 1;

    order->sent = calloc(3 * lanes, sizeof(*order->sent));
    if (order->sent == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "validation: no memory for %zu lanes", lanes);
    }
    order->received = order->sent + lanes;
    order->last_send = order->received + lanes;
    memset(order->last_send, 0xff, lanes * sizeof(*order->last_send));
    return STATUS_OK;
}

void lane_order_release(struct lane_order *order)
{
    free(order->sent);
    *order = (struct lane_order){.sent = NULL};
}

enum status lane_order_check(const struct plan *plan, const struct plan_index *index,
                             struct lane_order *order, int32_t rank, int32_t i)
{
    const struct action *action = &plan->lines[rank].actions[i];
    enum lane_direction direction = (enum lane_direction)action->direction;
    bool sends = action->kind == ACTION_SEND;
    int32_t end =
        sends ? plan_target(plan, action->virtual_stage, direction) : action->virtual_stage;
    int32_t lane = index->lane_of[direction][end];
    int32_t *count = sends ? &order->sent[lane] : &order->received[lane];

    if (action->sequence != *count) {
        return REFUSAL(plan, rank, i, "is numbered message %d of its lane, but is the %d-th here",
                       action->sequence, *count);
    }
    (*count)++;
    if (sends) {
        TRY(check_out_buffer(plan, index, rank, i, order->last_send[lane]));
        order->last_send[lane] = i;
    }
    return STATUS_OK;
}

enum status lane_order_check_line(const struct plan *plan, const struct plan_index *index,
                                  struct lane_order *order, int32_t rank)
{
    int32_t i;

    for (i = 0; i < plan->lines[rank].count; i++) {
        uint8_t kind = plan->lines[rank].actions[i].kind;

        if (kind != ACTION_SEND && kind != ACTION_RECV) {
            continue;
        }
        TRY(lane_order_check(plan, index, order, rank, i));
    }
    return STATUS_OK;
}
