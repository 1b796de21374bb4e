#include "scheduler/plan_index.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/large.h"
#include "scheduler/refusal.h"

/* A table filled with ACTION_NONE, which is all bits set. */
static int32_t *none_table(size_t elems)
{
    int32_t *table = large_alloc(elems, sizeof(*table));

    if (table != NULL) {
        memset(table, 0xff, elems * sizeof(*table));
    }
    return table;
}

/* A cache line of a table, and lines that tables begin in different cache sets by. */
#define LINE_ELEMS  ((size_t)16)
#define STAGGER     ((size_t)5)
#define SET_LINES   ((size_t)64)
#define CELL_TABLES (PLACES + 2 * LANE_DIRECTIONS)

/* The tables by cell, of which a plan that is not lowered has the first few. */
static bool alloc_cells(struct plan_index *index, bool lowered)
{
    size_t lines = (size_t)index->stages * (index->row / LINE_ELEMS);
    size_t count = lowered ? CELL_TABLES : PLACE_W + 1;
    size_t elems = ((lines + SET_LINES - 1) / SET_LINES * SET_LINES + STAGGER) * LINE_ELEMS;
    int32_t *at = none_table(count * elems);
    size_t i;

    index->tables = at;
    for (i = 0; at != NULL && i < count; i++, at += elems) {
        if (i < PLACES) {
            index->place[i] = at;
        } else if (i < PLACES + LANE_DIRECTIONS) {
            index->order[i - PLACES] = at;
        } else {
            index->turn[i - PLACES - LANE_DIRECTIONS] = at;
        }
    }
    return index->tables != NULL;
}

static bool alloc_tables(struct plan_index *index, const struct plan *plan)
{
    size_t stages = (size_t)index->stages;
    bool whole = alloc_cells(index, plan->lowered);
    int i;

    index->stage_of = none_table(stages);
    index->first = calloc((size_t)plan->shape.ranks + 1, sizeof(*index->first));
    index->ends = calloc((size_t)plan->shape.ranks, sizeof(*index->ends));
    for (i = 0; plan->lowered && i < LANE_DIRECTIONS; i++) {
        index->lane_of[i] = none_table(stages);
        whole = whole && index->lane_of[i] != NULL;
    }
    if (plan->lowered) {
        index->shuffled[LANE_F] = calloc(2 * stages, sizeof(*index->shuffled[LANE_F]));
        whole = whole && index->shuffled[LANE_F] != NULL;
        index->shuffled[LANE_B] = whole ? index->shuffled[LANE_F] + stages : NULL;
    }
    return whole && index->stage_of != NULL && index->first != NULL && index->ends != NULL;
}

/* Messages of one direction into the chunks of one rank from one source rank share a lane. */
static int32_t find_lane(const struct plan_index *index, const struct plan *plan, int32_t stage,
                         enum lane_direction direction)
{
    int32_t source = plan->rank_of[plan_source(plan, stage, direction)];
    int32_t rank = plan->rank_of[stage];
    int32_t chunk;

    for (chunk = 0; chunk < plan->chunk_of[stage]; chunk++) {
        int32_t other = index->stage_of[rank * plan->shape.virtual_stages + chunk];
        int32_t from = plan_source(plan, other, direction);

        if (from != ACTION_NONE && plan->rank_of[from] == source) {
            return index->lane_of[direction][other];
        }
    }
    return ACTION_NONE;
}

static void number_lane(struct plan_index *index, const struct plan *plan, int32_t stage,
                        enum lane_direction direction)
{
    int32_t lane;

    if (plan_source(plan, stage, direction) == ACTION_NONE) {
        return;
    }
    lane = find_lane(index, plan, stage, direction);
    lane = lane == ACTION_NONE ? index->lanes++ : lane;
    index->lane_of[direction][stage] = lane;
    index->lane_first[lane + 1] += index->microbatches;
}

static enum status make_lanes(struct plan_index *index, const struct plan *plan)
{
    size_t most = (size_t)index->stages * LANE_DIRECTIONS;
    int32_t lane;
    int32_t i;

    index->lane_first = calloc(most + 1, sizeof(*index->lane_first));
    index->lane_received = calloc(most, sizeof(*index->lane_received));
    index->receives = none_table(most * (size_t)index->microbatches);
    if (index->lane_first == NULL || index->lane_received == NULL || index->receives == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan index: no memory for %zu lanes", most);
    }
    for (i = 0; i < index->stages; i++) {
        number_lane(index, plan, index->stage_of[i], LANE_F);
        number_lane(index, plan, index->stage_of[i], LANE_B);
    }
    for (lane = 0; lane < index->lanes; lane++) {
        index->lane_first[lane + 1] += index->lane_first[lane];
    }
    return STATUS_OK;
}

static bool is_gathering(const struct action *action)
{
    return action->kind == ACTION_GATHER || action->kind == ACTION_RELEASE;
}

/* Whether an action like `action` may name `other`. Whoever walks the line may wait for a dependency
 * where the action stands, so only compute and STEP, whose waits the graph knows, name a message. A
 * GATHER and a RELEASE have ended when the compute before them has. */
static bool may_name(const struct action *action, const struct action *other)
{
    return action_is_compute((enum action_kind)action->kind) || action->kind == ACTION_STEP ||
           (action->kind != ACTION_RECV && (action_is_compute((enum action_kind)other->kind) ||
                                            other->kind == ACTION_REDUCE || is_gathering(other)));
}

static enum status check_depends(const struct plan *plan, int32_t rank, int32_t i)
{
    const struct action *action = &plan->lines[rank].actions[i];
    bool open = false;
    int d;

    for (d = 0; d < ACTION_DEPENDS; d++) {
        int32_t other = action->depends[d];

        if (other < ACTION_NONE || other >= i) {
            return REFUSAL(plan, rank, i, "dependency %d does not point to an earlier action",
                           other);
        }
        if (open && other != ACTION_NONE) {
            return REFUSAL(plan, rank, i, "dependency %d stands behind an empty place", other);
        }
        if (other != ACTION_NONE && !may_name(action, &plan->lines[rank].actions[other])) {
            return REFUSAL(plan, rank, i,
                           "may not wait for action %d: only compute and STEP wait for messages, "
                           "and a RECV for nothing in its line",
                           other);
        }
        open = other == ACTION_NONE;
    }
    return STATUS_OK;
}

static enum status check_message(const struct plan *plan, int32_t rank, int32_t i)
{
    const struct action *action = &plan->lines[rank].actions[i];
    int32_t other;

    if (!plan->lowered) {
        return REFUSAL(plan, rank, i, "a compute-only plan has no messages");
    }
    if (action->direction >= LANE_DIRECTIONS) {
        return REFUSAL(plan, rank, i, "direction %d is not known", action->direction);
    }
    other = action->kind == ACTION_SEND
                ? plan_target(plan, action->virtual_stage, (enum lane_direction)action->direction)
                : plan_source(plan, action->virtual_stage, (enum lane_direction)action->direction);
    if (other == ACTION_NONE) {
        return REFUSAL(plan, rank, i, "no other rank is at the other end of this message");
    }
    if (action->peer != plan->rank_of[other]) {
        return REFUSAL(plan, rank, i, "peer is rank %d, expected rank %d", action->peer,
                       plan->rank_of[other]);
    }
    return STATUS_OK;
}

static enum status check_gathering(const struct plan *plan, int32_t rank, int32_t i)
{
    const struct action *action = &plan->lines[rank].actions[i];

    if (!plan->lowered || !plan_gathers(plan)) {
        return REFUSAL(plan, rank, i, "has no place in this plan");
    }
    if (action->direction >= LANE_DIRECTIONS) {
        return REFUSAL(plan, rank, i, "direction %d is not known", action->direction);
    }
    return STATUS_OK;
}

/* SYNC, REDUCE and STEP are of a whole rank. */
static bool has_virtual_stage(enum action_kind kind)
{
    return action_is_compute(kind) || action_has_direction(kind);
}

/* Everything that can be said about an action without looking at another. */
static enum status check_action(const struct plan *plan, int32_t rank, int32_t i)
{
    const struct action *action = &plan->lines[rank].actions[i];

    TRY(is_gathering(action) ? check_gathering(plan, rank, i) : STATUS_OK);
    TRY(check_depends(plan, rank, i));
    if (action->kind >= ACTION_KINDS) {
        return REFUSAL(plan, rank, i, "kind %d is not one of %d", action->kind, (int)ACTION_KINDS);
    }
    if (!has_virtual_stage((enum action_kind)action->kind)) {
        if (!plan->lowered || action->virtual_stage != ACTION_NONE ||
            action->microbatch != ACTION_NONE || action->direction != LANE_F) {
            return REFUSAL(plan, rank, i, "expected in lowered plans only, for the whole rank");
        }
        return STATUS_OK;
    }
    if (action->virtual_stage < 0 || action->virtual_stage >= plan_stages(plan) ||
        plan->rank_of[action->virtual_stage] != rank ||
        plan->chunk_of[action->virtual_stage] != action->chunk) {
        return REFUSAL(plan, rank, i, "virtual stage %d is not chunk %d of this rank",
                       action->virtual_stage, action->chunk);
    }
    if (action->microbatch < 0 || action->microbatch >= plan->shape.microbatches) {
        return REFUSAL(plan, rank, i, "micro-batch %d is outside 0 to %d", action->microbatch,
                       plan->shape.microbatches - 1);
    }
    if (is_gathering(action)) {
        return STATUS_OK;
    }
    if (!action_is_compute((enum action_kind)action->kind)) {
        return check_message(plan, rank, i);
    }
    if (action->direction != LANE_F) {
        return REFUSAL(plan, rank, i, "has a direction, which only messages have");
    }
    return STATUS_OK;
}

/* Writes the place of an action where none is yet. */
static enum status put_at(const struct plan *plan, int32_t rank, int32_t i, int32_t *at)
{
    if (*at != ACTION_NONE) {
        char other[32];

        (void)action_print(&plan->lines[rank].actions[*at], other, sizeof(other));
        return REFUSAL(plan, rank, i, "repeats action %d (%s)", *at, other);
    }
    *at = i;
    return STATUS_OK;
}

static enum status put(struct plan_index *index, const struct plan *plan, int32_t rank, int32_t i,
                       enum plan_place place)
{
    const struct action *action = &plan->lines[rank].actions[i];

    return put_at(
        plan, rank, i,
        &index->place[place][plan_index_cell(index, action->virtual_stage, action->microbatch)]);
}

/* `sent[direction][stage]` counts the messages into a virtual stage so far. */
static enum status put_message(struct plan_index *index, const struct plan *plan, int32_t rank,
                               int32_t i, int32_t *const sent[LANE_DIRECTIONS])
{
    const struct action *action = &plan->lines[rank].actions[i];
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t stage = action->virtual_stage;

    if (action->kind == ACTION_SEND) {
        int32_t target = plan_target(plan, stage, direction);
        int32_t n = sent[direction][target];

        TRY(put(index, plan, rank, i, plan_place_send(direction)));
        index->order[direction][plan_index_cell(index, target, n)] = action->microbatch;
        index->turn[direction][plan_index_cell(index, target, action->microbatch)] = n;
        index->shuffled[direction][target] |= n != action->microbatch;
        sent[direction][target]++;
    } else {
        int32_t lane = index->lane_of[direction][stage];

        TRY(put(index, plan, rank, i, plan_place_receive(direction)));
        index->receives[index->lane_first[lane] + index->lane_received[lane]] = i;
        index->lane_received[lane]++;
    }
    return STATUS_OK;
}

static enum status put_sync(struct plan_index *index, const struct plan *plan, int32_t rank,
                            int32_t i)
{
    bool head = rank == plan->rank_of[plan_stages(plan) - 1];
    bool owner = rank == plan->rank_of[0];

    if (!plan_syncs(plan) || (!head && !owner)) {
        return REFUSAL(plan, rank, i, "this rank has no part in an embedding sync");
    }
    if (index->sync[head ? 0 : 1] != ACTION_NONE) {
        return REFUSAL(plan, rank, i, "repeats action %d (SYNC)", index->sync[head ? 0 : 1]);
    }
    index->sync[head ? 0 : 1] = i;
    return STATUS_OK;
}

static void put_end(struct plan_ends *ends, uint8_t kind, int32_t i)
{
    int32_t *at = kind == ACTION_STEP ? &ends->step : &ends->reduce;

    if (*at == ACTION_NONE) {
        *at = i;
    } else if (kind == ACTION_REDUCE && ends->reduce_again == ACTION_NONE) {
        ends->reduce_again = i;
    }
}

static enum status put_action(struct plan_index *index, const struct plan *plan, int32_t rank,
                              int32_t i, int32_t *const sent[LANE_DIRECTIONS])
{
    TRY(check_action(plan, rank, i));
    switch ((enum action_kind)plan->lines[rank].actions[i].kind) {
    case ACTION_F:
        return put(index, plan, rank, i, PLACE_F);
    case ACTION_I:
        return put(index, plan, rank, i, PLACE_I);
    case ACTION_W:
        return put(index, plan, rank, i, PLACE_W);
    case ACTION_B:
        TRY(put(index, plan, rank, i, PLACE_I));
        return put(index, plan, rank, i, PLACE_W);
    case ACTION_SEND:
    case ACTION_RECV:
        return put_message(index, plan, rank, i, sent);
    case ACTION_SYNC:
        return put_sync(index, plan, rank, i);
    case ACTION_STEP:
    case ACTION_REDUCE:
        put_end(&index->ends[rank], plan->lines[rank].actions[i].kind, i);
        return STATUS_OK;
    default:
        return STATUS_OK;
    }
}

static enum status put_line(struct plan_index *index, const struct plan *plan, int32_t rank,
                            int32_t *const sent[LANE_DIRECTIONS])
{
    int32_t i;

    index->ends[rank] = (struct plan_ends){ACTION_NONE, ACTION_NONE, ACTION_NONE};
    index->first[rank + 1] = index->first[rank] + plan->lines[rank].count;
    for (i = 0; i < plan->lines[rank].count; i++) {
        TRY(put_action(index, plan, rank, i, sent));
    }
    return STATUS_OK;
}

static enum status put_all(struct plan_index *index, const struct plan *plan)
{
    int32_t *counts = calloc((size_t)index->stages * LANE_DIRECTIONS, sizeof(*counts));
    int32_t *sent[LANE_DIRECTIONS] = {counts, counts == NULL ? NULL : counts + index->stages};
    enum status status = STATUS_OK;
    int32_t rank;

    if (counts == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan index: no memory for %d stages",
                           index->stages);
    }
    for (rank = 0; rank < plan->shape.ranks && status == STATUS_OK; rank++) {
        status = put_line(index, plan, rank, sent);
    }
    free(counts);
    return status;
}

size_t plan_check_cells(const struct plan *plan)
{
    return (size_t)(PLACE_W + 1) * (size_t)plan->shape.virtual_stages *
           (size_t)plan->shape.microbatches;
}

enum status plan_check_line(const struct plan *plan, int32_t rank, int32_t *seen)
{
    const struct plan_line *line = &plan->lines[rank];
    size_t m = (size_t)plan->shape.microbatches;
    size_t cells = (size_t)plan->shape.virtual_stages * m;

    memset(seen, 0xff, plan_check_cells(plan) * sizeof(*seen));
    for (int32_t i = 0; i < line->count; i++) {
        const struct action *action = &line->actions[i];
        int32_t *at;

        TRY(check_action(plan, rank, i));
        at = &seen[(size_t)action->chunk * m + (size_t)action->microbatch];
        if (action->kind == ACTION_F) {
            TRY(put_at(plan, rank, i, at + PLACE_F * cells));
        }
        if (action->kind == ACTION_I || action->kind == ACTION_B) {
            TRY(put_at(plan, rank, i, at + PLACE_I * cells));
        }
        if (action->kind == ACTION_W || action->kind == ACTION_B) {
            TRY(put_at(plan, rank, i, at + PLACE_W * cells));
        }
    }
    return STATUS_OK;
}

enum status plan_index_init(struct plan_index *index, const struct plan *plan)
{
    enum status status = STATUS_OK;
    int32_t stage;

    memset(index, 0, sizeof(*index));
    index->stages = plan_stages(plan);
    index->microbatches = plan->shape.microbatches;
    index->row =
        (((size_t)plan->shape.microbatches + LINE_ELEMS - 1) / LINE_ELEMS | 1) * LINE_ELEMS;
    index->sync[0] = ACTION_NONE;
    index->sync[1] = ACTION_NONE;
    if (!alloc_tables(index, plan)) {
        plan_index_release(index);
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "plan index: no memory for %d virtual stages of %d micro-batches",
                           plan_stages(plan), plan->shape.microbatches);
    }
    for (stage = 0; stage < index->stages; stage++) {
        index->stage_of[plan->rank_of[stage] * plan->shape.virtual_stages + plan->chunk_of[stage]] =
            stage;
    }
    if (plan->lowered) {
        TRY_OR(fail, status, make_lanes(index, plan));
    }
    TRY_OR(fail, status, put_all(index, plan));
    return STATUS_OK;

fail:
    plan_index_release(index);
    return status;
}

void plan_index_release(struct plan_index *index)
{
    int i;

    for (i = 0; i < LANE_DIRECTIONS; i++) {
        free(index->lane_of[i]);
    }
    free(index->tables);
    free(index->shuffled[LANE_F]);
    free(index->stage_of);
    free(index->first);
    free(index->ends);
    free(index->lane_first);
    free(index->lane_received);
    free(index->receives);
    memset(index, 0, sizeof(*index));
}
