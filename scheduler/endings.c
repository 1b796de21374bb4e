#include "scheduler/endings.h"

#include <stdbool.h>

#include "scheduler/plan_check.h"
#include "scheduler/refusal.h"

static enum status check_step(const struct plan *plan, const struct plan_index *index, int32_t rank)
{
    const struct plan_line *line = &plan->lines[rank];
    bool trains = plan_trains(plan);
    int32_t step = index->ends[rank].step;

    if (step != ACTION_NONE && (!trains || step + 1 < line->count)) {
        return REFUSAL(plan, rank, step, "%s",
                       trains ? "is not the last action of its rank"
                              : "has no place in a forward-only plan");
    }
    if (trains && step == ACTION_NONE) {
        return REFUSAL_OF_RANK(plan, rank, "does not end with STEP");
    }
    return STATUS_OK;
}

/* The last compute action or SEND of a rank; what ends its step stands behind it. */
static int32_t last_work(const struct plan_line *line, bool sends)
{
    int32_t i = line->count - 1;

    while (i >= 0 && !action_is_compute((enum action_kind)line->actions[i].kind) &&
           !(sends && line->actions[i].kind == ACTION_SEND)) {
        i--;
    }
    return i;
}

/* One REDUCE a rank, behind its last compute action, which it names, and its last SEND; STEP names
 * the REDUCE. */
static enum status check_reduce(const struct plan *plan, const struct plan_index *index,
                                int32_t rank)
{
    const struct plan_line *line = &plan->lines[rank];
    int32_t reduce = index->ends[rank].reduce;
    int32_t again = index->ends[rank].reduce_again;

    if (reduce != ACTION_NONE && !plan_reduces(plan)) {
        return REFUSAL(plan, rank, reduce, "has no place in this plan");
    }
    if (again != ACTION_NONE) {
        return REFUSAL(plan, rank, again, "repeats action %d (REDUCE)", reduce);
    }
    if (!plan_reduces(plan)) {
        return STATUS_OK;
    }
    if (reduce == ACTION_NONE) {
        return REFUSAL_OF_RANK(plan, rank, "has no REDUCE");
    }
    if (reduce < last_work(line, true)) {
        return REFUSAL(plan, rank, reduce, "stands before the last compute action or SEND, %d",
                       last_work(line, true));
    }
    TRY(plan_check_after(plan, rank, last_work(line, false), reduce));
    return plan_check_after(plan, rank, reduce, line->count - 1);
}

/* The head's SYNC waits for its last F. */
static enum status check_head_sync(const struct plan *plan, const struct plan_index *index)
{
    int32_t last = ACTION_NONE;

    for (int32_t microbatch = 0; microbatch < index->microbatches; microbatch++) {
        int32_t forward = plan_index_at(index, PLACE_F, index->stages - 1, microbatch);

        last = forward > last ? forward : last;
    }
    return plan_check_after(plan, plan->rank_of[index->stages - 1], last, index->sync[0]);
}

/* The owner's SYNC stands behind everything that its rank computes and reduces, because whoever walks
 * the line may wait in it; STEP waits for it. */
static enum status check_owner_sync(const struct plan *plan, const struct plan_index *index)
{
    int32_t owner = plan->rank_of[0];
    const struct plan_line *line = &plan->lines[owner];

    for (int32_t i = index->sync[1] + 1; i < line->count; i++) {
        if (line->actions[i].kind != ACTION_STEP) {
            return REFUSAL(plan, owner, index->sync[1],
                           "stands before action %d: STEP alone may "
                           "follow the owner's SYNC",
                           i);
        }
    }
    return plan_check_after(plan, owner, index->sync[1], line->count - 1);
}

enum status endings_check_sync(const struct plan *plan, const struct plan_index *index,
                               int32_t rank)
{
    bool head = rank == plan->rank_of[index->stages - 1];
    bool owner = rank == plan->rank_of[0];

    if (!plan_syncs(plan) || (!head && !owner)) {
        return STATUS_OK;
    }
    if (index->sync[head ? 0 : 1] == ACTION_NONE) {
        return REFUSAL_OF_RANK(plan, rank, "has no SYNC");
    }
    return head ? check_head_sync(plan, index) : check_owner_sync(plan, index);
}

enum status endings_check_line(const struct plan *plan, const struct plan_index *index,
                               int32_t rank)
{
    TRY(check_step(plan, index, rank));
    return check_reduce(plan, index, rank);
}
