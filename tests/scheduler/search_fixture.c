#include "search_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/lower.h"
#include "scheduler/validate.h"

int32_t fixture_draw(struct fixture_draw *draw, int32_t below)
{
    draw->state = draw->state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((draw->state >> 33) % (uint64_t)below);
}

void fixture_costs_even(struct fixture_costs *costs, int32_t ranks, int32_t chunks, double F,
                        double I, double W, double message)
{
    int32_t stage;

    assert_true(ranks * chunks <= FIXTURE_STAGES);
    for (stage = 0; stage < ranks * chunks; stage++) {
        costs->F[stage] = F / chunks;
        costs->I[stage] = I / chunks;
        costs->W[stage] = W / chunks;
    }
    costs->costs =
        (struct plan_costs){.F = costs->F, .I = costs->I, .W = costs->W, .message = message};
}

void fixture_place_v(int32_t ranks, int32_t *rank_of)
{
    int32_t stage;

    for (stage = 0; stage < ranks; stage++) {
        rank_of[stage] = stage;
        rank_of[2 * ranks - 1 - stage] = stage;
    }
}

/* How many of each type have been put. */
static bool may_be_next(const struct search_space *space, const int32_t *put, int32_t type)
{
    const struct search_type *of = &space->type[type];

    if (put[type] == space->microbatches) {
        return false;
    }
    if (of->kind != SEARCH_F && put[type - 1] <= put[type]) {
        return false;
    }
    return of->producer == SEARCH_NONE || put[of->producer] > put[type];
}

void fixture_order_by_chance(struct search_order *order, struct fixture_draw *draw)
{
    const struct search_space *space = order->space;
    int32_t put[FIXTURE_STAGES * SEARCH_KINDS] = {0};
    int32_t count[FIXTURE_STAGES] = {0};
    int32_t left = space->ranks * space->length;

    while (left > 0) {
        int32_t type = fixture_draw(draw, space->stages * SEARCH_KINDS);
        int32_t rank = space->type[type].rank;

        if (may_be_next(space, put, type)) {
            search_order_line(order, rank)[count[rank]++] =
                (struct search_op){.type = type, .microbatch = put[type]++};
            left--;
        }
    }
}

double fixture_simulated(const struct search_order *order, const struct plan_costs *costs)
{
    struct plan *compute = NULL;
    struct plan *lowered = NULL;
    struct simulation simulation;
    double makespan = -1.0;
    int saved = fixture_mute();
    enum status status;

    assert_int_equal(search_order_plan(order, &compute), STATUS_OK);
    status = plan_lower(compute, &lowered);
    if (status == STATUS_OK) {
        status = plan_validate(lowered);
    }
    if (status == STATUS_OK) {
        status = plan_simulate(lowered, costs, &simulation);
    }
    if (status == STATUS_OK) {
        makespan = simulation.makespan;
        simulation_release(&simulation);
    }
    fixture_unmute(saved);
    assert_true(status == STATUS_OK || status == STATUS_ERR_REFUSED);
    plan_destroy(&lowered);
    plan_destroy(&compute);
    return makespan;
}
