#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/search_clock.h"
#include "search_fixture.h"

static const struct search_memory no_limit = {.limit = NULL};

static struct plan_shape shape_of(int32_t ranks, int32_t microbatches, int32_t chunks,
                                  int32_t depth)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, ranks, microbatches, true);

    shape.virtual_stages = chunks;
    shape.lane_depth = depth;
    return shape;
}

/* Uneven costs, so that each wait has its own length; quarters, so that some are equal. */
static void draw_costs(struct fixture_costs *costs, int32_t stages, struct fixture_draw *draw)
{
    int32_t stage;

    memset(costs, 0, sizeof(*costs));
    for (stage = 0; stage < stages; stage++) {
        costs->F[stage] = 0.1 * (1 + fixture_draw(draw, 40));
        costs->I[stage] = 0.1 * (1 + fixture_draw(draw, 40));
        costs->W[stage] = 0.1 * fixture_draw(draw, 40);
    }
    costs->costs = (struct plan_costs){.F = costs->F,
                                       .I = costs->I,
                                       .W = costs->W,
                                       .message = 0.25 * fixture_draw(draw, 4),
                                       .send = 0.05 * fixture_draw(draw, 3),
                                       .action = 0.01 * fixture_draw(draw, 3)};
}

static void expect_same(const struct search_order *order, struct search_clock *clock,
                        const struct plan_costs *costs, int32_t *valid)
{
    double simulated = fixture_simulated(order, costs);
    double found = search_clock_run(clock, order);

    if (simulated < 0.0 ? found != SEARCH_NEVER : found != simulated) {
        fail_msg("%d ranks, %d chunks, %d micro-batches, depth %d: found %.17g, simulated %.17g",
                 order->space->ranks, order->space->chunks, order->space->microbatches,
                 order->space->shape.lane_depth, found, simulated);
    }
    *valid += simulated >= 0.0 ? 1 : 0;
}

/* As lowered, proved and simulated: to the bit, and refused where that is refused. */
static void orders_by_chance_take_as_long_as_simulated(void **state)
{
    struct fixture_draw draw = {.state = 11};
    int32_t valid = 0;
    int32_t n;

    (void)state;
    for (n = 0; n < 6000; n++) {
        int32_t ranks = 1 + fixture_draw(&draw, 4);
        int32_t chunks = 1 + fixture_draw(&draw, 3);
        struct plan_shape shape =
            shape_of(ranks, 1 + fixture_draw(&draw, 6), chunks, 1 + fixture_draw(&draw, 3));
        int32_t rank_of[FIXTURE_STAGES];
        struct fixture_costs costs;
        struct search_space space;
        struct search_order order;
        struct search_clock clock;
        bool v = chunks == 2 && fixture_draw(&draw, 2) == 0;

        draw_costs(&costs, ranks * chunks, &draw);
        shape.gather = fixture_draw(&draw, 4) == 0;
        costs.costs.gather = shape.gather ? 0.125 * fixture_draw(&draw, 3) : 0.0;
        fixture_place_v(ranks, rank_of);
        assert_int_equal(
            search_space_init(&space, &shape, v ? rank_of : NULL, &costs.costs, &no_limit),
            STATUS_OK);
        assert_int_equal(search_order_init(&order, &space), STATUS_OK);
        assert_int_equal(search_clock_init(&clock, &space), STATUS_OK);
        fixture_order_by_chance(&order, &draw);
        expect_same(&order, &clock, &costs.costs, &valid);
        search_clock_release(&clock);
        search_order_release(&order);
        search_space_release(&space);
    }
    assert_in_range(valid, 2500, 5500);
}

static void check_generated(enum schedule schedule, int32_t ranks, int32_t microbatches,
                            int32_t chunks, struct fixture_draw *draw, int32_t *valid)
{
    struct plan_shape shape = shape_of(ranks, microbatches, chunks, 2);
    struct fixture_costs costs;
    struct search_space space;
    struct search_order order;
    struct search_clock clock;
    struct plan *compute = NULL;

    shape.schedule = schedule;
    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    draw_costs(&costs, ranks * chunks, draw);
    assert_int_equal(search_space_init(&space, &shape, compute->rank_of, &costs.costs, &no_limit),
                     STATUS_OK);
    assert_int_equal(search_order_init(&order, &space), STATUS_OK);
    assert_int_equal(search_clock_init(&clock, &space), STATUS_OK);
    assert_int_equal(search_order_take(&order, compute), STATUS_OK);
    expect_same(&order, &clock, &costs.costs, valid);
    search_clock_release(&clock);
    search_order_release(&order);
    search_space_release(&space);
    plan_destroy(&compute);
}

static void check_all_generated(int32_t ranks, int32_t microbatches, struct fixture_draw *draw,
                                int32_t *valid)
{
    int schedule;
    int32_t chunks;

    for (schedule = 0; schedule < SCHEDULES; schedule++) {
        for (chunks = 1; chunks <= 3; chunks++) {
            if (schedule != SCHEDULE_FILE && schedule != SCHEDULE_FORWARD_ONLY &&
                schedule_takes_chunks((enum schedule)schedule, chunks)) {
                check_generated((enum schedule)schedule, ranks, microbatches, chunks, draw, valid);
            }
        }
    }
}

static void generated_orders_take_as_long_as_simulated(void **state)
{
    struct fixture_draw draw = {.state = 12};
    int32_t valid = 0;
    int32_t ranks;
    int32_t microbatches;

    (void)state;
    for (ranks = 1; ranks <= 5; ranks++) {
        for (microbatches = 1; microbatches <= 2 * ranks + 2; microbatches++) {
            check_all_generated(ranks, microbatches, &draw, &valid);
        }
    }
    assert_in_range(valid, 500, 700);
}

/* What lowering counts for `rank`, each buffer with its size. */
static int64_t lowered_need(const struct plan *lowered, const struct search_memory *memory,
                            int32_t rank)
{
    int64_t need = memory->fixed[rank];
    int32_t stage;

    for (stage = 0; stage < plan_stages(lowered); stage++) {
        const struct plan_buffers *buffers =
            plan_buffers_of(lowered, rank, lowered->chunk_of[stage]);

        if (lowered->rank_of[stage] == rank) {
            need += buffers->slots * memory->stash[stage] +
                    buffers->gradients * memory->gradient[stage] +
                    (buffers->landing_f + buffers->landing_b) * memory->landing[stage];
        }
    }
    return need;
}

static void check_needs(struct search_clock *clock, const struct search_order *order,
                        const struct search_memory *memory, int64_t *limit)
{
    struct plan *compute = NULL;
    struct plan *lowered = NULL;
    int32_t rank;

    assert_int_equal(search_order_plan(order, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    for (rank = 0; rank < order->space->ranks; rank++) {
        int64_t expected = lowered_need(lowered, memory, rank);

        (void)search_clock_run(clock, order);
        assert_int_equal(search_clock_need(clock, rank), expected);
        /* One unit less, and it is none. */
        limit[rank] = expected - 1;
        assert_true(search_clock_run(clock, order) == SEARCH_NEVER);
        limit[rank] = expected;
        assert_true(search_clock_run(clock, order) < SEARCH_NEVER);
    }
    plan_destroy(&lowered);
    plan_destroy(&compute);
}

/* Needs are those of the buffers that lowering counts. */
static void memory_is_what_lowering_counts(void **state)
{
    struct fixture_draw draw = {.state = 13};
    int64_t stash[FIXTURE_STAGES];
    int64_t gradient[FIXTURE_STAGES];
    int64_t landing[FIXTURE_STAGES];
    int64_t limit[FIXTURE_STAGES];
    int64_t fixed[FIXTURE_STAGES];
    struct search_memory memory = {
        .limit = limit, .fixed = fixed, .stash = stash, .gradient = gradient, .landing = landing};
    int32_t n;
    int32_t i;

    (void)state;
    for (n = 0; n < 300; n++) {
        int32_t ranks = 1 + fixture_draw(&draw, 4);
        struct plan_shape shape = shape_of(ranks, 1 + fixture_draw(&draw, 6), 2, 2);
        int32_t rank_of[FIXTURE_STAGES];
        struct fixture_costs costs;
        struct search_space space;
        struct search_order order;
        struct search_clock clock;

        fixture_costs_even(&costs, ranks, 2, 1.0, 1.0, 1.0, 0.0);
        fixture_place_v(ranks, rank_of);
        for (i = 0; i < 2 * ranks; i++) {
            stash[i] = 1000 + fixture_draw(&draw, 100);
            gradient[i] = 100 + fixture_draw(&draw, 10);
            landing[i] = 1 + fixture_draw(&draw, 9);
            limit[i] = INT64_MAX;
            fixed[i] = fixture_draw(&draw, 5000);
        }
        assert_int_equal(search_space_init(&space, &shape, rank_of, &costs.costs, &memory),
                         STATUS_OK);
        assert_int_equal(search_order_init(&order, &space), STATUS_OK);
        assert_int_equal(search_clock_init(&clock, &space), STATUS_OK);
        fixture_order_by_chance(&order, &draw);
        check_needs(&clock, &order, &memory, limit);
        search_clock_release(&clock);
        search_order_release(&order);
        search_space_release(&space);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_by_chance_take_as_long_as_simulated),
        cmocka_unit_test(generated_orders_take_as_long_as_simulated),
        cmocka_unit_test(memory_is_what_lowering_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
