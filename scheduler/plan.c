#include "scheduler/plan.h"

#include <stdlib.h>
#include <string.h>

/* The state of the hash lives on the stack. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/check.h"

/* Larger than any job, small enough that no product of them overflows and that a mistyped number
 * is refused instead of asking for all memory. */
#define MOST_RANKS          65536
#define MOST_MICROBATCHES   (1 << 20)
#define MOST_VIRTUAL_STAGES 1024
#define MOST_LANE_DEPTH     1024
#define MOST_CELLS          ((int64_t)1 << 25) /* p·v·m */

#define ACTION_BYTES ((size_t)(4 + 4 * (8 + ACTION_DEPENDS)))

static const char *const schedule_texts[SCHEDULES] = {
#define X(name, text) text,
    SCHEDULE_TABLE(X)
#undef X
};

static enum status check_range(const char *key, int32_t value, int32_t most)
{
    if (value < 1 || value > most) {
        return status_fail(STATUS_ERR_REFUSED, "plan: %s is %d, expected 1 to %d", key, value,
                           most);
    }
    return STATUS_OK;
}

static enum status check_shape(const struct plan_shape *shape)
{
    int64_t cells;

    TRY(check_range("pp", shape->ranks, MOST_RANKS));
    TRY(check_range("num_microbatches", shape->microbatches, MOST_MICROBATCHES));
    TRY(check_range("virtual_stages", shape->virtual_stages, MOST_VIRTUAL_STAGES));
    TRY(check_range("lane_depth", shape->lane_depth, MOST_LANE_DEPTH));
    if ((unsigned)shape->schedule >= SCHEDULES) {
        return status_fail(STATUS_ERR_REFUSED, "plan: schedule number %d is not one of %d",
                           (int)shape->schedule, (int)SCHEDULES);
    }
    if (shape->virtual_stages > 1 &&
        (shape->schedule == SCHEDULE_GPIPE || shape->schedule == SCHEDULE_1F1B)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: schedule %s has one chunk a rank, found virtual_stages %d; set "
                           "it to 1, or the schedule to interleaved_1f1b or file:PATH",
                           schedule_text(shape->schedule), shape->virtual_stages);
    }
    cells = (int64_t)shape->ranks * shape->virtual_stages * shape->microbatches;
    if (cells > MOST_CELLS) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: pp %d x virtual_stages %d x num_microbatches %d is %lld, "
                           "expected at most %lld",
                           shape->ranks, shape->virtual_stages, shape->microbatches,
                           (long long)cells, (long long)MOST_CELLS);
    }
    return STATUS_OK;
}

enum status plan_create(const struct plan_shape *shape, struct plan **plan_out)
{
    struct plan *plan;
    size_t stages;
    size_t s;

    TRY(check_shape(shape));
    stages = (size_t)shape->ranks * (size_t)shape->virtual_stages;
    plan = calloc(1, sizeof(*plan));
    if (plan != NULL) {
        plan->shape = *shape;
        plan->lines = calloc((size_t)shape->ranks, sizeof(*plan->lines));
        plan->buffers = calloc(stages, sizeof(*plan->buffers));
        plan->rank_of = calloc(stages, sizeof(*plan->rank_of));
        plan->chunk_of = calloc(stages, sizeof(*plan->chunk_of));
    }
    if (plan == NULL || plan->lines == NULL || plan->buffers == NULL || plan->rank_of == NULL ||
        plan->chunk_of == NULL) {
        plan_destroy(&plan);
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: no memory for %d ranks of %d chunks",
                           shape->ranks, shape->virtual_stages);
    }
    for (s = 0; s < stages; s++) {
        plan->rank_of[s] = (int32_t)(s % (size_t)shape->ranks);
        plan->chunk_of[s] = (int32_t)(s / (size_t)shape->ranks);
    }
    *plan_out = plan;
    return STATUS_OK;
}

enum status plan_place_as(struct plan *plan, const struct plan *other)
{
    size_t table_bytes = (size_t)plan_stages(plan) * sizeof(int32_t);
    int32_t rank;

    ENSURE(plan_stages(plan) == plan_stages(other) && plan->shape.ranks == other->shape.ranks,
           "%d ranks placed as %d", plan->shape.ranks, other->shape.ranks);
    memcpy(plan->rank_of, other->rank_of, table_bytes);
    memcpy(plan->chunk_of, other->chunk_of, table_bytes);
    if (other->source == NULL) {
        return STATUS_OK;
    }
    for (rank = 0; rank < plan->shape.ranks; rank++) {
        plan->lines[rank].source_line = other->lines[rank].source_line;
    }
    plan->source = strdup(other->source);
    return plan->source != NULL ? STATUS_OK
                                : status_fail(STATUS_ERR_NO_MEMORY,
                                              "plan %s: no memory for its name", other->source);
}

bool plan_is_loop(const struct plan *plan)
{
    int32_t stage;

    for (stage = 0; stage < plan_stages(plan); stage++) {
        if (plan->rank_of[stage] != stage % plan->shape.ranks) {
            return false;
        }
    }
    return true;
}

enum status plan_reserve(struct plan *plan, int32_t rank, int32_t count)
{
    struct plan_line *line = &plan->lines[rank];
    struct action *actions;

    if (count <= line->capacity) {
        return STATUS_OK;
    }
    actions = realloc(line->actions, (size_t)count * sizeof(*actions));
    if (actions == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: no memory for %d actions of rank %d", count,
                           rank);
    }
    line->actions = actions;
    line->capacity = count;
    return STATUS_OK;
}

enum status plan_append(struct plan *plan, int32_t rank, const struct action *action)
{
    struct plan_line *line = &plan->lines[rank];

    ENSURE(rank >= 0 && rank < plan->shape.ranks, "rank %d of %d", rank, plan->shape.ranks);
    if (line->count == line->capacity) {
        TRY(plan_reserve(plan, rank, line->capacity < 32 ? 64 : line->capacity * 2));
    }
    line->actions[line->count++] = *action;
    return STATUS_OK;
}

int32_t plan_stages(const struct plan *plan)
{
    return plan->shape.ranks * plan->shape.virtual_stages;
}

bool plan_trains(const struct plan *plan)
{
    return plan->shape.schedule != SCHEDULE_FORWARD_ONLY;
}

/* `other` where it is a virtual stage, on the same rank or not as wanted. */
static int32_t neighbour(const struct plan *plan, int32_t stage, int32_t other, bool local)
{
    if (other < 0 || other >= plan_stages(plan) ||
        (plan->rank_of[other] == plan->rank_of[stage]) != local) {
        return ACTION_NONE;
    }
    return other;
}

int32_t plan_source(const struct plan *plan, int32_t stage, enum lane_direction direction)
{
    return neighbour(plan, stage, direction == LANE_F ? stage - 1 : stage + 1, false);
}

int32_t plan_target(const struct plan *plan, int32_t stage, enum lane_direction direction)
{
    return neighbour(plan, stage, direction == LANE_F ? stage + 1 : stage - 1, false);
}

int32_t plan_local_source(const struct plan *plan, int32_t stage, enum lane_direction direction)
{
    return neighbour(plan, stage, direction == LANE_F ? stage - 1 : stage + 1, true);
}

int32_t plan_local_target(const struct plan *plan, int32_t stage, enum lane_direction direction)
{
    return neighbour(plan, stage, direction == LANE_F ? stage + 1 : stage - 1, true);
}

bool plan_syncs(const struct plan *plan)
{
    return plan->shape.embedding_sync && plan_trains(plan) &&
           plan->rank_of[0] != plan->rank_of[plan_stages(plan) - 1];
}

bool plan_reduces(const struct plan *plan)
{
    return plan->shape.reduce && plan_trains(plan);
}

bool plan_gathers(const struct plan *plan)
{
    return plan->shape.gather;
}

const struct plan_buffers *plan_buffers_of(const struct plan *plan, int32_t rank, int32_t chunk)
{
    return &plan->buffers[(size_t)rank * (size_t)plan->shape.virtual_stages + (size_t)chunk];
}

static unsigned char *pack_int32(unsigned char *at, int32_t value)
{
    uint32_t bits = (uint32_t)value;
    int i;

    for (i = 0; i < 4; i++) {
        *at++ = (unsigned char)(bits >> (8 * i));
    }
    return at;
}

/* Little-endian, in the order of the fields; ACTION_BYTES bytes. */
static void pack_action(const struct action *action, unsigned char *at)
{
    int i;

    *at++ = action->kind;
    *at++ = action->direction;
    *at++ = (unsigned char)(action->chunk & 0xff);
    *at++ = (unsigned char)(action->chunk >> 8);
    at = pack_int32(at, action->virtual_stage);
    at = pack_int32(at, action->microbatch);
    at = pack_int32(at, action->peer);
    at = pack_int32(at, action->sequence);
    at = pack_int32(at, action->slot);
    at = pack_int32(at, action->gradient);
    at = pack_int32(at, action->landing);
    at = pack_int32(at, action->target);
    for (i = 0; i < ACTION_DEPENDS; i++) {
        at = pack_int32(at, action->depends[i]);
    }
}

uint64_t plan_line_hash(const struct plan *plan, int32_t rank)
{
    const struct plan_line *line = &plan->lines[rank];
    unsigned char bytes[ACTION_BYTES];
    XXH3_state_t state;
    int32_t i;

    (void)XXH3_64bits_reset(&state);
    for (i = 0; i < line->count; i++) {
        pack_action(&line->actions[i], bytes);
        (void)XXH3_64bits_update(&state, bytes, sizeof(bytes));
    }
    return XXH3_64bits_digest(&state);
}

void plan_destroy(struct plan **plan)
{
    struct plan *old = *plan;
    int32_t rank;

    if (old == NULL) {
        return;
    }
    for (rank = 0; old->lines != NULL && rank < old->shape.ranks; rank++) {
        free(old->lines[rank].actions);
    }
    free(old->lines);
    free(old->buffers);
    free(old->rank_of);
    free(old->chunk_of);
    free(old->source);
    free(old);
    *plan = NULL;
}

enum status schedule_parse(const char *text, enum schedule *schedule_out)
{
    int i;

    if (strncmp(text, "file:", 5) == 0 && text[5] != '\0') {
        *schedule_out = SCHEDULE_FILE;
        return STATUS_OK;
    }
    for (i = 0; i < SCHEDULES; i++) {
        if (i != SCHEDULE_FILE && strcmp(text, schedule_texts[i]) == 0) {
            *schedule_out = (enum schedule)i;
            return STATUS_OK;
        }
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "schedule \"%s\" is not known: expected gpipe, 1f1b, interleaved_1f1b, "
                       "forward_only or file:PATH",
                       text);
}

const char *schedule_text(enum schedule schedule)
{
    return (unsigned)schedule < SCHEDULES ? schedule_texts[schedule] : "?";
}
