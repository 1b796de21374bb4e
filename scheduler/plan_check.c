#include "scheduler/plan_check.h"

#include <stdbool.h>
#include <string.h>

#include "scheduler/plan_index.h"
#include "scheduler/refusal.h"

#define CHECKED_PLACES (PLACE_W + 1) /* F, I, W */

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

static enum status refuse_depends(const struct plan *plan, int32_t rank, int32_t i, int d)
{
    int32_t other = plan->lines[rank].actions[i].depends[d];

    if (other < ACTION_NONE || other >= i) {
        return REFUSAL(plan, rank, i, "dependency %d does not point to an earlier action", other);
    }
    if (d > 0 && plan->lines[rank].actions[i].depends[d - 1] == ACTION_NONE) {
        return REFUSAL(plan, rank, i, "dependency %d stands behind an empty place", other);
    }
    return REFUSAL(plan, rank, i,
                   "may not wait for action %d: only compute and STEP wait for messages, "
                   "and a RECV for nothing in its line",
                   other);
}

static enum status check_depends(const struct plan *plan, int32_t rank, int32_t i)
{
    const struct action *actions = plan->lines[rank].actions;
    const struct action *action = &actions[i];
    bool open = false;

    for (int d = 0; d < ACTION_DEPENDS; d++) {
        int32_t other = action->depends[d];

        if (other == ACTION_NONE) {
            open = true;
        } else if (other < 0 || other >= i || open || !may_name(action, &actions[other])) {
            return refuse_depends(plan, rank, i, d);
        }
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

enum status plan_check_action(const struct plan *plan, int32_t rank, int32_t i)
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

enum status plan_refuse_place(const struct plan *plan, int32_t rank, int32_t i, int32_t other)
{
    char text[32];

    (void)action_print(&plan->lines[rank].actions[other], text, sizeof(text));
    return REFUSAL(plan, rank, i, "repeats action %d (%s)", other, text);
}

enum status plan_check_after(const struct plan *plan, int32_t rank, int32_t earlier, int32_t later)
{
    const struct action *actions = plan->lines[rank].actions;
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
    return REFUSAL(plan, rank, later, "%s action %d (%s)%s",
                   earlier > later ? "stands before" : "does not name", earlier, text,
                   earlier > later ? " that it needs" : " among its dependencies");
}

size_t plan_check_cells(const struct plan *plan)
{
    return (size_t)CHECKED_PLACES * (size_t)plan->shape.virtual_stages *
           (size_t)plan->shape.microbatches;
}

/* `seen` has the places of F, I and W, `cells` each. */
static enum status check_place(const struct plan *plan, int32_t rank, int32_t i, int32_t *seen,
                               size_t cells)
{
    const struct action *action = &plan->lines[rank].actions[i];
    int32_t *at = &seen[(size_t)action->chunk * (size_t)plan->shape.microbatches +
                        (size_t)action->microbatch];

    switch ((enum action_kind)action->kind) {
    case ACTION_F:
        return plan_check_place(plan, rank, i, at + PLACE_F * cells);
    case ACTION_I:
        return plan_check_place(plan, rank, i, at + PLACE_I * cells);
    case ACTION_B:
        TRY(plan_check_place(plan, rank, i, at + PLACE_I * cells));
        return plan_check_place(plan, rank, i, at + PLACE_W * cells);
    case ACTION_W:
        return plan_check_place(plan, rank, i, at + PLACE_W * cells);
    default:
        return STATUS_OK;
    }
}

enum status plan_check_line(const struct plan *plan, int32_t rank, int32_t *seen)
{
    size_t cells = (size_t)plan->shape.virtual_stages * (size_t)plan->shape.microbatches;

    memset(seen, 0xff, plan_check_cells(plan) * sizeof(*seen));
    for (int32_t i = 0; i < plan->lines[rank].count; i++) {
        TRY(plan_check_action(plan, rank, i));
        TRY(check_place(plan, rank, i, seen, cells));
    }
    return STATUS_OK;
}
