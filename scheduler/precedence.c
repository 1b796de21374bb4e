#include "scheduler/precedence.h"

#include "scheduler/plan_check.h"
#include "scheduler/refusal.h"

/* What is asked of one virtual stage and micro-batch. */
struct cell {
    const struct plan *plan;
    const struct plan_index *index;
    int32_t rank;
    int32_t stage;
    int32_t microbatch;
};

static int32_t at(const struct cell *cell, enum plan_place place)
{
    return plan_index_at(cell->index, place, cell->stage, cell->microbatch);
}

typedef enum status (*cell_check_fn)(const struct cell *cell);

static enum status for_each_microbatch(const struct plan *plan, const struct plan_index *index,
                                       int32_t stage, cell_check_fn check)
{
    struct cell cell = {.plan = plan, .index = index, .rank = plan->rank_of[stage], .stage = stage};

    for (; cell.microbatch < index->microbatches; cell.microbatch++) {
        TRY(check(&cell));
    }
    return STATUS_OK;
}

static enum status require(const struct cell *cell, enum plan_place place, bool expected,
                           const char *name)
{
    int32_t index = at(cell, place);

    if (expected && index == ACTION_NONE) {
        return REFUSAL_OF_RANK(cell->plan, cell->rank,
                               "has no %s of micro-batch %d on virtual stage %d", name,
                               cell->microbatch, cell->stage);
    }
    if (!expected && index != ACTION_NONE) {
        return REFUSAL(cell->plan, cell->rank, index, "has no place in this plan");
    }
    return STATUS_OK;
}

/* The messages of one direction out of the cell and into it. */
static enum status check_messages(const struct cell *cell, enum lane_direction direction)
{
    bool used = direction == LANE_F || plan_trains(cell->plan);
    bool sends = used && plan_target(cell->plan, cell->stage, direction) != ACTION_NONE;
    bool receives = used && plan_source(cell->plan, cell->stage, direction) != ACTION_NONE;

    TRY(require(cell, plan_place_send(direction), sends,
                direction == LANE_F ? "SEND_F" : "SEND_B"));
    return require(cell, plan_place_receive(direction), receives,
                   direction == LANE_F ? "RECV_F" : "RECV_B");
}

static enum status check_complete(const struct cell *cell)
{
    bool trains = plan_trains(cell->plan);

    TRY(require(cell, PLACE_F, true, "F"));
    TRY(require(cell, PLACE_I, trains, "B or I"));
    TRY(require(cell, PLACE_W, trains, "B or W"));
    TRY(check_messages(cell, LANE_F));
    return check_messages(cell, LANE_B);
}

/* The message into the cell, its consumer, what that makes, and the message out of it. */
static enum status check_direction(const struct cell *cell, enum lane_direction direction)
{
    int32_t before = cell->stage + (direction == LANE_F ? -1 : 1);
    int32_t consumer = at(cell, plan_place_compute(direction));

    TRY(plan_check_after(cell->plan, cell->rank, at(cell, plan_place_receive(direction)),
                         consumer));
    TRY(plan_check_after(cell->plan, cell->rank, consumer, at(cell, plan_place_send(direction))));
    if (before >= 0 && before < cell->index->stages && cell->plan->rank_of[before] == cell->rank) {
        TRY(plan_check_after(
            cell->plan, cell->rank,
            plan_index_at(cell->index, plan_place_compute(direction), before, cell->microbatch),
            consumer));
    }
    return STATUS_OK;
}

static enum status check_precedence(const struct cell *cell)
{
    TRY(check_direction(cell, LANE_F));
    if (!plan_trains(cell->plan)) {
        return STATUS_OK;
    }
    TRY(check_direction(cell, LANE_B));
    TRY(plan_check_after(cell->plan, cell->rank, at(cell, PLACE_F), at(cell, PLACE_I)));
    return plan_check_after(cell->plan, cell->rank, at(cell, PLACE_I), at(cell, PLACE_W));
}

/* Both ends of a message give it the same place in the lane. */
static enum status check_tags(const struct cell *cell)
{
    const struct plan *plan = cell->plan;
    int i;

    for (i = 0; i < LANE_DIRECTIONS; i++) {
        enum lane_direction direction = (enum lane_direction)i;
        int32_t source = plan_source(plan, cell->stage, direction);
        int32_t receive = at(cell, plan_place_receive(direction));
        int32_t send;
        int32_t sent;
        int32_t received;

        if (source == ACTION_NONE || receive == ACTION_NONE) {
            continue;
        }
        send = plan_index_at(cell->index, plan_place_send(direction), source, cell->microbatch);
        sent = plan->lines[plan->rank_of[source]].actions[send].sequence;
        received = plan->lines[cell->rank].actions[receive].sequence;
        if (sent != received) {
            return REFUSAL(plan, cell->rank, receive,
                           "is message %d of its lane here, but message %d at rank %d, action %d",
                           received, sent, plan->rank_of[source], send);
        }
    }
    return STATUS_OK;
}

enum status precedence_check_complete(const struct plan *plan, const struct plan_index *index,
                                      int32_t stage)
{
    return for_each_microbatch(plan, index, stage, check_complete);
}

enum status precedence_check(const struct plan *plan, const struct plan_index *index, int32_t stage)
{
    return for_each_microbatch(plan, index, stage, check_precedence);
}

enum status precedence_check_tags(const struct plan *plan, const struct plan_index *index,
                                  int32_t stage)
{
    return for_each_microbatch(plan, index, stage, check_tags);
}
