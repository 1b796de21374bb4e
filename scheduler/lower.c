#include "scheduler/lower.h"

#include <string.h>

#include "base/check.h"
#include "scheduler/generate.h"
#include "scheduler/landing.h"
#include "scheduler/lowering.h"
#include "scheduler/plan_index.h"
#include "scheduler/refusal.h"

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
                            .landing = ACTION_NONE,
                            .target = ACTION_NONE};
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
 * or the earlier action of this rank where both are neighbours on it, which wrote its message into
 * a landing buffer of the consumer's chunk. */
static enum status put_source(struct lowering *lowering, struct action *consumer,
                              enum lane_direction direction)
{
    const struct plan *plan = lowering->compute;
    int32_t source = plan_source(plan, consumer->virtual_stage, direction);
    int32_t before = plan_local_source(plan, consumer->virtual_stage, direction);
    struct action receive = derive(consumer, ACTION_RECV);

    if (source != ACTION_NONE) {
        receive.direction = (uint8_t)direction;
        receive.peer = plan->rank_of[source];
        receive.sequence = lowering->received[direction][receive.peer]++;
        add_dependency(consumer, here(lowering));
        return put(lowering, &receive);
    }
    if (before != ACTION_NONE) {
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
        consumer->landing = lowering->local_of[direction][lowering_cell(lowering, consumer)];
    }
    return STATUS_OK;
}

/* The landing buffer that a producer writes to where its consumer is a chunk of the same rank. */
static void take_target(struct lowering *lowering, struct action *producer,
                        enum lane_direction direction)
{
    const struct plan *plan = lowering->compute;
    int32_t target = plan_local_target(plan, producer->virtual_stage, direction);

    if (target != ACTION_NONE) {
        int32_t chunk = plan->chunk_of[target];

        producer->target = pool_take(&lowering->locals[direction][chunk]);
        lowering->local_of[direction][(size_t)chunk * (size_t)plan->shape.microbatches +
                                      (size_t)producer->microbatch] = producer->target;
    }
}

/* Gives back what take_target() took, when the last reader, an action like `reader`, has its place
 * in the line. */
static void give_local(struct lowering *lowering, const struct action *reader,
                       enum lane_direction direction)
{
    int32_t number = lowering->local_of[direction][lowering_cell(lowering, reader)];

    if (number != ACTION_NONE) {
        pool_give(&lowering->locals[direction][reader->chunk], number);
    }
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

/* The GATHER that `action`, which stands right behind it, waits for. It waits in turn until the
 * action before has given back what it had. */
static enum status put_gather(struct lowering *lowering, struct action *action,
                              enum lane_direction direction)
{
    struct action gather = derive(action, ACTION_GATHER);

    if (!plan_gathers(lowering->compute)) {
        return STATUS_OK;
    }
    gather.direction = (uint8_t)direction;
    add_dependency(&gather, lowering->last_release);
    add_dependency(action, here(lowering));
    return put(lowering, &gather);
}

/* Behind `action`, which stands at `at`. */
static enum status put_release(struct lowering *lowering, const struct action *action, int32_t at,
                               enum lane_direction direction)
{
    struct action release = derive(action, ACTION_RELEASE);

    if (!plan_gathers(lowering->compute)) {
        return STATUS_OK;
    }
    release.direction = (uint8_t)direction;
    add_dependency(&release, at);
    lowering->last_release = here(lowering);
    return put(lowering, &release);
}

static enum status lower_forward(struct lowering *lowering, const struct action *source)
{
    const struct plan *plan = lowering->compute;
    struct action action = derive(source, ACTION_F);
    struct pool *slots = &lowering->slots[source->chunk];
    int32_t at;

    TRY(put_source(lowering, &action, LANE_F));
    add_out_buffer(lowering, &action, LANE_F);
    TRY(put_gather(lowering, &action, LANE_F));
    at = here(lowering);
    action.slot = pool_take(slots);
    lowering->f_at[lowering_cell(lowering, source)] = at;
    lowering->slot_of[lowering_cell(lowering, source)] = action.slot;
    take_target(lowering, &action, LANE_F);
    if (!plan_trains(plan)) {
        pool_give(slots, action.slot);
        give_local(lowering, &action, LANE_F);
    }
    TRY(put(lowering, &action));
    TRY(put_release(lowering, &action, at, LANE_F));
    TRY(put_send(lowering, &action, at, LANE_F));
    return put_head_sync(lowering, source, at);
}

/* I, or a B that stays whole, with its messages. */
static enum status lower_backward(struct lowering *lowering, const struct action *source,
                                  enum action_kind kind)
{
    struct action action = derive(source, kind);
    size_t at_cell = lowering_cell(lowering, source);
    struct pool *gradients = &lowering->gradients[source->chunk];
    int32_t at;

    if (lowering->f_at[at_cell] == ACTION_NONE) {
        return REFUSAL(lowering->compute, lowering->rank, lowering->source,
                       "stands before the F of its micro-batch and virtual stage");
    }
    TRY(put_source(lowering, &action, LANE_B));
    add_dependency(&action, lowering->f_at[at_cell]);
    add_out_buffer(lowering, &action, LANE_B);
    TRY(put_gather(lowering, &action, LANE_B));
    at = here(lowering);
    action.slot = lowering->slot_of[at_cell];
    action.gradient = pool_take(gradients);
    lowering->i_at[at_cell] = at;
    lowering->gradient_of[at_cell] = action.gradient;
    take_target(lowering, &action, LANE_B);
    give_local(lowering, &action, LANE_F);
    if (kind == ACTION_B) {
        give_local(lowering, &action, LANE_B);
        pool_give(gradients, action.gradient);
        pool_give(&lowering->slots[source->chunk], action.slot);
    }
    TRY(put(lowering, &action));
    TRY(put_release(lowering, &action, at, LANE_B));
    return put_send(lowering, &action, at, LANE_B);
}

static enum status lower_weight(struct lowering *lowering, const struct action *source)
{
    struct action action = derive(source, ACTION_W);
    size_t at_cell = lowering_cell(lowering, source);

    if (lowering->i_at[at_cell] == ACTION_NONE) {
        return REFUSAL(lowering->compute, lowering->rank, lowering->source,
                       "stands before the I of its micro-batch and virtual stage");
    }
    add_dependency(&action, lowering->i_at[at_cell]);
    action.slot = lowering->slot_of[at_cell];
    action.gradient = lowering->gradient_of[at_cell];
    action.landing = lowering->local_of[LANE_B][at_cell];
    give_local(lowering, &action, LANE_B);
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
    int32_t most = 4; /* two SYNC, REDUCE and STEP */
    int32_t i;

    for (i = 0; i < line->count; i++) {
        const struct action *action = &line->actions[i];
        enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;

        most++;
        if (action->kind != ACTION_W) {
            bool sends = plan_target(compute, action->virtual_stage, direction) != ACTION_NONE;
            bool split = action->kind == ACTION_B && compute->shape.early_send && sends;

            most += plan_source(compute, action->virtual_stage, direction) != ACTION_NONE;
            most += plan_gathers(compute) ? 2 : 0;
            most += (sends ? 1 : 0) + (split ? 1 : 0);
        }
    }
    return most;
}

/* Landing buffers of a lane into `stage` beyond what its chunk holds. Groups of more than p
 * micro-batches come back to the rank that they left before it takes them: as many messages as a
 * group is too large wait in the lanes that close the loop. */
static int32_t depth_of(const struct plan *plan, int32_t stage, enum lane_direction direction)
{
    const struct plan_shape *shape = &plan->shape;
    bool loop =
        shape->schedule == SCHEDULE_INTERLEAVED_1F1B || shape->schedule == SCHEDULE_FORWARD_ONLY;
    int32_t end = direction == LANE_F ? 0 : shape->ranks - 1;
    int32_t excess = plan_group_size(shape) - shape->ranks;

    return shape->lane_depth + (loop && stage % shape->ranks == end && excess > 0 ? excess : 0);
}

static void count_buffers(struct lowering *lowering)
{
    const struct plan *plan = lowering->compute;
    int32_t v = plan->shape.virtual_stages;
    int32_t chunk;

    for (chunk = 0; chunk < v; chunk++) {
        int32_t stage = lowering->index->stage_of[lowering->rank * v + chunk];
        struct plan_buffers *buffers = &lowering->lowered->buffers[lowering->rank * v + chunk];
        bool from_before = plan_source(plan, stage, LANE_F) != ACTION_NONE;
        bool from_behind = plan_trains(plan) && plan_source(plan, stage, LANE_B) != ACTION_NONE;
        int32_t local_f = lowering->locals[LANE_F][chunk].made;
        int32_t local_b = lowering->locals[LANE_B][chunk].made;

        buffers->slots = lowering->slots[chunk].made;
        buffers->gradients = lowering->gradients[chunk].made;
        buffers->landing_f = from_before ? buffers->slots + depth_of(plan, stage, LANE_F) : local_f;
        buffers->landing_b =
            from_behind ? buffers->gradients + depth_of(plan, stage, LANE_B) : local_b;
    }
}

/* What stands behind the last compute action of a rank that trains: REDUCE, which needs all of
 * them, and so the last; the owner's SYNC; STEP, which needs both. */
static enum status put_end(struct lowering *lowering)
{
    const struct plan *plan = lowering->compute;
    const struct plan_line *line = &lowering->lowered->lines[lowering->rank];
    struct action reduce = whole_rank(ACTION_REDUCE);
    struct action sync = whole_rank(ACTION_SYNC);
    struct action step = whole_rank(ACTION_STEP);

    if (plan_reduces(plan)) {
        int32_t last = line->count - 1;

        while (last >= 0 && !action_is_compute((enum action_kind)line->actions[last].kind)) {
            last--;
        }
        add_dependency(&reduce, last);
        add_dependency(&step, here(lowering));
        TRY(put(lowering, &reduce));
    }
    if (plan_syncs(plan) && lowering->rank == plan->rank_of[0]) {
        add_dependency(&step, here(lowering));
        TRY(put(lowering, &sync));
    }
    return put(lowering, &step);
}

static enum status lower_line(struct lowering *lowering, int32_t rank)
{
    const struct plan *plan = lowering->compute;
    const struct plan_line *line = &plan->lines[rank];

    lowering_begin_line(lowering, rank);
    TRY(plan_reserve(lowering->lowered, rank, most_actions(plan, rank)));
    for (lowering->source = 0; lowering->source < line->count; lowering->source++) {
        TRY(lower_action(lowering, &line->actions[lowering->source]));
    }
    count_buffers(lowering);
    if (!plan_trains(plan)) {
        return STATUS_OK;
    }
    return put_end(lowering);
}

static enum status lower_all(struct lowering *lowering)
{
    struct plan *lowered = lowering->lowered;
    int32_t rank;

    TRY(plan_place_as(lowered, lowering->compute));
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
