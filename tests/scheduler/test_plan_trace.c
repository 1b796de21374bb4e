/* A plan as a trace: what readers of traces say of it is what the simulation says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "scheduler/plan_trace.h"
#include "scheduler/prove.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_path.h"
#include "scheduler/trace_summary.h"
#include "tests/scheduler/plan_fixture.h"

/* p = 4, m = 8, F = I = W = 1, early send: makespan 30, of which each rank is busy for 24. */
static void the_numbers_of_1f1b_are_those_of_its_formula(void **state)
{
    struct plan *lowered = fixture_lowered(SCHEDULE_1F1B, 4, 8, true);
    struct plan_costs costs;
    struct simulation simulation;
    struct trace_run run;
    struct trace_summary summary;
    struct trace_path path;

    (void)state;
    assert_int_equal(plan_costs_uniform(lowered, 1.0, 1.0, 1.0, 0.0, &costs), STATUS_OK);
    assert_int_equal(plan_simulate(lowered, &costs, &simulation), STATUS_OK);
    assert_int_equal(plan_trace_make(lowered, &simulation, &run), STATUS_OK);
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_int_equal(summary.span_ns, PLAN_TRACE_NS);
    assert_true(fabs(summary.bubble - 0.2) < 1e-6);
    assert_int_equal(trace_path_make(&run, &path), STATUS_OK);
    assert_int_equal(path.parts[0].begin_ns, 0);
    assert_int_equal(path.parts[path.count - 1].end_ns, PLAN_TRACE_NS);
    trace_path_release(&path);
    trace_summary_release(&summary);
    trace_run_release(&run);
    simulation_release(&simulation);
    plan_costs_release(&costs);
    plan_destroy(&lowered);
}

/* p = 2, two micro-batches in two slices: by hand, rank 1 does F0.0, then F0.1. */
static void slices_keep_their_number(void **state)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_SEQ1F1B, 2, 4, true);
    struct plan *lowered = NULL;
    struct plan_costs costs;
    struct simulation simulation;
    struct trace_run run;
    char names[3][48] = {""};
    size_t found = 0;

    (void)state;
    shape.sequence_slices = 2;
    assert_int_equal(plan_prove(&shape, NULL, &lowered), STATUS_OK);
    assert_int_equal(plan_costs_uniform(lowered, 1.0, 1.0, 1.0, 0.0, &costs), STATUS_OK);
    assert_int_equal(plan_simulate(lowered, &costs, &simulation), STATUS_OK);
    assert_int_equal(plan_trace_make(lowered, &simulation, &run), STATUS_OK);
    for (size_t i = 0; i < run.ranks[1].count && found < 3; i++) {
        if (trace_kind_is_compute(run.ranks[1].spans[i].kind)) {
            (void)trace_event_name(&run.ranks[1].spans[i], names[found++], sizeof(names[0]));
        }
    }
    assert_string_equal(names[0], "1F0.0");
    assert_string_equal(names[1], "1F0.1");
    assert_string_equal(names[2], "1I0.1"); /* the backward begins with the last slice */
    trace_run_release(&run);
    simulation_release(&simulation);
    plan_costs_release(&costs);
    plan_destroy(&lowered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_numbers_of_1f1b_are_those_of_its_formula),
        cmocka_unit_test(slices_keep_their_number),
    };

    return cmocka_run_group_tests_name("plan_trace", tests, NULL, NULL);
}
