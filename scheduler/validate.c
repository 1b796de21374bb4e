#include "scheduler/validate.h"

#include <stdio.h>

#include "scheduler/deadlock.h"
#include "scheduler/depth.h"
#include "scheduler/endings.h"
#include "scheduler/gathering.h"
#include "scheduler/graph.h"
#include "scheduler/lane_order.h"
#include "scheduler/lifetime.h"
#include "scheduler/plan_index.h"
#include "scheduler/precedence.h"
#include "scheduler/proof.h"
#include "scheduler/refusal.h"

#define CYCLE_BYTES 840

typedef enum status (*stage_check_fn)(const struct plan *plan, const struct plan_index *index,
                                      int32_t stage);

static enum status for_each_stage(const struct plan *plan, const struct plan_index *index,
                                  stage_check_fn check)
{
    for (int32_t stage = 0; stage < index->stages; stage++) {
        TRY(check(plan, index, stage));
    }
    return STATUS_OK;
}

static enum status check_lanes(const struct plan *plan, const struct plan_index *index)
{
    struct lane_order order;
    enum status status = STATUS_OK;

    TRY(lane_order_init(&order, index));
    for (int32_t rank = 0; rank < plan->shape.ranks && status == STATUS_OK; rank++) {
        status = lane_order_check_line(plan, index, &order, rank);
    }
    lane_order_release(&order);
    return status < 0 ? status : for_each_stage(plan, index, precedence_check_tags);
}

/* Names the cycle, and the lane_depth that would open it where one does. */
static enum status refuse_deadlock(const struct plan *plan, const struct plan_index *index,
                                   const struct deadlock *deadlock)
{
    struct graph_node node = deadlock->edges[0].from;
    char cycle[CYCLE_BYTES];
    char remedy[48] = "at any lane_depth";
    int32_t depth;

    TRY(plan_free_depth(plan, index, &depth));
    if (depth > 0) {
        (void)snprintf(remedy, sizeof(remedy), "at lane_depth %d, but not at %d",
                       plan->shape.lane_depth, depth);
    }
    deadlock_print(deadlock, plan, cycle, sizeof(cycle));
    return REFUSAL(plan, node.rank, node.index, "deadlock %s, cycle of %d: %s", remedy,
                   deadlock->count, cycle);
}

static enum status check_deadlock(const struct plan *plan, const struct plan_index *index)
{
    struct graph graph = {.plan = plan, .index = index};
    struct deadlock deadlock;
    enum status status = STATUS_OK;

    TRY(deadlock_find(&graph, &deadlock));
    if (deadlock.count > 0) {
        status = refuse_deadlock(plan, index, &deadlock);
    }
    deadlock_release(&deadlock);
    return status;
}

/* What ends the step of each rank. */
static enum status check_ends(const struct plan *plan, const struct plan_index *index)
{
    for (int32_t rank = 0; rank < plan->shape.ranks; rank++) {
        TRY(endings_check_line(plan, index, rank));
    }
    TRY(endings_check_sync(plan, index, plan->rank_of[index->stages - 1]));
    return endings_check_sync(plan, index, plan->rank_of[0]);
}

enum status plan_validate_indexed(const struct plan *plan, const struct plan_index *index)
{
    TRY(for_each_stage(plan, index, precedence_check_complete));
    TRY(for_each_stage(plan, index, precedence_check));
    TRY(gathering_check(plan));
    TRY(check_lanes(plan, index));
    TRY(lifetime_check_counts(plan));
    TRY(check_deadlock(plan, index));
    TRY(lifetime_check(plan, index));
    return check_ends(plan, index);
}

enum status plan_validate_in_order(const struct plan *lowered)
{
    struct plan_index index;
    enum status status;

    TRY(plan_index_init(&index, lowered));
    status = plan_validate_indexed(lowered, &index);
    plan_index_release(&index);
    return status;
}

enum status plan_validate(const struct plan *lowered)
{
    if (!lowered->lowered) {
        return status_fail(STATUS_ERR_REFUSED, "validation: the plan is not lowered yet");
    }
    return proof_holds(lowered) ? STATUS_OK : plan_validate_in_order(lowered);
}
