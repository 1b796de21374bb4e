#include "scheduler/lower.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "scheduler/landing.h"
#include "scheduler/plan_index.h"
#include "scheduler/refusal.h"

/* Numbers 0, 1, … of equal buffers: the one given back last is taken first, and a new one is made
 * only when none is free, so that `made` ends as the peak. */
struct pool {
    int32_t *free; /* borrows */
    int32_t free_count;
    int32_t made;
};

/* The line that is being lowered. The tables are used rank after rank; [chunk · m + microbatch]
 * unless said otherwise. */
struct lowering {
    const struct plan *compute;
    const struct plan_index *index; /* borrows; of `compute` */
    struct plan *lowered;           /* borrows */
    int32_t rank;
    int32_t source;   /* index of the action of the compute line that is being lowered */
    int32_t forwards; /* of the last virtual stage, so far */
    int32_t *f_at;    /* index of the F in the lowered line */
    int32_t *i_at;    /* of the I or B */
    int32_t *slot_of;
    int32_t *gradient_of;
    int32_t *free_numbers; /* of all pools, 2·v·m */
    struct pool *slots;    /* [chunk] */
    struct pool *gradients;
    int32_t *sent[LANE_DIRECTIONS]; /* [peer]: messages so far */
    int32_t *received[LANE_DIRECTIONS];
    int32_t *last_send[LANE_DIRECTIONS]; /* [peer]: index of the SEND before */
    int32_t *tables;                     /* owns all of the above but the pools */
};

static int32_t pool_take(struct pool *pool)
{
    return pool->free_count > 0 ? pool->free[--pool->free_count] : pool->made++;
}

static void pool_give(struct pool *pool, int32_t number)
{
    pool->free[pool->free_count++] = number;
}

/* False where memory is short; nothing is held then. */
static bool lowering_init(struct lowering *lowering, const struct plan *compute,
                          const struct plan_index *index, struct plan *lowered)
{
    size_t ranks = (size_t)compute->shape.ranks;
    size_t v = (size_t)compute->shape.virtual_stages;
    size_t cells = v * (size_t)compute->shape.microbatches;
    int32_t *at;
    int i;

    memset(lowering, 0, sizeof(*lowering));
    lowering->compute = compute;
    lowering->index = index;
    lowering->lowered = lowered;
    lowering->tables = malloc((6 * cells + 6 * ranks) * sizeof(int32_t));
    lowering->slots = calloc(2 * v, sizeof(*lowering->slots));
    if (lowering->tables == NULL || lowering->slots == NULL) {
        free(lowering->tables);
        free(lowering->slots);
        return false;
    }
    at = lowering->tables;
    lowering->gradients = lowering->slots + v;
    lowering->f_at = at;
    lowering->i_at = at + cells;
    lowering->slot_of = at + 2 * cells;
    lowering->gradient_of = at + 3 * cells;
    lowering->free_numbers = at + 4 * cells;
    at += 6 * cells;
    for (i = 0; i < LANE_DIRECTIONS; i++) {
        lowering->sent[i] = at;
        lowering->received[i] = at + ranks;
        lowering->last_send[i] = at + 2 * ranks;
        at += 3 * ranks;
    }
    return true;
}

static void lowering_release(struct lowering *lowering)
{
    free(lowering->tables);
    free(lowering->slots);
}

static size_t cell(const struct lowering *lowering, const struct action *action)
{
    return (size_t)action->chunk * (size_t)lowering->compute->shape.microbatches +
           (size_t)action->microbatch;
}

/* Clears only the entries that this rank uses, so that the whole stays linear in the ranks. */
static void begin_line(struct lowering *lowering, int32_t rank)
{
    const struct plan *plan = lowering->compute;
    size_t m = (size_t)plan->shape.microbatches;
    size_t v = (size_t)plan->shape.virtual_stages;
    size_t chunk;
    int i;

    lowering->rank = rank;
    lowering->forwards = 0;
    memset(lowering->f_at, 0xff, 4 * v * m * sizeof(int32_t));
    for (chunk = 0; chunk < 2 * v; chunk++) {
        lowering->slots[chunk].free = lowering->free_numbers + chunk * m;
        lowering->slots[chunk].free_count = 0;
        lowering->slots[chunk].made = 0;
    }
    for (chunk = 0; chunk < v; chunk++) {
        int32_t stage = lowering->index->stage_of[(size_t)rank * v + chunk];

        for (i = 0; i < LANE_DIRECTIONS; i++) {
            int32_t from = plan_source(plan, stage, (enum lane_direction)i);
            int32_t to = plan_target(plan, stage, (enum lane_direction)i);

            if (from != ACTION_NONE) {
                lowering->received[i][plan->rank_of[from]] = 0;
            }
            if (to != ACTION_NONE) {
                lowering->sent[i][plan->rank_of[to]] = 0;
                lowering->last_send[i][plan->rank_of[to]] = ACTION_NONE;
            }
        }
    }
}

/* An action of the lowered line like `source`, of another kind, with nothing numbered yet. */
static struct action derive(const struct action *source, enum action_kind kind)
{
    struct action action = {.kind = (uint8_t)kind,
                            .chunk = source->chunk,
                            .virtual_stage = source->virtual_stage,
                            .microbatch = source->microbatch,
                            .peer = ACTION_NONE,
                            .sequence = ACTION_NONE,
                            .slot = ACTION_NONE,
                            .gradient = ACTION_NONE,
                            .landing = ACTION_NONE};
    int i;

    for (i = 0; i < ACTION_DEPENDS; i++) {
        action.depends[i] = ACTION_NONE;
    }
    return action;
}

static struct action whole_rank(enum action_kind kind)
{
    static const struct action none = {.virtual_stage = ACTION_NONE, .microbatch = ACTION_NONE};

    return derive(&none, kind);
}

static void add_dependency(struct action *action, int32_t index)
{
    int i = 0;

    if (index == ACTION_NONE) {
        return;
    }
    while (action->depends[i] != ACTION_NONE) {
        i++;
    }
    action->depends[i] = index;
}

/* Where the next action of the lowered line will stand. */
static int32_t here(const struct lowering *lowering)
{
    return lowering->lowered->lines[lowering->rank].count;
}

static enum status put(struct lowering *lowering, const struct action *action)
{
    return plan_append(lowering->lowered, lowering->rank, action);
}

/* What `consumer` waits for from the virtual stage before it in `direction`: its RECV, put here,
 * or the earlier action of this rank where both are neighbours on it. */
static enum status put_source(struct lowering *lowering, struct action *consumer,
                              enum lane_direction direction)
{
    const struct plan *plan = lowering->compute;
    int32_t source = plan_source(plan, consumer->virtual_stage, direction);
    int32_t before = consumer->virtual_stage + (direction == LANE_F ? -1 : 1);
    struct action receive = derive(consumer, ACTION_RECV);

    if (source != ACTION_NONE) {
        receive.direction = (uint8_t)direction;
        receive.peer = plan->rank_of[source];
        receive.sequence = lowering->received[direction][receive.peer]++;
        add_dependency(consumer, here(lowering));
        return put(lowering, &receive);
    }
    if (before >= 0 && before < plan_stages(plan)) {
        size_t at = (size_t)plan->chunk_of[before] * (size_t)plan->shape.microbatches +
                    (size_t)consumer->microbatch;
        int32_t local = direction == LANE_F ? lowering->f_at[at] : lowering->i_at[at];

        if (local == ACTION_NONE) {
            return REFUSAL(plan, lowering->rank, lowering->source,
                           "stands before virtual stage %d of the same micro-batch and rank, "
                           "which it needs",
                           before);
        }
        add_dependency(consumer, local);
    }
    return STATUS_OK;
}

/* The SEND that must have ended before `producer` may write into the out buffer. */
static void add_out_buffer(const struct lowering *lowering, struct action *producer,
                           enum lane_direction direction)
{
    int32_t target = plan_target(lowering->compute, producer->virtual_stage, direction);

    if (target != ACTION_NONE) {
        add_dependency(producer,
                       lowering->last_send[direction][lowering->compute->rank_of[target]]);
    }
}

/* The SEND of what the action at `producer_at` has made; nothing where nobody else needs it. */
static enum status put_send(struct lowering *lowering, const struct action *producer,
                            int32_t producer_at, enum lane_direction direction)
{
    int32_t target = plan_target(lowering->compute, producer->virtual_stage, direction);
    struct action send = derive(producer, ACTION_SEND);

    if (target == ACTION_NONE) {
        return STATUS_OK;
    }
    send.direction = (uint8_t)direction;
    send.peer = lowering->compute->rank_of[target];
    send.sequence = lowering->sent[direction][send.peer]++;
    add_dependency(&send, producer_at);
    lowering->last_send[direction][send.peer] = here(lowering);
    return put(lowering, &send);
}

/* The SYNC behind the last F of the last virtual stage, which stands at `forward_at`. */
static enum status put_head_sync(struct lowering *lowering, const struct action *source,
                                 int32_t forward_at)
{
    const struct plan *plan = lowering->compute;
    struct action sync = whole_rank(ACTION_SYNC);

    if (source->virtual_stage != plan_stages(plan) - 1) {
        return STATUS_OK;
    }
    lowering->forwards++;
    if (lowering->forwards != plan->shape.microbatches || !plan_syncs(plan)) {
        return STATUS_OK;
    }
    add_dependency(&sync, forward_at);
    return put(lowering, &sync);
}

static enum status lower_forward(struct lowering *lowering, const struct action *source)
{
    const struct plan *plan = lowering->compute;
    struct action action = derive(source, ACTION_F);
    struct pool *slots = &lowering->slots[source->chunk];
    int32_t at;

    TRY(put_source(lowering, &action, LANE_F));
    add_out_buffer(lowering, &action, LANE_F);
    at = here(lowering);
    action.slot = pool_take(slots);
    lowering->f_at[cell(lowering, source)] = at;
    lowering->slot_of[cell(lowering, source)] = action.slot;
    if (!plan_trains(plan)) {
        pool_give(slots, action.slot);
    }
    TRY(put(lowering, &action));
    TRY(put_send(lowering, &action, at, LANE_F));
    return put_head_sync(lowering, source, at);
}

/* I, or a B that stays whole, with its messages. */
static enum status lower_backward(struct lowering *lowering, const struct action *source,
                                  enum action_kind kind)
{
    struct action action = derive(source, kind);
    size_t at_cell = cell(lowering, source);
    struct pool *gradients = &lowering->gradients[source->chunk];
    int32_t at;

    if (lowering->f_at[at_cell] == ACTION_NONE) {
        return REFUSAL(lowering->compute, lowering->rank, lowering->source,
                       "stands before the F of its micro-batch and virtual stage");
    }
    TRY(put_source(lowering, &action, LANE_B));
    add_dependency(&action, lowering->f_at[at_cell]);
    add_out_buffer(lowering, &action, LANE_B);
    at = here(lowering);
    action.slot = lowering->slot_of[at_cell];
    action.gradient = pool_take(gradients);
    lowering->i_at[at_cell] = at;
    lowering->gradient_of[at_cell] = action.gradient;
    if (kind == ACTION_B) {
        pool_give(gradients, action.gradient);
        pool_give(&lowering->slots[source->chunk], action.slot);
    }
    TRY(put(lowering, &action));
    return put_send(lowering, &action, at, LANE_B);
}

static enum status lower_weight(struct lowering *lowering, const struct action *source)
{
    struct action action = derive(source, ACTION_W);
    size_t at_cell = cell(lowering, source);

    if (lowering->i_at[at_cell] == ACTION_NONE) {
        return REFUSAL(lowering->compute, lowering->rank, lowering->source,
                       "stands before the I of its micro-batch and virtual stage");
    }
    add_dependency(&action, lowering->i_at[at_cell]);
    action.slot = lowering->slot_of[at_cell];
    action.gradient = lowering->gradient_of[at_cell];
    pool_give(&lowering->gradients[source->chunk], action.gradient);
    pool_give(&lowering->slots[source->chunk], action.slot);
    return put(lowering, &action);
}

static enum status lower_action(struct lowering *lowering, const struct action *source)
{
    const struct plan *plan = lowering->compute;
    enum action_kind kind = (enum action_kind)source->kind;

    if (kind != ACTION_F && !plan_trains(plan)) {
        return REFUSAL(plan, lowering->rank, lowering->source,
                       "a forward-only plan has no backward");
    }
    switch (kind) {
    case ACTION_F:
        return lower_forward(lowering, source);
    case ACTION_I:
        return lower_backward(lowering, source, ACTION_I);
    case ACTION_W:
        return lower_weight(lowering, source);
    default:
        if (!plan->shape.early_send ||
            plan_target(plan, source->virtual_stage, LANE_B) == ACTION_NONE) {
            return lower_backward(lowering, source, ACTION_B);
        }
        TRY(lower_backward(lowering, source, ACTION_I));
        return lower_weight(lowering, source);
    }
}

/* How many actions the line of `rank` can become at most: the few too many stay unused. */
static int32_t most_actions(const struct plan *compute, int32_t rank)
{
    const struct plan_line *line = &compute->lines[rank];
    int32_t most = 3; /* two SYNC and STEP */
    int32_t i;

    for (i = 0; i < line->count; i++) {
        const struct action *action = &line->actions[i];
        enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;

        most++;
        if (action->kind != ACTION_W) {
            bool sends = plan_target(compute, action->virtual_stage, direction) != ACTION_NONE;
            bool split = action->kind == ACTION_B && compute->shape.early_send && sends;

            most += plan_source(compute, action->virtual_stage, direction) != ACTION_NONE;
            most += (sends ? 1 : 0) + (split ? 1 : 0);
        }
    }
    return most;
}

static void count_buffers(struct lowering *lowering)
{
    const struct plan *plan = lowering->compute;
    int32_t d = plan->shape.lane_depth;
    int32_t v = plan->shape.virtual_stages;
    int32_t chunk;

    for (chunk = 0; chunk < v; chunk++) {
        int32_t stage = lowering->index->stage_of[lowering->rank * v + chunk];
        struct plan_buffers *buffers = &lowering->lowered->buffers[lowering->rank * v + chunk];
        bool from_before = plan_source(plan, stage, LANE_F) != ACTION_NONE;
        bool from_behind = plan_trains(plan) && plan_source(plan, stage, LANE_B) != ACTION_NONE;

        buffers->slots = lowering->slots[chunk].made;
        buffers->gradients = lowering->gradients[chunk].made;
        buffers->landing_f = from_before ? buffers->slots + d : 0;
        buffers->landing_b = from_behind ? buffers->gradients + d : 0;
    }
}

static enum status lower_line(struct lowering *lowering, int32_t rank)
{
    const struct plan *plan = lowering->compute;
    const struct plan_line *line = &plan->lines[rank];
    struct action step = whole_rank(ACTION_STEP);
    struct action sync = whole_rank(ACTION_SYNC);

    begin_line(lowering, rank);
    TRY(plan_reserve(lowering->lowered, rank, most_actions(plan, rank)));
    for (lowering->source = 0; lowering->source < line->count; lowering->source++) {
        TRY(lower_action(lowering, &line->actions[lowering->source]));
    }
    count_buffers(lowering);
    if (!plan_trains(plan)) {
        return STATUS_OK;
    }
    if (plan_syncs(plan) && rank == plan->rank_of[0]) {
        add_dependency(&step, here(lowering));
        TRY(put(lowering, &sync));
    }
    return put(lowering, &step);
}

static enum status lower_all(struct lowering *lowering)
{
    struct plan *lowered = lowering->lowered;
    size_t table_bytes = (size_t)plan_stages(lowered) * sizeof(int32_t);
    int32_t rank;

    memcpy(lowered->rank_of, lowering->compute->rank_of, table_bytes);
    memcpy(lowered->chunk_of, lowering->compute->chunk_of, table_bytes);
    lowered->lowered = true;
    for (rank = 0; rank < lowered->shape.ranks; rank++) {
        TRY(lower_line(lowering, rank));
    }
    return landing_number(lowered);
}

enum status plan_lower(const struct plan *compute, struct plan **lowered_out)
{
    struct plan_index index;
    struct lowering lowering;
    struct plan *lowered = NULL;
    enum status status;

    ENSURE(compute->shape.virtual_stages >= 1, "%d chunks", compute->shape.virtual_stages);
    if (compute->lowered) {
        return status_fail(STATUS_ERR_INVALID, "lowering: the plan is lowered already");
    }
    TRY(plan_index_init(&index, compute));
    TRY_OR(no_plan, status, plan_create(&compute->shape, &lowered));
    if (lowering_init(&lowering, compute, &index, lowered)) {
        status = lower_all(&lowering);
        lowering_release(&lowering);
    } else {
        status = status_fail(STATUS_ERR_NO_MEMORY, "lowering: no memory for %d micro-batches",
                             compute->shape.microbatches);
    }
    if (status < 0) {
        plan_destroy(&lowered);
    }
no_plan:
    plan_index_release(&index);
    if (status == STATUS_OK) {
        *lowered_out = lowered;
    }
    return status;
}
