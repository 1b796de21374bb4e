#include "scheduler/plan_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "scheduler/large.h"
#include "scheduler/plan_check.h"
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
static bool alloc_cells(struct plan_index *index, size_t rows, bool lowered)
{
    size_t lines = rows * (index->row / LINE_ELEMS);
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

/* Rows of an index of one line: those of its chunks, and of the virtual stages that they send to. */
static size_t count_rows(const struct plan_index *index, const struct plan *plan)
{
    size_t of_line = (1 + LANE_DIRECTIONS) * (size_t)plan->shape.virtual_stages;

    return index->of_line ? of_line : (size_t)index->stages;
}

static bool alloc_tables(struct plan_index *index, const struct plan *plan)
{
    size_t stages = (size_t)index->stages;
    bool whole = alloc_cells(index, count_rows(index, plan), plan->lowered);
    int i;

    index->base = calloc(stages, sizeof(*index->base));
    index->messages[LANE_F] = calloc(LANE_DIRECTIONS * stages, sizeof(*index->messages[LANE_F]));
    whole = whole && index->base != NULL && index->messages[LANE_F] != NULL;
    index->messages[LANE_B] = whole ? index->messages[LANE_F] + stages : NULL;
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
    if (!index->of_line) {
        index->receives = none_table(most * (size_t)index->microbatches);
    }
    if (index->lane_first == NULL || index->lane_received == NULL ||
        (!index->of_line && index->receives == NULL)) {
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

static enum status put(struct plan_index *index, const struct plan *plan, int32_t rank, int32_t i,
                       enum plan_place place)
{
    const struct action *action = &plan->lines[rank].actions[i];

    index->entries[place]++;
    return plan_check_place(
        plan, rank, i,
        &index->place[place][plan_index_cell(index, action->virtual_stage, action->microbatch)]);
}

/* The next message of `direction` into `stage` is that of `microbatch`. */
static void number_message(struct plan_index *index, enum lane_direction direction, int32_t stage,
                           int32_t microbatch)
{
    int32_t n = index->messages[direction][stage]++;

    if (n == microbatch && !index->shuffled[direction][stage]) {
        return; /* mostly, and then nobody asks the tables */
    }
    for (int32_t i = 0; !index->shuffled[direction][stage] && i < n; i++) {
        index->order[direction][plan_index_cell(index, stage, i)] = i;
        index->turn[direction][plan_index_cell(index, stage, i)] = i;
    }
    index->order[direction][plan_index_cell(index, stage, n)] = microbatch;
    index->turn[direction][plan_index_cell(index, stage, microbatch)] = n;
    index->shuffled[direction][stage] = true;
}

static enum status put_message(struct plan_index *index, const struct plan *plan, int32_t rank,
                               int32_t i)
{
    const struct action *action = &plan->lines[rank].actions[i];
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t stage = action->virtual_stage;

    if (action->kind == ACTION_SEND) {
        TRY(put(index, plan, rank, i, plan_place_send(direction)));
        number_message(index, direction, plan_target(plan, stage, direction), action->microbatch);
        return STATUS_OK;
    }
    TRY(put(index, plan, rank, i, plan_place_receive(direction)));
    if (index->of_line) {
        number_message(index, direction, stage, action->microbatch);
    } else {
        int32_t lane = index->lane_of[direction][stage];

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
                              int32_t i)
{
    TRY(plan_check_action(plan, rank, i));
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
        return put_message(index, plan, rank, i);
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

static enum status put_line(struct plan_index *index, const struct plan *plan, int32_t rank)
{
    int32_t i;

    index->ends[rank] = (struct plan_ends){ACTION_NONE, ACTION_NONE, ACTION_NONE};
    index->first[rank + 1] = index->first[rank] + plan->lines[rank].count;
    for (i = 0; i < plan->lines[rank].count; i++) {
        TRY(put_action(index, plan, rank, i));
    }
    return STATUS_OK;
}

static enum status put_all(struct plan_index *index, const struct plan *plan)
{
    int32_t rank;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        TRY(put_line(index, plan, rank));
    }
    return STATUS_OK;
}

/* Everything but what the lines say. */
static enum status prepare(struct plan_index *index, const struct plan *plan)
{
    int32_t stage;

    index->stages = plan_stages(plan);
    index->microbatches = plan->shape.microbatches;
    index->row =
        (((size_t)plan->shape.microbatches + LINE_ELEMS - 1) / LINE_ELEMS | 1) * LINE_ELEMS;
    index->sync[0] = ACTION_NONE;
    index->sync[1] = ACTION_NONE;
    if (!alloc_tables(index, plan)) {
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "plan index: no memory for %d virtual stages of %d micro-batches",
                           plan_stages(plan), plan->shape.microbatches);
    }
    for (stage = 0; stage < index->stages; stage++) {
        index->base[stage] = (size_t)stage * index->row;
        index->stage_of[plan->rank_of[stage] * plan->shape.virtual_stages + plan->chunk_of[stage]] =
            stage;
    }
    return plan->lowered ? make_lanes(index, plan) : STATUS_OK;
}

enum status plan_index_init(struct plan_index *index, const struct plan *plan)
{
    enum status status = STATUS_OK;

    memset(index, 0, sizeof(*index));
    TRY_OR(fail, status, prepare(index, plan));
    TRY_OR(fail, status, put_all(index, plan));
    return STATUS_OK;

fail:
    plan_index_release(index);
    return status;
}

enum status plan_index_init_line(struct plan_index *index, const struct plan *plan)
{
    enum status status = STATUS_OK;

    ENSURE(plan->lowered, "an index of one line of %d, compute-only", plan->shape.ranks);
    memset(index, 0, sizeof(*index));
    index->of_line = true;
    status = prepare(index, plan);
    if (status < 0) {
        plan_index_release(index);
    }
    return status;
}

/* Gives `stage` a row with no messages yet. */
static void begin_row(struct plan_index *index, int32_t stage, size_t row)
{
    index->base[stage] = row * index->row;
    for (int i = 0; i < LANE_DIRECTIONS; i++) {
        index->messages[i][stage] = 0;
        index->shuffled[i][stage] = false;
    }
}

enum status plan_index_read_line(struct plan_index *index, const struct plan *plan, int32_t rank)
{
    size_t v = (size_t)plan->shape.virtual_stages;
    const int32_t *stages = &index->stage_of[(size_t)rank * v];
    size_t rows = v;

    for (size_t chunk = 0; chunk < v; chunk++) {
        for (int i = 0; i < LANE_DIRECTIONS; i++) {
            int32_t target = plan_target(plan, stages[chunk], (enum lane_direction)i);

            if (target != ACTION_NONE) {
                begin_row(index, target, rows++);
            }
        }
        begin_row(index, stages[chunk], chunk);
    }
    for (int i = 0; i < PLACES; i++) {
        index->entries[i] = 0;
        memset(index->place[i], 0xff, v * index->row * sizeof(*index->place[i]));
    }
    return put_line(index, plan, rank);
}

void plan_index_release(struct plan_index *index)
{
    int i;

    for (i = 0; i < LANE_DIRECTIONS; i++) {
        free(index->lane_of[i]);
    }
    free(index->tables);
    free(index->base);
    free(index->messages[LANE_F]);
    free(index->shuffled[LANE_F]);
    free(index->stage_of);
    free(index->first);
    free(index->ends);
    free(index->lane_first);
    free(index->lane_received);
    free(index->receives);
    memset(index, 0, sizeof(*index));
}
