#include "scheduler/generate.h"

/* One line while it is made; the first failure stays. */
struct order {
    struct plan *plan;
    int32_t rank;
    enum status status;
};

/* With one chunk a rank, rank r holds virtual stage r. */
static void add(struct order *order, enum action_kind kind, int32_t microbatch)
{
    struct action action = {.kind = (uint8_t)kind,
                            .virtual_stage = order->rank,
                            .microbatch = microbatch,
                            .peer = ACTION_NONE,
                            .sequence = ACTION_NONE,
                            .slot = ACTION_NONE,
                            .gradient = ACTION_NONE,
                            .landing = ACTION_NONE};
    int i;

    for (i = 0; i < ACTION_DEPENDS; i++) {
        action.depends[i] = ACTION_NONE;
    }
    if (order->status == STATUS_OK) {
        order->status = plan_append(order->plan, order->rank, &action);
    }
}

static void add_range(struct order *order, enum action_kind kind, int32_t first, int32_t end)
{
    int32_t microbatch;

    for (microbatch = first; microbatch < end; microbatch++) {
        add(order, kind, microbatch);
    }
}

/* `warmup` forwards, then a forward and a backward in turn, then the backwards that are left.
 * With `warmup` = m it is GPipe. */
static void add_with_warmup(struct order *order, int32_t warmup, int32_t microbatches)
{
    int32_t k;

    add_range(order, ACTION_F, 0, warmup);
    for (k = 0; k < microbatches - warmup; k++) {
        add(order, ACTION_F, warmup + k);
        add(order, ACTION_B, k);
    }
    add_range(order, ACTION_B, microbatches - warmup, microbatches);
}

static enum status generate_line(struct plan *plan, int32_t rank)
{
    struct order order = {.plan = plan, .rank = rank, .status = STATUS_OK};
    int32_t m = plan->shape.microbatches;
    int32_t below = plan->shape.ranks - 1 - rank;

    TRY(plan_reserve(plan, rank, plan_trains(plan) ? 2 * m : m));
    switch (plan->shape.schedule) {
    case SCHEDULE_GPIPE:
        add_with_warmup(&order, m, m);
        break;
    case SCHEDULE_1F1B:
        add_with_warmup(&order, below < m ? below : m, m);
        break;
    case SCHEDULE_FORWARD_ONLY:
        add_range(&order, ACTION_F, 0, m);
        break;
    case SCHEDULE_FILE:
    case SCHEDULES:
        return status_fail(STATUS_ERR_INVALID, "schedule %s is read, not generated",
                           schedule_text(plan->shape.schedule));
    }
    return order.status;
}

enum status plan_generate(const struct plan_shape *shape, struct plan **plan_out)
{
    struct plan *plan = NULL;
    enum status status;
    int32_t rank;

    TRY(plan_create(shape, &plan));
    for (rank = 0; rank < shape->ranks; rank++) {
        TRY_OR(fail, status, generate_line(plan, rank));
    }
    *plan_out = plan;
    return STATUS_OK;

fail:
    plan_destroy(&plan);
    return status;
}
