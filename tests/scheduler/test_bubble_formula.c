/* Closed forms of bubbles: numbers by hand, and the simulation of every schedule wherever one is said to hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan_fixture.h"
#include "scheduler/bubble_formula.h"
#include "scheduler/prove.h"
#include "scheduler/simulate.h"

#define MOST_RANKS 5

struct hand_case {
    enum schedule schedule;
    int32_t ranks;
    int32_t microbatches; /* pieces, where there are slices */
    int32_t chunks;
    int32_t slices;
    bool early;
    double costs[3];
    double bubble;
    const char *said;
};

/* p 4, m 8 and F, I, W = 2, 3, 1 ms unless it is said: a hop of 1f1b takes 5, of late send 6; of zb_h1 max(2, 3 + 1);
 * of zb_h2 max(2, 1, 2 + 3 - 2). */
/* clang-format off */
static const struct hand_case hand_cases[] = {
    {SCHEDULE_GPIPE, 4, 8, 1, 1, true, {2, 3, 1}, 15.0, "(p-1)(F+I) = 3 x 5.00 ms = 15.00 ms"},
    {SCHEDULE_1F1B, 4, 2, 1, 1, true, {2, 3, 1}, 15.0, "(p-1)(F+I) = 3 x 5.00 ms = 15.00 ms"},
    {SCHEDULE_1F1B, 4, 8, 1, 1, false, {2, 3, 1}, 18.0, "(p-1)(F+I+W) = 3 x 6.00 ms = 18.00 ms"},
    {SCHEDULE_INTERLEAVED_1F1B, 4, 8, 2, 1, true, {2, 3, 1}, 7.5, "(p-1)(F+I)/v = 3 x 5.00 ms / 2 = 7.50 ms"},
    {SCHEDULE_INTERLEAVED_1F1B, 4, 8, 2, 1, true, {2, 3, 4}, 0.0, "simulated, because (p-1)(F+I)/v holds only where W <= F"},
    {SCHEDULE_BFS, 4, 8, 2, 1, false, {2, 3, 1}, 9.0, "(p-1)(F+I+W)/v = 3 x 6.00 ms / 2 = 9.00 ms"},
    {SCHEDULE_BFS, 4, 3, 2, 1, true, {2, 3, 1}, 0.0, "simulated, because (p-1)(F+I)/v holds only where m >= p"},
    {SCHEDULE_ZB_H1, 4, 8, 1, 1, true, {2, 3, 1}, 12.0, "(p-1)max(F, I+max(0, F-W)) = 3 x 4.00 ms = 12.00 ms"},
    {SCHEDULE_IZB, 4, 8, 2, 1, true, {2, 3, 1}, 6.0, "(p-1)max(F, I+max(0, F-W))/v = 3 x 4.00 ms / 2 = 6.00 ms"},
    {SCHEDULE_ZB_H2, 4, 8, 1, 1, true, {2, 3, 1}, 9.0, "(p-1)max(F, I-F, F+I-2W) = 3 x 3.00 ms = 9.00 ms"},
    {SCHEDULE_ZB_H2, 4, 6, 1, 1, true, {2, 3, 1}, 0.0, "simulated, because (p-1)max(F, I-F, F+I-2W) holds only where m >= 2p-1"},
    {SCHEDULE_ZB_V, 4, 8, 2, 1, true, {2, 2, 2}, 3.0, "(p-1)F/2 = 3 x 2.00 ms / 2 = 3.00 ms"},
    {SCHEDULE_ZB_V, 4, 8, 2, 1, true, {2, 3, 1}, 0.0, "simulated, because (p-1)F/2 holds only where F = I = W"},
    {SCHEDULE_SEQ1F1B, 4, 16, 1, 2, true, {2, 3, 1}, 7.5, "(p-1)(F+I)/k = 3 x 5.00 ms / 2 = 7.50 ms"},
    {SCHEDULE_SEQ1F1B, 4, 24, 1, 3, false, {2, 3, 1}, 6.0, "(p-1)(F+I+W)/k = 3 x 6.00 ms / 3 = 6.00 ms"},
    {SCHEDULE_FORWARD_ONLY, 4, 8, 2, 1, true, {2, 3, 1}, 3.0, "(p-1)F/v = 3 x 2.00 ms / 2 = 3.00 ms"},
    {SCHEDULE_V_HALF, 4, 8, 2, 1, true, {2, 2, 2}, 0.0, "simulated, because v_half has no closed form"},
    {SCHEDULE_FILE, 4, 8, 2, 1, true, {2, 2, 2}, 0.0, "simulated, because orders from a file have no closed form"},
};
/* clang-format on */

static void expect_close(const char *what, double found, double expected)
{
    if (!(found - expected < 1e-9 * (1.0 + expected) &&
          expected - found < 1e-9 * (1.0 + expected))) {
        fail_msg("%s: found %.12f, expected %.12f", what, found, expected);
    }
}

static struct plan_shape shape_of(enum schedule schedule, int32_t p, int32_t m, int32_t v,
                                  int32_t k, bool early)
{
    struct plan_shape shape = fixture_shape(schedule, p, m, early);

    shape.virtual_stages = v;
    shape.sequence_slices = k;
    return shape;
}

static void numbers_are_those_by_hand_and_the_line_says_how(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(hand_cases) / sizeof(hand_cases[0]); i++) {
        const struct hand_case *one = &hand_cases[i];
        struct plan_shape shape = shape_of(one->schedule, one->ranks, one->microbatches,
                                           one->chunks, one->slices, one->early);
        struct bubble_formula formula;
        char *text = NULL;
        size_t bytes = 0;
        FILE *memory = open_memstream(&text, &bytes);

        assert_non_null(memory);
        bubble_formula_find(&shape, one->costs[0] * 1e6, one->costs[1] * 1e6, one->costs[2] * 1e6,
                            &formula);
        bubble_formula_print(&formula, one->schedule, memory);
        assert_int_equal(fclose(memory), 0);
        assert_string_equal(text, one->said);
        expect_close(one->said, formula.bubble / 1e6, one->bubble);
        free(text);
    }
}

static const double costs_tried[][3] = {{1, 1, 1}, {10, 14, 7}, {3, 2, 5},
                                        {2, 7, 4}, {9, 11, 8},  {4, 1, 2}};

#define COSTS_TRIED (sizeof(costs_tried) / sizeof(costs_tried[0]))

/* How many of the costs the formula holds for, each compared with what simulating the plan gives. */
static int compare_with_simulation(const struct plan_shape *shape)
{
    struct plan *plan = NULL;
    int held = 0;

    assert_int_equal(plan_prove(shape, NULL, &plan), STATUS_OK);
    for (size_t i = 0; i < COSTS_TRIED; i++) {
        const double *c = costs_tried[i];
        struct bubble_formula formula;
        struct plan_costs costs;
        struct simulation simulation;
        char what[128];

        bubble_formula_find(&plan->shape, c[0], c[1], c[2], &formula);
        if (formula.text == NULL || formula.limit != NULL) {
            continue;
        }
        assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], 0.0, &costs), STATUS_OK);
        assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
        (void)snprintf(what, sizeof(what), "%s p %d m %d v %d k %d early %d, %g %g %g",
                       schedule_text(shape->schedule), (int)shape->ranks, (int)shape->microbatches,
                       (int)shape->virtual_stages, (int)shape->sequence_slices, shape->early_send,
                       c[0], c[1], c[2]);
        expect_close(what, formula.bubble, simulation.bubble);
        simulation_release(&simulation);
        plan_costs_release(&costs);
        held++;
    }
    plan_destroy(&plan);
    return held;
}

/* Every p, and m up to 3p + 1; the number that held, so that no schedule is skipped unseen. */
static int try_all(enum schedule schedule, int32_t v, int32_t k, bool early)
{
    int held = 0;

    for (int32_t p = 1; p <= MOST_RANKS; p++) {
        for (int32_t m = 1; m <= 3 * p + 1; m++) {
            struct plan_shape shape = shape_of(schedule, p, m * k, v, k, early);

            held += compare_with_simulation(&shape);
        }
    }
    return held;
}

/* Shapes of try_all(): m from 1, from p or from 2p-1, to 3p + 1, of p from 1 to 5. */
#define ALL_SHAPES  (4 + 7 + 10 + 13 + 16)
#define FROM_P      (4 + 6 + 8 + 10 + 12)
#define FROM_TWICE  (4 + 5 + 6 + 7 + 8)
#define ONE_RANK    4 /* of one rank, where all holds */
#define COSTS       ((int)COSTS_TRIED)
#define W_AT_MOST_F 4 /* of the costs */

static void where_it_holds_the_simulation_agrees(void **state)
{
    (void)state;
    for (int early = 0; early < 2; early++) {
        assert_int_equal(try_all(SCHEDULE_GPIPE, 1, 1, early == 1), ALL_SHAPES * COSTS);
        assert_int_equal(try_all(SCHEDULE_1F1B, 1, 1, early == 1), ALL_SHAPES * COSTS);
        assert_int_equal(try_all(SCHEDULE_SEQ1F1B, 1, 3, early == 1), ALL_SHAPES * COSTS);
        assert_int_equal(try_all(SCHEDULE_BFS, 2, 1, early == 1), FROM_P * COSTS);
    }
    assert_int_equal(try_all(SCHEDULE_INTERLEAVED_1F1B, 2, 1, false), FROM_P * COSTS);
    assert_int_equal(try_all(SCHEDULE_INTERLEAVED_1F1B, 3, 1, true),
                     ONE_RANK * COSTS + (FROM_P - ONE_RANK) * W_AT_MOST_F);
    assert_int_equal(try_all(SCHEDULE_ZB_H1, 1, 1, true), FROM_P * COSTS);
    assert_int_equal(try_all(SCHEDULE_IZB, 3, 1, true), FROM_P * COSTS);
    assert_int_equal(try_all(SCHEDULE_ZB_H2, 1, 1, true), FROM_TWICE * COSTS);
    assert_int_equal(try_all(SCHEDULE_ZB_V, 2, 1, true),
                     ONE_RANK * COSTS + (FROM_TWICE - ONE_RANK));
    assert_int_equal(try_all(SCHEDULE_V_MIN, 2, 1, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_by_hand_and_the_line_says_how),
        cmocka_unit_test(where_it_holds_the_simulation_agrees),
    };

    return cmocka_run_group_tests_name("bubble_formula", tests, NULL, NULL);
}
