#include "tests/scheduler/fake_token.h"
#include "tests/stages/mutant_action.h"

static bool is_head(const struct moment *moment)
{
    const struct plan *plan = moment->world->plan;

    return moment->rank == plan->rank_of[plan_stages(plan) - 1];
}

void moment_begin_sync(const struct moment *moment)
{
    const struct plan *plan = moment->world->plan;

    if (!plan_syncs(plan) || (!is_head(moment) && moment->rank != plan->rank_of[0])) {
        (void)moment_bad(moment, OUTCOME_OUTSIDE, "a sync that nobody answers");
    }
}

void moment_end_sync(const struct moment *moment)
{
    struct mutant_world *world = moment->world;
    const struct plan *plan = world->plan;
    int32_t head = plan_stages(plan) - 1;

    if (!is_head(moment)) {
        moment->self->synced = fake_chain(moment->self->synced, world->sync_sum);
        return;
    }
    world->sync_sum = moment->self->chunks[plan->chunk_of[head]].head;
    world->syncs++;
    if (world->syncs > 1 || world->sync_sum != world->truth.sums[head].head) {
        (void)moment_bad(moment, OUTCOME_SUM, "the gradient that the head sends");
    }
}

void moment_end_reduce(const struct moment *moment)
{
    if (!plan_reduces(moment->world->plan)) {
        (void)moment_bad(moment, OUTCOME_OUTSIDE, "a reduction without replicas");
        return;
    }
    moment->self->reduces++;
    if (moment->self->reduces > 1 || !mutant_action_sums_right(moment->world, moment->rank)) {
        (void)moment_bad(moment, OUTCOME_SUM, "the sums that the replicas reduce");
    }
}

void moment_begin_step(const struct moment *moment)
{
    const struct mutant_world *world = moment->world;
    const struct plan *plan = world->plan;

    moment->self->steps++;
    if (!plan_trains(plan)) {
        (void)moment_bad(moment, OUTCOME_OUTSIDE, "a step that nobody answers");
    } else if (moment->self->steps > 1 || !mutant_action_sync_right(world, moment->rank) ||
               moment->self->reduces != (plan_reduces(plan) ? 1 : 0) ||
               !mutant_action_sums_right(world, moment->rank)) {
        (void)moment_bad(moment, OUTCOME_SUM, "what STEP reads");
    }
}
