#include "scheduler/proof.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/endings.h"
#include "scheduler/gathering.h"
#include "scheduler/large.h"

enum status proof_init(struct proof *proof, const struct plan *plan)
{
    size_t messages =
        LANE_DIRECTIONS * (size_t)plan_stages(plan) * (size_t)plan->shape.microbatches;
    enum status status = STATUS_OK;

    memset(proof, 0, sizeof(*proof));
    proof->plan = plan;
    TRY(lifetime_check_counts(plan));
    TRY_OR(fail, status, plan_index_init_line(&proof->index, plan));
    TRY_OR(fail, status, lane_order_init(&proof->lanes, &proof->index));
    TRY_OR(fail, status, lifetimes_init(&proof->lifetimes, plan, &proof->index));
    TRY_OR(fail, status, course_init(&proof->course, plan, &proof->index));
    proof->sequences = large_alloc(messages, sizeof(*proof->sequences));
    if (proof->sequences == NULL) {
        status =
            status_fail(STATUS_ERR_NO_MEMORY, "validation: no memory for %zu messages", messages);
        goto fail;
    }
    memset(proof->sequences, 0xff, messages * sizeof(*proof->sequences));
    return STATUS_OK;

fail:
    proof_release(proof);
    return status;
}

void proof_release(struct proof *proof)
{
    plan_index_release(&proof->index);
    lane_order_release(&proof->lanes);
    lifetimes_release(&proof->lifetimes);
    course_release(&proof->course);
    free(proof->sequences);
    proof->sequences = NULL;
}

/* Every action has a place of its own in the index and none has two, so where there are as many as there
 * are places, each has its action. */
static bool is_complete(const struct proof *proof, int32_t rank)
{
    const struct plan *plan = proof->plan;
    int32_t v = plan->shape.virtual_stages;
    int32_t m = plan->shape.microbatches;
    int32_t backwards = plan_trains(plan) ? v * m : 0;
    const int32_t *entries = proof->index.entries;
    bool complete =
        entries[PLACE_F] == v * m && entries[PLACE_I] == backwards && entries[PLACE_W] == backwards;

    for (int i = 0; i < LANE_DIRECTIONS; i++) {
        enum lane_direction direction = (enum lane_direction)i;
        bool used = direction == LANE_F || plan_trains(plan);
        int32_t sends = 0;
        int32_t receives = 0;

        for (int32_t chunk = 0; used && chunk < v; chunk++) {
            int32_t stage = proof->index.stage_of[(size_t)rank * (size_t)v + (size_t)chunk];

            sends += plan_target(plan, stage, direction) != ACTION_NONE ? m : 0;
            receives += plan_source(plan, stage, direction) != ACTION_NONE ? m : 0;
        }
        complete = complete && entries[plan_place_send(direction)] == sends &&
                   entries[plan_place_receive(direction)] == receives;
    }
    return complete;
}

/* Whether action i stands behind `earlier` and names it; nothing where that is ACTION_NONE or i. */
static bool names(const struct action *action, int32_t i, int32_t earlier)
{
    bool found = earlier == ACTION_NONE || earlier == i;

    for (int d = 0; d < ACTION_DEPENDS && !found; d++) {
        found = action->depends[d] == earlier && earlier < i;
    }
    return found;
}

/* The message into F, I or B, and the chunk before it on the same rank. */
static bool names_input(const struct proof *proof, const struct action *action, int32_t i,
                        enum lane_direction direction)
{
    int32_t stage = action->virtual_stage;
    int32_t before = plan_local_source(proof->plan, stage, direction);

    return names(action, i,
                 plan_index_at(&proof->index, plan_place_receive(direction), stage,
                               action->microbatch)) &&
           (before == ACTION_NONE ||
            names(action, i,
                  plan_index_at(&proof->index, plan_place_compute(direction), before,
                                action->microbatch)));
}

/* What precedence_check() asks, of the later action of each pair. */
static bool names_what_it_needs(const struct proof *proof, const struct action *action, int32_t i)
{
    const struct plan_index *index = &proof->index;
    int32_t stage = action->virtual_stage;
    int32_t microbatch = action->microbatch;

    switch ((enum action_kind)action->kind) {
    case ACTION_F:
        return names_input(proof, action, i, LANE_F);
    case ACTION_I:
    case ACTION_B:
        return names_input(proof, action, i, LANE_B) &&
               names(action, i, plan_index_at(index, PLACE_F, stage, microbatch));
    case ACTION_W:
        return names(action, i, plan_index_at(index, PLACE_I, stage, microbatch));
    case ACTION_SEND:
        return names(action, i,
                     plan_index_at(index,
                                   plan_place_compute((enum lane_direction)action->direction),
                                   stage, microbatch));
    default:
        return true;
    }
}

/* Both ends of each message give it the same place in the lane: the second one compares. */
static bool agrees(struct proof *proof, const struct action *action)
{
    enum lane_direction direction = (enum lane_direction)action->direction;
    int32_t stage = action->kind == ACTION_SEND
                        ? plan_target(proof->plan, action->virtual_stage, direction)
                        : action->virtual_stage;
    size_t row = (size_t)direction * (size_t)proof->index.stages + (size_t)stage;
    int32_t *sequence =
        &proof->sequences[row * (size_t)proof->index.microbatches + (size_t)action->microbatch];
    bool same = *sequence == ACTION_NONE || *sequence == action->sequence;

    *sequence = action->sequence;
    return same;
}

static enum status not_proved(int32_t rank)
{
    return status_note(STATUS_ERR_REFUSED, "rank %d: the line is not proved by itself", rank);
}

/* All that is asked of one action in its line, at once. */
static enum status add_action(struct proof *proof, int32_t rank, int32_t i)
{
    const struct action *action = &proof->plan->lines[rank].actions[i];

    if (!names_what_it_needs(proof, action, i)) {
        return not_proved(rank);
    }
    if (action->kind == ACTION_SEND || action->kind == ACTION_RECV) {
        TRY(lane_order_check(proof->plan, &proof->index, &proof->lanes, rank, i));
        if (!agrees(proof, action)) {
            return not_proved(rank);
        }
    }
    TRY(lifetime_check_action(&proof->lifetimes, i));
    return course_add_action(&proof->course, rank, i) ? STATUS_OK : not_proved(rank);
}

enum status proof_add_line(struct proof *proof, int32_t rank)
{
    const struct plan *plan = proof->plan;

    TRY(plan_index_read_line(&proof->index, plan, rank));
    if (!is_complete(proof, rank)) {
        return not_proved(rank);
    }
    TRY(gathering_check_line(plan, rank));
    lifetimes_begin_line(&proof->lifetimes, rank);
    course_begin_line(&proof->course, rank);
    for (int32_t i = 0; i < plan->lines[rank].count; i++) {
        TRY(add_action(proof, rank, i));
    }
    course_end_line(&proof->course, rank);
    TRY(endings_check_line(plan, &proof->index, rank));
    return endings_check_sync(plan, &proof->index, rank);
}

enum status proof_join(struct proof *proof, const struct proof *other)
{
    size_t messages =
        LANE_DIRECTIONS * (size_t)proof->index.stages * (size_t)proof->index.microbatches;

    for (size_t i = 0; i < messages; i++) {
        int32_t *own = &proof->sequences[i];

        if (*own != ACTION_NONE && other->sequences[i] != ACTION_NONE &&
            *own != other->sequences[i]) {
            return status_note(STATUS_ERR_REFUSED, "the ends of a message do not agree");
        }
        *own = *own == ACTION_NONE ? other->sequences[i] : *own;
    }
    course_join(&proof->course, &other->course);
    return STATUS_OK;
}

enum status proof_finish(const struct proof *proof)
{
    bool complete = false;

    TRY(course_walk(&proof->course, &complete));
    return complete ? STATUS_OK
                    : status_note(STATUS_ERR_REFUSED, "%d ranks: not all get to their end",
                                  proof->plan->shape.ranks);
}

static enum status prove(const struct plan *plan)
{
    struct proof proof;
    enum status status = STATUS_OK;

    TRY(proof_init(&proof, plan));
    for (int32_t rank = 0; rank < plan->shape.ranks && status == STATUS_OK; rank++) {
        status = proof_add_line(&proof, rank);
    }
    if (status == STATUS_OK) {
        status = proof_finish(&proof);
    }
    proof_release(&proof);
    return status;
}

bool proof_holds(const struct plan *plan)
{
    enum status status;

    status_hush(true);
    status = prove(plan);
    status_hush(false);
    return status == STATUS_OK;
}
