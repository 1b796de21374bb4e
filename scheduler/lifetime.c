#include "scheduler/lifetime.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/refusal.h"

#define HOLDER_TABLES 4 /* slots, gradients, locals of both directions */

/* Landing buffers of one direction: some where messages come by a lane, as many as micro-batches at
 * most where they are written on the same rank, none where nothing comes. */
static bool count_is_right(const struct plan *plan, int32_t stage, enum lane_direction direction,
                           int32_t count)
{
    bool used = direction == LANE_F || plan_trains(plan);

    if (used && plan_source(plan, stage, direction) != ACTION_NONE) {
        return count >= 1;
    }
    if (used && plan_local_source(plan, stage, direction) != ACTION_NONE) {
        return count >= 1 && count <= plan->shape.microbatches;
    }
    return count == 0;
}

enum status lifetime_check_counts(const struct plan *plan)
{
    int32_t m = plan->shape.microbatches;
    int32_t stage;

    for (stage = 0; stage < plan_stages(plan); stage++) {
        int32_t rank = plan->rank_of[stage];
        const struct plan_buffers *buffers = plan_buffers_of(plan, rank, plan->chunk_of[stage]);

        if (buffers->slots < 1 || buffers->slots > m || buffers->gradients < 0 ||
            buffers->gradients > m || !count_is_right(plan, stage, LANE_F, buffers->landing_f) ||
            !count_is_right(plan, stage, LANE_B, buffers->landing_b)) {
            return REFUSAL_OF_RANK(
                plan, rank,
                "has buffer counts for virtual stage %d that cannot be: %d slots, "
                "%d gradient sets, %d and %d landing buffers",
                stage, buffers->slots, buffers->gradients, buffers->landing_f, buffers->landing_b);
        }
    }
    return STATUS_OK;
}

static enum status take(const struct lifetimes *lifetimes, int32_t i, int32_t *holders,
                        int32_t number, int32_t count, const char *what)
{
    const struct action *action = &lifetimes->plan->lines[lifetimes->rank].actions[i];

    if (number < 0 || number >= count) {
        return REFUSAL(lifetimes->plan, lifetimes->rank, i, "%s %d is outside 0 to %d", what,
                       number, count - 1);
    }
    if (holders[number] != ACTION_NONE) {
        return REFUSAL(lifetimes->plan, lifetimes->rank, i,
                       "takes %s %d, which micro-batch %d still holds", what, number,
                       holders[number]);
    }
    holders[number] = action->microbatch;
    return STATUS_OK;
}

static enum status hold(const struct lifetimes *lifetimes, int32_t i, const int32_t *holders,
                        int32_t number, int32_t count, const char *what)
{
    const struct action *action = &lifetimes->plan->lines[lifetimes->rank].actions[i];

    if (number < 0 || number >= count || holders[number] != action->microbatch) {
        return REFUSAL(lifetimes->plan, lifetimes->rank, i,
                       "uses %s %d, which its micro-batch does not hold", what, number);
    }
    return STATUS_OK;
}

/* Takes, uses and gives back what the action's kind does; the counts bound every number. */
static enum status check_holders(const struct lifetimes *lifetimes, int32_t i)
{
    const struct plan *plan = lifetimes->plan;
    const struct action *action = &plan->lines[lifetimes->rank].actions[i];
    const struct plan_buffers *buffers = plan_buffers_of(plan, lifetimes->rank, action->chunk);
    size_t row = (size_t)action->chunk * (size_t)plan->shape.microbatches;
    int32_t *slots = lifetimes->slots + row;
    int32_t *gradients = lifetimes->gradients + row;

    if (action->kind == ACTION_F) {
        TRY(take(lifetimes, i, slots, action->slot, buffers->slots, "slot"));
        if (!plan_trains(plan)) {
            slots[action->slot] = ACTION_NONE;
        }
        return STATUS_OK;
    }
    TRY(hold(lifetimes, i, slots, action->slot, buffers->slots, "slot"));
    if (action->kind != ACTION_W) {
        TRY(take(lifetimes, i, gradients, action->gradient, buffers->gradients, "gradient set"));
    }
    if (action->kind != ACTION_I) {
        TRY(hold(lifetimes, i, gradients, action->gradient, buffers->gradients, "gradient set"));
        gradients[action->gradient] = ACTION_NONE;
        slots[action->slot] = ACTION_NONE;
    }
    return STATUS_OK;
}

/* The landing buffer of the message of `microbatch` into `stage`; ACTION_NONE without a lane. */
static int32_t landing_in_turn(const struct lifetimes *lifetimes, int32_t stage, int32_t microbatch,
                               enum lane_direction direction)
{
    const struct plan *plan = lifetimes->plan;
    const struct plan_index *index = lifetimes->index;
    const struct plan_buffers *buffers;
    int32_t turn = microbatch;

    if (plan_source(plan, stage, direction) == ACTION_NONE) {
        return ACTION_NONE;
    }
    if (index->shuffled[direction][stage]) {
        turn = index->turn[direction][plan_index_cell(index, stage, microbatch)];
    }
    buffers = plan_buffers_of(plan, plan->rank_of[stage], plan->chunk_of[stage]);
    return turn % (direction == LANE_F ? buffers->landing_f : buffers->landing_b);
}

static enum status check_landing(const struct lifetimes *lifetimes, int32_t i)
{
    const struct plan *plan = lifetimes->plan;
    const struct action *action = &plan->lines[lifetimes->rank].actions[i];
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t stage = action->virtual_stage;
    int32_t expected;

    if (action_is_compute((enum action_kind)action->kind)) {
        direction = action->kind == ACTION_F ? LANE_F : LANE_B;
    } else if (action->kind == ACTION_SEND) {
        stage = plan_target(plan, stage, direction);
    }
    if (action_is_compute((enum action_kind)action->kind) &&
        plan_local_source(plan, stage, direction) != ACTION_NONE) {
        return STATUS_OK; /* check_locals() */
    }
    expected = landing_in_turn(lifetimes, stage, action->microbatch, direction);
    if (action->landing != expected) {
        return REFUSAL(plan, lifetimes->rank, i, "landing buffer %d, expected %d in turn",
                       action->landing, expected);
    }
    return STATUS_OK;
}

/* Landing buffers of a chunk's messages of one direction, and their holders. */
static int32_t *locals_of(const struct lifetimes *lifetimes, int32_t stage,
                          enum lane_direction direction, int32_t *count_out)
{
    const struct plan *plan = lifetimes->plan;
    int32_t chunk = plan->chunk_of[stage];
    const struct plan_buffers *buffers = plan_buffers_of(plan, lifetimes->rank, chunk);

    *count_out = direction == LANE_F ? buffers->landing_f : buffers->landing_b;
    return lifetimes->locals[direction] + (size_t)chunk * (size_t)plan->shape.microbatches;
}

/* Gives back landing buffer `number` of the chunk of `stage` where it is written on this rank. */
static void give_local(const struct lifetimes *lifetimes, int32_t stage,
                       enum lane_direction direction, int32_t number)
{
    int32_t count;

    if (plan_local_source(lifetimes->plan, stage, direction) != ACTION_NONE) {
        locals_of(lifetimes, stage, direction, &count)[number] = ACTION_NONE;
    }
}

/* What the action writes for a chunk of the same rank, and what it reads from one: its dY, or the
 * input of F. An I reads the input again, in the buffer that its F named. */
static enum status check_locals(const struct lifetimes *lifetimes, int32_t i)
{
    const struct plan *plan = lifetimes->plan;
    const struct action *actions = plan->lines[lifetimes->rank].actions;
    const struct action *action = &actions[i];
    int32_t stage = action->virtual_stage;
    enum lane_direction direction = action->kind == ACTION_F ? LANE_F : LANE_B;
    int32_t target = plan_local_target(plan, stage, direction);
    int32_t count;
    int32_t *holders;

    if (!lifetimes->has_locals && action->target == ACTION_NONE) {
        return STATUS_OK;
    }
    if (plan_local_source(plan, stage, direction) != ACTION_NONE) {
        holders = locals_of(lifetimes, stage, direction, &count);
        TRY(hold(lifetimes, i, holders, action->landing, count, "landing buffer"));
    }
    if (action->kind != ACTION_W && target != ACTION_NONE) {
        holders = locals_of(lifetimes, target, direction, &count);
        TRY(take(lifetimes, i, holders, action->target, count, "landing buffer"));
    } else if (action->target != ACTION_NONE) {
        return REFUSAL(plan, lifetimes->rank, i,
                       "writes to landing buffer %d, but no chunk of this rank reads it",
                       action->target);
    }
    if (action->kind == ACTION_I || action->kind == ACTION_B) {
        int32_t forward = plan_index_at(lifetimes->index, PLACE_F, stage, action->microbatch);

        give_local(lifetimes, stage, LANE_F, actions[forward].landing);
    } else if (action->kind == ACTION_F && !plan_trains(plan)) {
        give_local(lifetimes, stage, LANE_F, action->landing);
    }
    if (action->kind == ACTION_W || action->kind == ACTION_B) {
        give_local(lifetimes, stage, LANE_B, action->landing);
    }
    return STATUS_OK;
}

static enum status ascend(const struct lifetimes *lifetimes, int32_t i, int32_t *last)
{
    const struct action *action = &lifetimes->plan->lines[lifetimes->rank].actions[i];

    if (action->microbatch <= *last) {
        return REFUSAL(lifetimes->plan, lifetimes->rank, i,
                       "adds to gradients after micro-batch %d: the order must ascend", *last);
    }
    *last = action->microbatch;
    return STATUS_OK;
}

/* The same of slices. `forward`: the slices before it have left their keys; else the slices behind it
 * have added to the gradients of its keys, and no other micro-batch has. */
static enum status follow(const struct lifetimes *lifetimes, int32_t i, int32_t *last, bool forward)
{
    const struct plan *plan = lifetimes->plan;
    const struct action *action = &plan->lines[lifetimes->rank].actions[i];
    int32_t k = plan_slices(plan);
    int32_t place = forward ? action->microbatch : plan_backward_place(plan, action->microbatch);

    if (place != *last + 1) {
        int32_t next = forward ? *last + 1 : plan_backward_place(plan, *last + 1);

        return REFUSAL(plan, lifetimes->rank, i,
                       "comes before slice %d of micro-batch %d: slices go %s, micro-batch after "
                       "micro-batch",
                       next % k, next / k,
                       forward ? "forward in ascending order" : "backward in descending order");
    }
    *last = place;
    return STATUS_OK;
}

static enum status check_slices(const struct lifetimes *lifetimes, int32_t i)
{
    const struct action *action = &lifetimes->plan->lines[lifetimes->rank].actions[i];
    struct accumulation *last = &lifetimes->last[action->chunk];

    if (action->kind == ACTION_F) {
        return follow(lifetimes, i, &last->head, true);
    }
    if (action->kind != ACTION_W) {
        TRY(follow(lifetimes, i, &last->I, false));
    }
    return action->kind == ACTION_I ? STATUS_OK : follow(lifetimes, i, &last->W, false);
}

static enum status check_accumulation(const struct lifetimes *lifetimes, int32_t i)
{
    const struct action *action = &lifetimes->plan->lines[lifetimes->rank].actions[i];
    struct accumulation *last = &lifetimes->last[action->chunk];

    if (plan_slices(lifetimes->plan) > 1) {
        return check_slices(lifetimes, i);
    }
    if (action->kind == ACTION_F) {
        return action->virtual_stage == lifetimes->index->stages - 1
                   ? ascend(lifetimes, i, &last->head)
                   : STATUS_OK;
    }
    if (action->kind != ACTION_W) {
        TRY(ascend(lifetimes, i, &last->I));
    }
    return action->kind == ACTION_I ? STATUS_OK : ascend(lifetimes, i, &last->W);
}

/* Fields that lowering leaves empty for this kind. */
static enum status check_empty(const struct lifetimes *lifetimes, int32_t i)
{
    const struct action *action = &lifetimes->plan->lines[lifetimes->rank].actions[i];
    bool message = action->kind == ACTION_SEND || action->kind == ACTION_RECV;
    bool compute = action_is_compute((enum action_kind)action->kind);
    bool staged = compute || action_has_direction((enum action_kind)action->kind);

    if ((!message && (action->peer != ACTION_NONE || action->sequence != ACTION_NONE)) ||
        (!compute && (action->slot != ACTION_NONE || action->gradient != ACTION_NONE)) ||
        (action->kind == ACTION_F && action->gradient != ACTION_NONE) ||
        (!compute && action->target != ACTION_NONE) ||
        (!message && !compute && action->landing != ACTION_NONE) ||
        (!staged && action->chunk != 0)) {
        return REFUSAL(lifetimes->plan, lifetimes->rank, i,
                       "has a peer, sequence, slot, gradient set, landing buffer or target that "
                       "this kind of action does not have");
    }
    return STATUS_OK;
}

enum status lifetime_check_action(const struct lifetimes *lifetimes, int32_t i)
{
    enum action_kind kind =
        (enum action_kind)lifetimes->plan->lines[lifetimes->rank].actions[i].kind;

    TRY(check_empty(lifetimes, i));
    if (!action_is_compute(kind) && kind != ACTION_SEND && kind != ACTION_RECV) {
        return STATUS_OK;
    }
    TRY(check_landing(lifetimes, i));
    if (!action_is_compute(kind)) {
        return STATUS_OK;
    }
    TRY(check_locals(lifetimes, i));
    TRY(check_holders(lifetimes, i));
    return check_accumulation(lifetimes, i);
}

void lifetimes_begin_line(struct lifetimes *lifetimes, int32_t rank)
{
    const struct plan *plan = lifetimes->plan;
    size_t cells = (size_t)plan->shape.virtual_stages * (size_t)plan->shape.microbatches;

    lifetimes->rank = rank;
    lifetimes->has_locals = false;
    for (int32_t chunk = 0; chunk < plan->shape.virtual_stages; chunk++) {
        int32_t stage =
            lifetimes->index
                ->stage_of[(size_t)rank * (size_t)plan->shape.virtual_stages + (size_t)chunk];

        lifetimes->has_locals |= plan_local_source(plan, stage, LANE_F) != ACTION_NONE ||
                                 plan_local_source(plan, stage, LANE_B) != ACTION_NONE;
    }
    memset(lifetimes->slots, 0xff, HOLDER_TABLES * cells * sizeof(int32_t));
    memset(lifetimes->last, 0xff, (size_t)plan->shape.virtual_stages * sizeof(*lifetimes->last));
}

static enum status check_line(struct lifetimes *lifetimes, int32_t rank)
{
    lifetimes_begin_line(lifetimes, rank);
    for (int32_t i = 0; i < lifetimes->plan->lines[rank].count; i++) {
        TRY(lifetime_check_action(lifetimes, i));
    }
    return STATUS_OK;
}

enum status lifetimes_init(struct lifetimes *lifetimes, const struct plan *plan,
                           const struct plan_index *index)
{
    size_t v = (size_t)plan->shape.virtual_stages;
    size_t cells = v * (size_t)plan->shape.microbatches;

    *lifetimes = (struct lifetimes){.plan = plan, .index = index};
    lifetimes->slots = calloc(HOLDER_TABLES * cells, sizeof(*lifetimes->slots));
    lifetimes->last = calloc(v, sizeof(*lifetimes->last));
    if (lifetimes->slots == NULL || lifetimes->last == NULL) {
        lifetimes_release(lifetimes);
        return status_fail(STATUS_ERR_NO_MEMORY, "validation: no memory for %zu cells", cells);
    }
    lifetimes->gradients = lifetimes->slots + cells;
    lifetimes->locals[LANE_F] = lifetimes->slots + 2 * cells;
    lifetimes->locals[LANE_B] = lifetimes->slots + 3 * cells;
    return STATUS_OK;
}

void lifetimes_release(struct lifetimes *lifetimes)
{
    free(lifetimes->slots);
    free(lifetimes->last);
    lifetimes->slots = NULL;
    lifetimes->last = NULL;
}

enum status lifetime_check(const struct plan *plan, const struct plan_index *index)
{
    struct lifetimes lifetimes;
    enum status status = STATUS_OK;

    TRY(lifetimes_init(&lifetimes, plan, index));
    for (int32_t rank = 0; rank < plan->shape.ranks && status == STATUS_OK; rank++) {
        status = check_line(&lifetimes, rank);
    }
    lifetimes_release(&lifetimes);
    return status;
}
