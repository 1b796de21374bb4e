/* v_half and v_min: the repeated pattern against an independent simulator, and what is left of its
 * bubble when it has been pulled together, against published numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate_order.h"
#include "scheduler/lower.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"

#define MOST_RANKS 16

static const enum schedule schedules[2] = {SCHEDULE_V_HALF, SCHEDULE_V_MIN};

static struct plan *lowered_pattern(enum schedule schedule, int32_t p, int32_t m, bool pulled)
{
    struct plan_shape shape = fixture_shape(schedule, p, m, true);
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    shape.virtual_stages = 2;
    assert_int_equal(plan_create(&shape, &compute), STATUS_OK);
    assert_int_equal(order_pattern(compute, pulled), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    assert_int_equal(plan_validate(lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

static double makespan(const struct plan *plan, double F, double I, double W, double c)
{
    struct plan_costs costs;
    struct simulation simulation;
    double found;

    assert_int_equal(plan_costs_uniform(plan, F, I, W, c, &costs), STATUS_OK);
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    found = simulation.makespan;
    simulation_release(&simulation);
    plan_costs_release(&costs);
    return found;
}

/* Slots are halves of a unit, so that these sums are exact. */
static double unit_bubble(const struct plan *plan)
{
    return makespan(plan, 1.0, 1.0, 1.0, 0.0) - 3.0 * plan->shape.microbatches;
}

static void repeated_patterns_take_the_times_of_the_table(void **state)
{
    static const struct {
        double T[3]; /* costs 1,1,1; 10,14,7; 10,14,7 and latency 2 */
        double peak[4], wall[4];
    } rows[2] = {{{30, 331.5, 385}, {3, 3, 3, 3}, {3, 3, 3, 3}},
                 {{29.5, 393.5, 473.5}, {2, 2, 1.5, 2}, {2, 2, 2, 2}}};
    double peaks[4];
    int i;
    int rank;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct plan *plan = lowered_pattern(schedules[i], 4, 8, false);

        assert_true(makespan(plan, 1.0, 1.0, 1.0, 0.0) == rows[i].T[0]);
        assert_true(makespan(plan, 10.0, 14.0, 7.0, 0.0) == rows[i].T[1]);
        assert_true(makespan(plan, 10.0, 14.0, 7.0, 2.0) == rows[i].T[2]);
        for (rank = 0; rank < 4; rank++) {
            assert_int_equal(plan_peaks(plan, false, peaks), STATUS_OK);
            assert_true(peaks[rank] == rows[i].peak[rank]);
            assert_int_equal(plan_peaks(plan, true, peaks), STATUS_OK);
            assert_true(peaks[rank] == rows[i].wall[rank]);
        }
        plan_destroy(&plan);
    }
}

/* F = I = W = 1, m >= 2p; where ours is shorter than what was published, both are there. */
static void pulled_patterns_have_the_published_bubbles(void **state)
{
    static const struct {
        int32_t p;
        double bubble[2];
        double published[2];
    } rows[] = {{2, {0.5, 0.5}, {0.5, 1.5}},
                {3, {2.5, 2.5}, {2.5, 2.5}},
                {4, {2.5, 5.5}, {2.5, 5.5}},
                {6, {5.5, 8.5}, {5.5, 8.5}},
                {8, {8.5, 12.5}, {8.5, 13.5}}};
    size_t row;
    int32_t m;
    int i;

    (void)state;
    for (row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        for (i = 0; i < 2; i++) {
            for (m = 2 * rows[row].p; m <= 4 * rows[row].p; m++) {
                struct plan *plan = lowered_pattern(schedules[i], rows[row].p, m, true);

                assert_true(unit_bubble(plan) == rows[row].bubble[i]);
                assert_true(unit_bubble(plan) <= rows[row].published[i]);
                plan_destroy(&plan);
            }
        }
    }
}

/* floor((p+2)/2) and floor((p+4)/3) micro-batches; m where there are fewer. */
static void check_peaks(enum schedule schedule, int32_t p, int32_t m)
{
    struct plan *plan = lowered_pattern(schedule, p, m, true);
    double peaks[MOST_RANKS];
    int32_t most = schedule == SCHEDULE_V_HALF ? (p + 2) / 2 : (p + 4) / 3;
    double largest = 0.0;
    int32_t rank;

    assert_int_equal(plan_peaks(plan, true, peaks), STATUS_OK);
    for (rank = 0; rank < p; rank++) {
        largest = peaks[rank] > largest ? peaks[rank] : largest;
    }
    assert_true(largest <= (most < m ? most : m));
    if (m >= 2 * p) {
        assert_true(largest == most);
    }
    plan_destroy(&plan);
}

static void check_gain(enum schedule schedule, int32_t p, int32_t m)
{
    struct plan *repeated = lowered_pattern(schedule, p, m, false);
    struct plan *pulled = lowered_pattern(schedule, p, m, true);

    assert_true(unit_bubble(pulled) <= unit_bubble(repeated));
    plan_destroy(&repeated);
    plan_destroy(&pulled);
}

static void pulling_makes_no_plan_longer_and_lets_no_peak_grow(void **state)
{
    int32_t p;
    int32_t m;
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        for (p = 1; p <= MOST_RANKS; p++) {
            for (m = 1; m <= 2 * p + 2; m++) {
                check_peaks(schedules[i], p, m);
                check_gain(schedules[i], p, m);
            }
        }
    }
}

static void a_pattern_of_too_many_slots_is_refused(void **state)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_V_HALF, 4096, 1, true);
    struct plan *plan = NULL;
    int saved = fixture_mute();

    (void)state;
    shape.virtual_stages = 2;
    assert_int_equal(plan_create(&shape, &plan), STATUS_OK);
    assert_int_equal(order_pattern(plan, true), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
    plan_destroy(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_patterns_take_the_times_of_the_table),
        cmocka_unit_test(pulled_patterns_have_the_published_bubbles),
        cmocka_unit_test(pulling_makes_no_plan_longer_and_lets_no_peak_grow),
        cmocka_unit_test(a_pattern_of_too_many_slots_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
