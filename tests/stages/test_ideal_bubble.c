/* The ideal bubble of a step line: how often the plan is simulated for it, and what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "scheduler/prove.h"
#include "stages/ideal_bubble.h"

static void assert_near(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-12)) {
        fail_msg("got %.17g, expected %.17g", got, expected);
    }
}

static struct plan *plan_of(int32_t ranks, int32_t microbatches)
{
    struct plan_shape shape = {.schedule = SCHEDULE_1F1B,
                               .ranks = ranks,
                               .microbatches = microbatches,
                               .virtual_stages = 1,
                               .lane_depth = 2,
                               .early_send = true};
    struct plan *plan = NULL;

    assert_int_equal(plan_prove(&shape, NULL, &plan), STATUS_OK);
    return plan;
}

/* 1f1b with early send is idle for (p-1)(F+I) of m(F+I+W) + (p-1)(F+I). */
static double closed_form(const struct plan *plan, double F, double I, double W)
{
    double idle = (plan->shape.ranks - 1) * (F + I);

    return idle / (plan->shape.microbatches * (F + I + W) + idle);
}

/* The share of the next step, in which a W takes `W` times an F or I. */
static double next(struct ideal_bubble *bubble, const struct plan *plan, double W)
{
    struct plan_costs costs;
    double share = -1.0;

    assert_int_equal(plan_costs_uniform(plan, 1.0, 1.0, W, 0.0, &costs), STATUS_OK);
    assert_int_equal(ideal_bubble_next(bubble, plan, &costs, &share), STATUS_OK);
    plan_costs_release(&costs);
    return share;
}

static void a_small_plan_is_simulated_in_every_step(void **state)
{
    struct plan *plan = plan_of(4, 8);
    struct ideal_bubble bubble = {.asked = 0};

    (void)state;
    for (int step = 1; step <= 5; step++) {
        assert_near(next(&bubble, plan, step), closed_form(plan, 1.0, 1.0, step));
        assert_int_equal(bubble.simulations, step);
    }
    plan_destroy(&plan);
}

/* F, I, W of 64 · 1,024 cells, B whole on rank 0, SEND and RECV both ways between neighbours, a STEP a
 * rank: 453,696 actions, 3.5 times as many as one step may have. */
static void a_large_plan_is_simulated_once_in_so_many_steps(void **state)
{
    struct plan *plan = plan_of(64, 1024);
    struct ideal_bubble bubble = {.asked = 0};
    double first = closed_form(plan, 1.0, 1.0, 1.0);
    double later = closed_form(plan, 1.0, 1.0, 2.0);

    (void)state;
    assert_int_equal(IDEAL_BUBBLE_ACTIONS, 131072);
    assert_int_equal(ideal_bubble_steps(plan), 4);
    for (int step = 0; step < 10; step++) {
        double W = step == 0 ? 1.0 : 2.0;

        assert_near(next(&bubble, plan, W), step < 4 ? first : later);
        assert_int_equal(bubble.simulations, 1 + step / 4);
    }
    plan_destroy(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_plan_is_simulated_in_every_step),
        cmocka_unit_test(a_large_plan_is_simulated_once_in_so_many_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
