#include "scheduler/generate.h"

#include <stdlib.h>

#include "scheduler/generate_order.h"

/* Messages that come to the end of the loop before it is their turn though the group is no larger
 * than p. In izb of an odd number of chunks: forwards of the middle one, before rank 0 has ended as
 * many of the group before. In interleaved_1f1b: gradients, which early send brings round before
 * rank p-1 has ended the W beside them. */
static int32_t early_messages(const struct plan_shape *shape, int32_t stage,
                              enum lane_direction direction)
{
    int32_t v = shape->virtual_stages;
    bool middle = v > 1 && v % 2 == 1 && stage == v / 2 * shape->ranks;
    bool forwards = shape->schedule == SCHEDULE_IZB && direction == LANE_F && middle;
    bool gradients =
        shape->schedule == SCHEDULE_INTERLEAVED_1F1B && direction == LANE_B && shape->early_send;

    return forwards || gradients ? (shape->ranks + 1) / 2 : 0;
}

int32_t plan_lane_excess(const struct plan *plan, int32_t stage, enum lane_direction direction)
{
    const struct plan_shape *shape = &plan->shape;
    bool rounds = shape->schedule == SCHEDULE_INTERLEAVED_1F1B || shape->schedule == SCHEDULE_BFS ||
                  shape->schedule == SCHEDULE_IZB || shape->schedule == SCHEDULE_FORWARD_ONLY;
    int32_t end = direction == LANE_F ? 0 : shape->ranks - 1;
    int32_t group = group_walk_begin(shape).size;
    int32_t excess = shape->schedule == SCHEDULE_BFS ? group : group - shape->ranks;

    if (!rounds || shape->placement != PLACEMENT_LOOP || stage % shape->ranks != end) {
        return 0;
    }
    return (excess > 0 ? excess : 0) + early_messages(shape, stage, direction);
}

static enum status generate_line(struct plan *plan, int32_t rank)
{
    const struct plan_shape *shape = &plan->shape;
    struct order order = {.plan = plan, .rank = rank, .status = STATUS_OK};

    switch (shape->schedule) {
    case SCHEDULE_GPIPE:
    case SCHEDULE_1F1B:
    case SCHEDULE_INTERLEAVED_1F1B:
    case SCHEDULE_BFS:
        order_one_f_one_b(&order);
        break;
    case SCHEDULE_ZB_H1:
    case SCHEDULE_ZB_H2:
    case SCHEDULE_IZB:
        order_zero_bubble(&order);
        break;
    case SCHEDULE_ZB_V:
        order_zero_bubble_v(&order);
        break;
    case SCHEDULE_SEQ1F1B:
        order_sequence_slices(&order);
        break;
    case SCHEDULE_FORWARD_ONLY:
        order_forwards(&order, group_walk_begin(shape));
        break;
    case SCHEDULE_V_HALF: /* all lines at once */
    case SCHEDULE_V_MIN:
    case SCHEDULE_FILE:
    case SCHEDULES:
        return status_fail(STATUS_ERR_INVALID, "schedule %s has no line by itself",
                           schedule_text(shape->schedule));
    }
    return order.status;
}

/* Actions of a line: F and B, or F, I and W. */
static int32_t count_line(const struct plan_shape *shape)
{
    bool split = shape->schedule == SCHEDULE_ZB_H1 || shape->schedule == SCHEDULE_ZB_H2 ||
                 shape->schedule == SCHEDULE_IZB || shape->schedule == SCHEDULE_ZB_V ||
                 shape->schedule == SCHEDULE_V_HALF || shape->schedule == SCHEDULE_V_MIN;
    int32_t kinds = split ? 3 : 2;

    return shape->microbatches * shape->virtual_stages *
           (schedule_trains(shape->schedule) ? kinds : 1);
}

static bool is_pattern(enum schedule schedule)
{
    return schedule == SCHEDULE_V_HALF || schedule == SCHEDULE_V_MIN;
}

static enum status generate_lines(struct plan *plan)
{
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        TRY(plan_reserve(plan, rank, count_line(&plan->shape)));
    }
    if (is_pattern(plan->shape.schedule)) {
        return order_pattern(plan, true);
    }
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        TRY(generate_line(plan, rank));
    }
    return STATUS_OK;
}

/* Forwards on a zigzag come back to the rank that they left in small groups, as on any placement
 * that is no loop. */
static bool goes_in_small_groups(const struct plan_shape *shape)
{
    return shape->schedule == SCHEDULE_FORWARD_ONLY && shape->placement != PLACEMENT_LOOP;
}

bool plan_generates_lines(const struct plan *plan)
{
    return plan->shape.schedule != SCHEDULE_FILE && !is_pattern(plan->shape.schedule) &&
           !goes_in_small_groups(&plan->shape);
}

enum status plan_generate_line(struct plan *plan, int32_t rank)
{
    TRY(plan_reserve(plan, rank, count_line(&plan->shape)));
    return generate_line(plan, rank);
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
        order_forwards(&order, group_walk_of(shape, groups));
        TRY(order.status);
    }
    return STATUS_OK;
}

enum status plan_generate(const struct plan_shape *shape, struct plan **plan_out)
{
    struct plan *plan = NULL;
    enum status status;

    TRY(plan_create(shape, &plan));
    if (goes_in_small_groups(&plan->shape)) {
        status = generate_forwards(plan, NULL);
    } else {
        status = generate_lines(plan);
    }
    if (status < 0) {
        plan_destroy(&plan);
        return status;
    }
    *plan_out = plan;
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

bool plan_evaluation_shape(const struct plan *training, struct plan_shape *shape_out)
{
    *shape_out = training->shape;
    shape_out->schedule = SCHEDULE_FORWARD_ONLY;
    shape_out->extra_in_flight = 0;
    if (!plan_is_loop(training)) {
        return false;
    }
    shape_out->placement = PLACEMENT_LOOP;
    return true;
}

enum status plan_generate_evaluation(const struct plan *training, struct plan **plan_out)
{
    struct plan_shape shape;
    struct plan *plan = NULL;
    int32_t *stage_of = NULL;
    enum status status;

    if (plan_evaluation_shape(training, &shape)) {
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
