#include "scheduler/generate.h"

#include <stdlib.h>

/* One line while it is made; the first failure stays. */
struct order {
    struct plan *plan;
    int32_t rank;
    const int32_t
        *stage_of; /* [rank · v + chunk]; NULL: a loop, chunk c of rank r is stage c·p + r */
    enum status status;
};

/* Where a line stands in the table of (micro-batch, chunk) that groups of micro-batches make. */
struct group_walk {
    int32_t chunks;
    int32_t size; /* of the group */
    int32_t rest; /* groups, this one included, that are one larger than the smallest */
    int32_t first;
    int32_t chunk;
    int32_t offset; /* in the group */
};

static int32_t stage_at(const struct order *order, int32_t chunk)
{
    const struct plan_shape *shape = &order->plan->shape;

    return order->stage_of == NULL
               ? chunk * shape->ranks + order->rank
               : order->stage_of[(size_t)order->rank * (size_t)shape->virtual_stages +
                                 (size_t)chunk];
}

static void add(struct order *order, enum action_kind kind, int32_t microbatch, int32_t chunk)
{
    struct action action = {.kind = (uint8_t)kind,
                            .chunk = (uint16_t)chunk,
                            .virtual_stage = stage_at(order, chunk),
                            .microbatch = microbatch,
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
    if (order->status == STATUS_OK) {
        order->status = plan_append(order->plan, order->rank, &action);
    }
}

static int32_t count_groups(const struct plan_shape *shape)
{
    int32_t groups = shape->microbatches / shape->ranks;

    return groups < 1 ? 1 : groups;
}

int32_t plan_group_size(const struct plan_shape *shape)
{
    int32_t groups = count_groups(shape);

    return shape->microbatches / groups + (shape->microbatches % groups > 0 ? 1 : 0);
}

/* `groups` groups whose sizes differ by at most one, larger first. */
static struct group_walk first_of(const struct plan_shape *shape, int32_t groups)
{
    int32_t rest = shape->microbatches % groups;

    return (struct group_walk){.chunks = shape->virtual_stages,
                               .size = shape->microbatches / groups + (rest > 0 ? 1 : 0),
                               .rest = rest};
}

static struct group_walk first_group(const struct plan_shape *shape)
{
    return first_of(shape, count_groups(shape));
}

/* Adds the next one of the table; backwards see the chunks from the other end. */
static void add_next(struct order *order, enum action_kind kind, struct group_walk *walk)
{
    int32_t chunk = kind == ACTION_F ? walk->chunk : walk->chunks - 1 - walk->chunk;

    add(order, kind, walk->first + walk->offset, chunk);
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

/* `warmup` forwards, then a forward and a backward in turn, then the backwards that are left.
 * With all forwards as `warmup` it is GPipe. */
static void add_with_warmup(struct order *order, int64_t warmup)
{
    const struct plan_shape *shape = &order->plan->shape;
    struct group_walk forward = first_group(shape);
    struct group_walk backward = forward;
    int64_t all = (int64_t)shape->microbatches * shape->virtual_stages;
    int64_t k;

    warmup = warmup < all ? warmup : all;
    for (k = 0; k < warmup; k++) {
        add_next(order, ACTION_F, &forward);
    }
    for (k = warmup; k < all; k++) {
        add_next(order, ACTION_F, &forward);
        add_next(order, ACTION_B, &backward);
    }
    for (k = all - warmup; k < all; k++) {
        add_next(order, ACTION_B, &backward);
    }
}

static void add_forwards(struct order *order, struct group_walk forward)
{
    const struct plan_shape *shape = &order->plan->shape;
    int64_t left = (int64_t)shape->microbatches * shape->virtual_stages;

    for (; left > 0; left--) {
        add_next(order, ACTION_F, &forward);
    }
}

/* Forwards before the first backward: enough for a micro-batch to come back from the last rank, and
 * with several chunks for the first group to have passed all but one. */
static int64_t warmup_of(const struct plan_shape *shape, int32_t rank)
{
    int64_t below = shape->ranks - 1 - rank;
    int64_t v = shape->virtual_stages;

    if (shape->schedule == SCHEDULE_GPIPE) {
        return shape->microbatches;
    }
    return v == 1 ? below : 2 * below + (v - 1) * plan_group_size(shape);
}

static enum status generate_line(struct plan *plan, int32_t rank)
{
    const struct plan_shape *shape = &plan->shape;
    struct order order = {.plan = plan, .rank = rank, .status = STATUS_OK};
    int32_t all = shape->microbatches * shape->virtual_stages;

    TRY(plan_reserve(plan, rank, plan_trains(plan) ? 2 * all : all));
    switch (shape->schedule) {
    case SCHEDULE_GPIPE:
    case SCHEDULE_1F1B:
    case SCHEDULE_INTERLEAVED_1F1B:
        add_with_warmup(&order, warmup_of(shape, rank));
        break;
    case SCHEDULE_FORWARD_ONLY:
        add_forwards(&order, first_group(shape));
        break;
    case SCHEDULE_FILE:
    case SCHEDULES:
        return status_fail(STATUS_ERR_INVALID, "schedule %s is read, not generated",
                           schedule_text(shape->schedule));
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

/* Groups that never fill a lane: the landing buffers of a chunk in a forward-only plan are one and
 * lane_depth. */
static int32_t count_small_groups(const struct plan_shape *shape)
{
    int32_t most = shape->lane_depth + 1;

    return shape->microbatches / most + (shape->microbatches % most > 0 ? 1 : 0);
}

static enum status generate_forwards(struct plan *plan, const int32_t *stage_of)
{
    const struct plan_shape *shape = &plan->shape;
    int32_t groups = count_small_groups(shape);
    int32_t rank;

    for (rank = 0; rank < shape->ranks; rank++) {
        struct order order = {.plan = plan, .rank = rank, .stage_of = stage_of};

        TRY(plan_reserve(plan, rank, shape->microbatches * shape->virtual_stages));
        add_forwards(&order, first_of(shape, groups));
        TRY(order.status);
    }
    return STATUS_OK;
}

/* NULL where memory is short; the caller frees it. */
static int32_t *list_stages(const struct plan *plan)
{
    size_t v = (size_t)plan->shape.virtual_stages;
    int32_t *stage_of = calloc((size_t)plan_stages(plan), sizeof(*stage_of));
    int32_t stage;

    for (stage = 0; stage_of != NULL && stage < plan_stages(plan); stage++) {
        stage_of[(size_t)plan->rank_of[stage] * v + (size_t)plan->chunk_of[stage]] = stage;
    }
    return stage_of;
}

enum status plan_generate_evaluation(const struct plan *training, struct plan **plan_out)
{
    struct plan_shape shape = training->shape;
    struct plan *plan = NULL;
    int32_t *stage_of = NULL;
    enum status status;

    shape.schedule = SCHEDULE_FORWARD_ONLY;
    if (plan_is_loop(training)) {
        return plan_generate(&shape, plan_out);
    }
    TRY(plan_create(&shape, &plan));
    TRY_OR(fail, status, plan_place_as(plan, training));
    stage_of = list_stages(training);
    status = stage_of != NULL
                 ? generate_forwards(plan, stage_of)
                 : status_fail(STATUS_ERR_NO_MEMORY, "plan: no memory for a placement of %d",
                               plan_stages(training));
    free(stage_of);
    if (status == STATUS_OK) {
        *plan_out = plan;
        return STATUS_OK;
    }
fail:
    plan_destroy(&plan);
    return status;
}
