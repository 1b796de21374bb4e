#include "scheduler/search_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static size_t count_ops(const struct search_space *space)
{
    return (size_t)space->ranks * (size_t)space->length;
}

enum status search_order_init(struct search_order *order, const struct search_space *space)
{
    *order = (struct search_order){.space = space};
    order->ops = calloc(count_ops(space), sizeof(*order->ops));
    if (order->ops == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "schedule search: no memory for %zu actions",
                           count_ops(space));
    }
    return STATUS_OK;
}

void search_order_release(struct search_order *order)
{
    free(order->ops);
    memset(order, 0, sizeof(*order));
}

void search_order_copy(struct search_order *order, const struct search_order *from)
{
    ENSURE(order->space == from->space, "two spaces of %d and %d ranks", order->space->ranks,
           from->space->ranks);
    memcpy(order->ops, from->ops, count_ops(order->space) * sizeof(*order->ops));
}

/* Where a line is being taken to. */
struct taking {
    const struct search_space *space;
    struct search_op *line;
    int32_t count;
};

static enum status take_op(struct taking *taking, const struct action *action,
                           enum search_kind kind)
{
    if (taking->count == taking->space->length || action->virtual_stage < 0 ||
        action->virtual_stage >= taking->space->stages) {
        return status_fail(STATUS_ERR_INVALID,
                           "schedule search: a plan with more actions than %d a rank",
                           taking->space->length);
    }
    taking->line[taking->count++] = (struct search_op){
        .type = search_type_of(action->virtual_stage, kind), .microbatch = action->microbatch};
    return STATUS_OK;
}

static enum status take_action(struct taking *taking, const struct action *action)
{
    switch ((enum action_kind)action->kind) {
    case ACTION_F:
        return take_op(taking, action, SEARCH_F);
    case ACTION_I:
        return take_op(taking, action, SEARCH_I);
    case ACTION_W:
        return take_op(taking, action, SEARCH_W);
    case ACTION_B:
        TRY(take_op(taking, action, SEARCH_I));
        return take_op(taking, action, SEARCH_W);
    default:
        return status_fail(STATUS_ERR_INVALID, "schedule search: %s is no compute action",
                           action_kind_text((enum action_kind)action->kind));
    }
}

static enum status take_line(struct search_order *order, const struct plan_line *from, int32_t rank)
{
    struct taking taking = {.space = order->space, .line = search_order_line(order, rank)};
    int32_t i;

    for (i = 0; i < from->count; i++) {
        TRY(take_action(&taking, &from->actions[i]));
    }
    if (taking.count != order->space->length) {
        return status_fail(STATUS_ERR_INVALID,
                           "schedule search: rank %d has %d actions, expected %d", rank,
                           taking.count, order->space->length);
    }
    return STATUS_OK;
}

enum status search_order_take(struct search_order *order, const struct plan *compute)
{
    const struct search_space *space = order->space;
    int32_t rank;

    if (compute->shape.ranks != space->ranks || compute->shape.virtual_stages != space->chunks ||
        compute->shape.microbatches != space->microbatches ||
        memcmp(compute->rank_of, space->rank_of, (size_t)space->stages * sizeof(int32_t)) != 0) {
        return status_fail(
            STATUS_ERR_INVALID,
            "schedule search: a plan of %d ranks, %d chunks and %d micro-batches, or "
            "with another placement, expected %d, %d and %d",
            compute->shape.ranks, compute->shape.virtual_stages, compute->shape.microbatches,
            space->ranks, space->chunks, space->microbatches);
    }
    for (rank = 0; rank < space->ranks; rank++) {
        TRY(take_line(order, &compute->lines[rank], rank));
    }
    return STATUS_OK;
}

static struct action action_of(const struct search_space *space, struct search_op op)
{
    static const enum action_kind kinds[SEARCH_KINDS] = {ACTION_F, ACTION_I, ACTION_W};
    const struct search_type *type = &space->type[op.type];
    struct action action = {.kind = (uint8_t)kinds[type->kind],
                            .chunk = (uint16_t)space->chunk_of[type->stage],
                            .virtual_stage = type->stage,
                            .microbatch = op.microbatch,
                            .peer = ACTION_NONE,
                            .sequence = ACTION_NONE,
                            .slot = ACTION_NONE,
                            .gradient = ACTION_NONE,
                            .landing = ACTION_NONE,
                            .target = ACTION_NONE};
    int i;

    for (i = 0; i < ACTION_DEPENDS; i++) {
        action.depends[i] = ACTION_NONE;
    }
    return action;
}

static enum status put_line(const struct search_order *order, int32_t rank, struct plan *plan)
{
    const struct search_op *line = search_order_line(order, rank);
    int32_t i;

    TRY(plan_reserve(plan, rank, order->space->length));
    for (i = 0; i < order->space->length; i++) {
        struct action action = action_of(order->space, line[i]);

        TRY(plan_append(plan, rank, &action));
    }
    return STATUS_OK;
}

static enum status fill_plan(const struct search_order *order, struct plan *plan)
{
    const struct search_space *space = order->space;
    int32_t rank;

    memcpy(plan->rank_of, space->rank_of, (size_t)space->stages * sizeof(int32_t));
    memcpy(plan->chunk_of, space->chunk_of, (size_t)space->stages * sizeof(int32_t));
    for (rank = 0; rank < space->ranks; rank++) {
        TRY(put_line(order, rank, plan));
    }
    return STATUS_OK;
}

enum status search_order_plan(const struct search_order *order, struct plan **compute_out)
{
    struct plan *plan = NULL;
    enum status status;

    TRY(plan_create(&order->space->shape, &plan));
    status = fill_plan(order, plan);
    if (status < 0) {
        plan_destroy(&plan);
        return status;
    }
    *compute_out = plan;
    return STATUS_OK;
}
