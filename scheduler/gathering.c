#include "scheduler/gathering.h"

#include "scheduler/refusal.h"

/* Whether a GATHER or RELEASE is that of `other`, an F, I or B. */
static bool is_around(const struct action *action, const struct action *other)
{
    bool forward = other->kind == ACTION_F;

    return (forward || other->kind == ACTION_I || other->kind == ACTION_B) &&
           action->virtual_stage == other->virtual_stage &&
           action->microbatch == other->microbatch &&
           action->direction == (forward ? LANE_F : LANE_B);
}

static enum status check_names(const struct plan *plan, int32_t rank, int32_t i, int32_t earlier)
{
    const struct action *actions = plan->lines[rank].actions;
    char text[32];

    if (earlier == ACTION_NONE) {
        return STATUS_OK;
    }
    for (int d = 0; d < ACTION_DEPENDS; d++) {
        if (actions[i].depends[d] == earlier) {
            return STATUS_OK;
        }
    }
    (void)action_print(&actions[earlier], text, sizeof(text));
    return REFUSAL(plan, rank, i, "does not name action %d (%s) among its dependencies", earlier,
                   text);
}

/* The F, I or B at index i; `last` is the RELEASE before. */
static enum status check_gathered(const struct plan *plan, int32_t rank, int32_t i, int32_t last)
{
    const struct plan_line *line = &plan->lines[rank];
    const struct action *action = &line->actions[i];

    if (i == 0 || action[-1].kind != ACTION_GATHER || !is_around(&action[-1], action)) {
        return REFUSAL(plan, rank, i, "has no GATHER of its own right before it");
    }
    if (i + 1 == line->count || action[1].kind != ACTION_RELEASE ||
        !is_around(&action[1], action)) {
        return REFUSAL(plan, rank, i, "has no RELEASE of its own right behind it");
    }
    TRY(check_names(plan, rank, i - 1, last));
    TRY(check_names(plan, rank, i, i - 1));
    return check_names(plan, rank, i + 1, i);
}

static enum status check_beside(const struct plan *plan, int32_t rank, int32_t i)
{
    const struct plan_line *line = &plan->lines[rank];
    const struct action *action = &line->actions[i];
    int32_t other = action->kind == ACTION_GATHER ? i + 1 : i - 1;

    if (other < 0 || other == line->count || !is_around(action, &line->actions[other])) {
        return REFUSAL(plan, rank, i, "stands beside no F, I or B of its own");
    }
    return STATUS_OK;
}

/* `last` is the RELEASE before, and then that of this action where it has one. */
static enum status check_action(const struct plan *plan, int32_t rank, int32_t i, int32_t *last)
{
    enum action_kind kind = (enum action_kind)plan->lines[rank].actions[i].kind;

    if (kind == ACTION_GATHER || kind == ACTION_RELEASE) {
        return check_beside(plan, rank, i);
    }
    if (action_is_compute(kind) && kind != ACTION_W) {
        TRY(check_gathered(plan, rank, i, *last));
        *last = i + 1;
    }
    return STATUS_OK;
}

enum status gathering_check_line(const struct plan *plan, int32_t rank)
{
    int32_t last = ACTION_NONE;

    for (int32_t i = 0; plan_gathers(plan) && i < plan->lines[rank].count; i++) {
        TRY(check_action(plan, rank, i, &last));
    }
    return STATUS_OK;
}

enum status gathering_check(const struct plan *plan)
{
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        TRY(gathering_check_line(plan, rank));
    }
    return STATUS_OK;
}
