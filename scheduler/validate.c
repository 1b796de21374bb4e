#include "scheduler/validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/deadlock.h"
#include "scheduler/depth.h"
#include "scheduler/gathering.h"
#include "scheduler/graph.h"
#include "scheduler/lifetime.h"
#include "scheduler/plan_index.h"
#include "scheduler/refusal.h"

#define CYCLE_BYTES 840

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

static enum status for_each_cell(const struct plan *plan, const struct plan_index *index,
                                 cell_check_fn check)
{
    struct cell cell = {.plan = plan, .index = index, .rank = plan->rank_of[0]};

    while (cell.stage < index->stages) {
        TRY(check(&cell));
        cell.microbatch++;
        if (cell.microbatch == index->microbatches) {
            cell.microbatch = 0;
            cell.stage++;
            cell.rank = cell.stage < index->stages ? plan->rank_of[cell.stage] : 0;
        }
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

/* `later` must stand behind `earlier` in the line and name it among its dependencies. */
static enum status check_after(const struct cell *cell, int32_t earlier, int32_t later)
{
    const struct action *actions = cell->plan->lines[cell->rank].actions;
    char text[32];
    int i;

    if (earlier == ACTION_NONE || later == ACTION_NONE || earlier == later) {
        return STATUS_OK;
    }
    for (i = 0; i < ACTION_DEPENDS && earlier < later; i++) {
        if (actions[later].depends[i] == earlier) {
            return STATUS_OK;
        }
    }
    (void)action_print(&actions[earlier], text, sizeof(text));
    return REFUSAL(cell->plan, cell->rank, later, "%s action %d (%s)%s",
                   earlier > later ? "stands before" : "does not name", earlier, text,
                   earlier > later ? " that it needs" : " among its dependencies");
}

/* The message into the cell, its consumer, what that makes, and the message out of it. */
static enum status check_direction(const struct cell *cell, enum lane_direction direction)
{
    int32_t before = cell->stage + (direction == LANE_F ? -1 : 1);
    int32_t consumer = at(cell, plan_place_compute(direction));

    TRY(check_after(cell, at(cell, plan_place_receive(direction)), consumer));
    TRY(check_after(cell, consumer, at(cell, plan_place_send(direction))));
    if (before >= 0 && before < cell->index->stages && cell->plan->rank_of[before] == cell->rank) {
        TRY(check_after(
            cell,
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
    TRY(check_after(cell, at(cell, PLACE_F), at(cell, PLACE_I)));
    return check_after(cell, at(cell, PLACE_I), at(cell, PLACE_W));
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

/* What has been seen of each lane while the lines are read. */
struct lane_counts {
    int32_t *sent;
    int32_t *received;
    int32_t *last_send; /* index in the sender's line */
};

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

static enum status check_lane_action(const struct plan *plan, const struct plan_index *index,
                                     struct lane_counts *counts, int32_t rank, int32_t i)
{
    const struct action *action = &plan->lines[rank].actions[i];
    enum lane_direction direction = (enum lane_direction)action->direction;
    bool sends = action->kind == ACTION_SEND;
    int32_t end =
        sends ? plan_target(plan, action->virtual_stage, direction) : action->virtual_stage;
    int32_t lane = index->lane_of[direction][end];
    int32_t *count = sends ? &counts->sent[lane] : &counts->received[lane];

    if (action->sequence != *count) {
        return REFUSAL(plan, rank, i, "is numbered message %d of its lane, but is the %d-th here",
                       action->sequence, *count);
    }
    (*count)++;
    if (sends) {
        TRY(check_out_buffer(plan, index, rank, i, counts->last_send[lane]));
        counts->last_send[lane] = i;
    }
    return STATUS_OK;
}

static enum status check_line_lanes(const struct plan *plan, const struct plan_index *index,
                                    struct lane_counts *counts, int32_t rank)
{
    int32_t i;

    for (i = 0; i < plan->lines[rank].count; i++) {
        uint8_t kind = plan->lines[rank].actions[i].kind;

        if (kind != ACTION_SEND && kind != ACTION_RECV) {
            continue;
        }
        TRY(check_lane_action(plan, index, counts, rank, i));
    }
    return STATUS_OK;
}

static enum status check_lanes(const struct plan *plan, const struct plan_index *index)
{
    size_t lanes = (size_t)index->lanes + 1;
    struct lane_counts counts = {.sent = calloc(3 * lanes, sizeof(int32_t))};
    enum status status = STATUS_OK;
    int32_t rank;

    if (counts.sent == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "validation: no memory for %zu lanes", lanes);
    }
    counts.received = counts.sent + lanes;
    counts.last_send = counts.received + lanes;
    memset(counts.last_send, 0xff, lanes * sizeof(int32_t));
    for (rank = 0; rank < plan->shape.ranks && status == STATUS_OK; rank++) {
        status = check_line_lanes(plan, index, &counts, rank);
    }
    free(counts.sent);
    if (status < 0) {
        return status;
    }
    return for_each_cell(plan, index, check_tags);
}

/* Names the cycle, and the lane_depth that would open it where one does. */
static enum status refuse_deadlock(const struct plan *plan, const struct plan_index *index,
                                   const struct deadlock *deadlock)
{
    struct graph_node node = deadlock->edges[0].from;
    char cycle[CYCLE_BYTES];
    char remedy[48] = "at any lane_depth";
    int32_t depth;

    TRY(plan_free_depth(plan, index, &depth));
    if (depth > 0) {
        (void)snprintf(remedy, sizeof(remedy), "at lane_depth %d, but not at %d",
                       plan->shape.lane_depth, depth);
    }
    deadlock_print(deadlock, plan, cycle, sizeof(cycle));
    return REFUSAL(plan, node.rank, node.index, "deadlock %s, cycle of %d: %s", remedy,
                   deadlock->count, cycle);
}

static enum status check_deadlock(const struct plan *plan, const struct plan_index *index)
{
    struct graph graph = {.plan = plan, .index = index};
    struct deadlock deadlock;
    enum status status = STATUS_OK;

    TRY(deadlock_find(&graph, &deadlock));
    if (deadlock.count > 0) {
        status = refuse_deadlock(plan, index, &deadlock);
    }
    deadlock_release(&deadlock);
    return status;
}

static enum status check_step(const struct plan *plan, const struct plan_index *index, int32_t rank)
{
    const struct plan_line *line = &plan->lines[rank];
    bool trains = plan_trains(plan);
    int32_t step = index->ends[rank].step;

    if (step != ACTION_NONE && (!trains || step + 1 < line->count)) {
        return REFUSAL(plan, rank, step, "%s",
                       trains ? "is not the last action of its rank"
                              : "has no place in a forward-only plan");
    }
    if (trains && step == ACTION_NONE) {
        return REFUSAL_OF_RANK(plan, rank, "does not end with STEP");
    }
    return STATUS_OK;
}

/* The last compute action or SEND of a rank; what ends its step stands behind it. */
static int32_t last_work(const struct plan_line *line, bool sends)
{
    int32_t i = line->count - 1;

    while (i >= 0 && !action_is_compute((enum action_kind)line->actions[i].kind) &&
           !(sends && line->actions[i].kind == ACTION_SEND)) {
        i--;
    }
    return i;
}

/* One REDUCE a rank, behind its last compute action, which it names, and its last SEND; STEP names
 * the REDUCE. */
static enum status check_reduce(const struct plan *plan, const struct plan_index *index,
                                int32_t rank)
{
    const struct plan_line *line = &plan->lines[rank];
    struct cell cell = {.plan = plan, .index = index, .rank = rank};
    int32_t reduce = index->ends[rank].reduce;
    int32_t again = index->ends[rank].reduce_again;

    if (reduce != ACTION_NONE && !plan_reduces(plan)) {
        return REFUSAL(plan, rank, reduce, "has no place in this plan");
    }
    if (again != ACTION_NONE) {
        return REFUSAL(plan, rank, again, "repeats action %d (REDUCE)", reduce);
    }
    if (!plan_reduces(plan)) {
        return STATUS_OK;
    }
    if (reduce == ACTION_NONE) {
        return REFUSAL_OF_RANK(plan, rank, "has no REDUCE");
    }
    if (reduce < last_work(line, true)) {
        return REFUSAL(plan, rank, reduce, "stands before the last compute action or SEND, %d",
                       last_work(line, true));
    }
    TRY(check_after(&cell, last_work(line, false), reduce));
    return check_after(&cell, reduce, line->count - 1);
}

/* The head's SYNC waits for its last F; the owner's stands behind everything that its rank
 * computes and reduces, because whoever walks the line may wait in it; the owner's STEP waits for
 * it. */
static enum status check_sync(const struct plan *plan, const struct plan_index *index)
{
    int32_t head = plan->rank_of[index->stages - 1];
    int32_t owner = plan->rank_of[0];
    const struct plan_line *line = &plan->lines[owner];
    struct cell cell = {.plan = plan, .index = index, .stage = index->stages - 1, .rank = head};
    int32_t last = ACTION_NONE;
    int32_t i;

    if (!plan_syncs(plan)) {
        return STATUS_OK;
    }
    if (index->sync[0] == ACTION_NONE || index->sync[1] == ACTION_NONE) {
        return REFUSAL_OF_RANK(plan, index->sync[0] == ACTION_NONE ? head : owner, "has no SYNC");
    }
    for (cell.microbatch = 0; cell.microbatch < index->microbatches; cell.microbatch++) {
        int32_t forward = at(&cell, PLACE_F);

        last = forward > last ? forward : last;
    }
    TRY(check_after(&cell, last, index->sync[0]));
    for (i = index->sync[1] + 1; i < line->count; i++) {
        if (line->actions[i].kind != ACTION_STEP) {
            return REFUSAL(plan, owner, index->sync[1],
                           "stands before action %d: STEP alone may "
                           "follow the owner's SYNC",
                           i);
        }
    }
    cell.rank = owner;
    return check_after(&cell, index->sync[1], line->count - 1);
}

/* What ends the step of each rank. */
static enum status check_ends(const struct plan *plan, const struct plan_index *index)
{
    int32_t rank;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        TRY(check_step(plan, index, rank));
        TRY(check_reduce(plan, index, rank));
    }
    return check_sync(plan, index);
}

enum status plan_validate_indexed(const struct plan *plan, const struct plan_index *index)
{
    TRY(for_each_cell(plan, index, check_complete));
    TRY(for_each_cell(plan, index, check_precedence));
    TRY(gathering_check(plan));
    TRY(check_lanes(plan, index));
    TRY(lifetime_check_counts(plan));
    TRY(check_deadlock(plan, index));
    TRY(lifetime_check(plan, index));
    return check_ends(plan, index);
}

enum status plan_validate(const struct plan *lowered)
{
    struct plan_index index;
    enum status status;

    if (!lowered->lowered) {
        return status_fail(STATUS_ERR_REFUSED, "validation: the plan is not lowered yet");
    }
    TRY(plan_index_init(&index, lowered));
    status = plan_validate_indexed(lowered, &index);
    plan_index_release(&index);
    return status;
}
