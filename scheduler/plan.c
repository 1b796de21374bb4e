#include "scheduler/plan.h"

#include <stdlib.h>
#include <string.h>

/* The state of the hash lives on the stack. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/check.h"
#include "scheduler/large.h"

/* Larger than any job, small enough that no product of them overflows and that a mistyped number
 * is refused instead of asking for all memory. */
#define MOST_RANKS          65536
#define MOST_MICROBATCHES   (1 << 20)
#define MOST_VIRTUAL_STAGES SCHEDULE_ANY_CHUNKS
#define MOST_LANE_DEPTH     1024
#define MOST_CELLS          ((int64_t)1 << 25) /* p·v·m */

#define LIST_BYTES 256

#define ACTION_BYTES ((size_t)(4 + 4 * (9 + ACTION_DEPENDS)))

static enum status check_range(const char *key, int32_t value, int32_t most)
{
    if (value < 1 || value > most) {
        return status_fail(STATUS_ERR_REFUSED, "plan: %s is %d, expected 1 to %d", key, value,
                           most);
    }
    return STATUS_OK;
}

static const char *placement_text(enum placement placement)
{
    return placement == PLACEMENT_ZIGZAG ? "zigzag" : "loop";
}

/* Whether the schedule has an order of this shape. */
static enum status check_schedule(const struct plan_shape *shape)
{
    enum schedule schedule = shape->schedule;
    char list[LIST_BYTES];

    if (!schedule_takes_chunks(schedule, shape->virtual_stages)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: schedule %s has %s, found virtual_stages %d; legal with %d: %s",
                           schedule_text(schedule), schedule_chunks_text(schedule),
                           shape->virtual_stages, shape->virtual_stages,
                           schedule_list(shape->virtual_stages, list, sizeof(list)));
    }
    if (shape->placement != PLACEMENT_SCHEDULE &&
        !schedule_takes_placement(schedule, shape->placement)) {
        return status_fail(STATUS_ERR_REFUSED, "plan: schedule %s has no order on a %s",
                           schedule_text(schedule), placement_text(shape->placement));
    }
    if (shape->placement == PLACEMENT_ZIGZAG && shape->virtual_stages % 2 != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: virtual_stages is %d, expected an even number on a zigzag",
                           shape->virtual_stages);
    }
    if (shape->extra_in_flight < 0 || shape->extra_in_flight > MOST_MICROBATCHES) {
        return status_fail(STATUS_ERR_REFUSED, "plan: extra_in_flight is %d, expected 0 to %d",
                           shape->extra_in_flight, MOST_MICROBATCHES);
    }
    if (shape->extra_in_flight > 0 && !schedule_takes_extra(schedule)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: extra_in_flight is %d, but schedule %s has no such freedom; "
                           "expected 0, or schedule 1f1b",
                           shape->extra_in_flight, schedule_text(schedule));
    }
    return STATUS_OK;
}

static enum status check_slices(const struct plan_shape *shape)
{
    int32_t k = shape->sequence_slices;

    if (k < 0 || k > ACTION_MOST_SLICES) {
        return status_fail(STATUS_ERR_REFUSED, "plan: sequence_slices is %d, expected 1 to %d", k,
                           ACTION_MOST_SLICES);
    }
    if (k > 1 && !schedule_takes_slices(shape->schedule)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: schedule %s takes whole sequences, found sequence_slices %d; set "
                           "it to 1, or the schedule to seq1f1b",
                           schedule_text(shape->schedule), k);
    }
    if (k > 1 && shape->microbatches % k != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "plan: %d pieces are no whole micro-batches of %d slices",
                           shape->microbatches, k);
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
    TRY(check_schedule(shape));
    TRY(check_slices(shape));
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
    plan->shape.placement = shape->placement == PLACEMENT_SCHEDULE
                                ? schedule_placement(shape->schedule)
                                : shape->placement;
    for (s = 0; s < stages; s++) {
        int32_t place = (int32_t)(s % (size_t)shape->ranks);
        int32_t chunk = (int32_t)(s / (size_t)shape->ranks);
        bool back = plan->shape.placement == PLACEMENT_ZIGZAG && chunk % 2 == 1;

        plan->rank_of[s] = back ? shape->ranks - 1 - place : place;
        plan->chunk_of[s] = chunk;
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
    actions = realloc(line->lent ? NULL : line->actions, (size_t)count * sizeof(*actions));
    if (actions == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: no memory for %d actions of rank %d", count,
                           rank);
    }
    if (line->lent) {
        memcpy(actions, line->actions, (size_t)line->count * sizeof(*actions));
    }
    line->actions = actions;
    line->capacity = count;
    line->lent = false;
    return STATUS_OK;
}

enum status plan_reserve_all(struct plan *plan, const int32_t *counts)
{
    size_t all = 0;
    size_t at = 0;
    int32_t rank;

    ENSURE(plan->block == NULL, "a plan of %d ranks has its block", plan->shape.ranks);
    for (rank = 0; rank < plan->shape.ranks; rank++) {
        ENSURE(plan->lines[rank].actions == NULL, "rank %d has a line", rank);
        all += (size_t)counts[rank];
    }
    plan->block = large_alloc(all, sizeof(*plan->block));
    if (plan->block == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: no memory for %zu actions of %d ranks", all,
                           plan->shape.ranks);
    }
    for (rank = 0; rank < plan->shape.ranks; rank++) {
        plan->lines[rank].actions = plan->block + at;
        plan->lines[rank].capacity = counts[rank];
        plan->lines[rank].lent = true;
        at += (size_t)counts[rank];
    }
    return STATUS_OK;
}

void plan_pass_memory(struct plan *plan, int32_t from, int32_t to)
{
    struct plan_line *line = &plan->lines[from];

    if (from != to) {
        plan->lines[to].actions = line->actions;
        plan->lines[to].capacity = line->capacity;
        line->actions = NULL;
        line->capacity = 0;
    }
    line->count = 0;
}

enum status plan_keep_line(struct plan *plan, int32_t rank)
{
    struct plan_line *line = &plan->lines[rank];

    ENSURE(rank >= 0 && rank < plan->shape.ranks, "rank %d of %d", rank, plan->shape.ranks);
    if (line->lent) {
        TRY(plan_reserve(plan, rank, line->capacity + 1)); /* out of the block */
    }
    for (int32_t other = 0; other < plan->shape.ranks; other++) {
        if (other != rank) {
            free(plan->lines[other].lent ? NULL : plan->lines[other].actions);
            plan->lines[other] = (struct plan_line){.source_line = plan->lines[other].source_line};
        }
    }
    free(plan->block);
    plan->block = NULL;
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
    at = pack_int32(at, action->slices);
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
        free(old->lines[rank].lent ? NULL : old->lines[rank].actions);
    }
    free(old->block);
    free(old->lines);
    free(old->buffers);
    free(old->rank_of);
    free(old->chunk_of);
    free(old->source);
    free(old);
    *plan = NULL;
}
