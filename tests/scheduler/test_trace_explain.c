/* What is said about a run whose causes were put into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/prove.h"
#include "scheduler/trace.h"
#include "scheduler/trace_explain.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/hand_run.h"
#include "tests/scheduler/plan_fixture.h"

/* p = 4, m = 8; F, I, W = 2, 3, 1 ms. */
static const struct demo_config even = {.shape = {.schedule = SCHEDULE_1F1B,
                                                  .ranks = 4,
                                                  .microbatches = 8,
                                                  .virtual_stages = 1,
                                                  .lane_depth = 2,
                                                  .early_send = true},
                                        .first_step = 1,
                                        .steps = 3,
                                        .forward_ms = 2.0,
                                        .input_ms = 3.0,
                                        .weight_ms = 1.0,
                                        .update_ms = 0.5};

static void assert_ms(double ns, double expected)
{
    if (!(fabs(ns / 1e6 - expected) < 1e-4)) {
        fail_msg("%.6f ms, expected %.6f", ns / 1e6, expected);
    }
}

static void explain(const struct demo_config *config, struct trace_explanation *out)
{
    struct trace_run run;
    struct plan *lowered = NULL;

    assert_int_equal(plan_prove(&config->shape, NULL, &lowered), STATUS_OK);
    demo_run_make(config, "demo", &run);
    assert_int_equal(trace_explain_make(&run, lowered, out), STATUS_OK);
    trace_run_release(&run);
    plan_destroy(&lowered);
}

static char *tell(const struct trace_explanation *explanation)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    assert_non_null(memory);
    assert_int_equal(trace_explain_print(explanation, memory), STATUS_OK);
    assert_int_equal(fclose(memory), 0);
    return text;
}

/* 8 · 6 ms of work; the schedule adds (p-1)(F+I) = 3 · 5 ms, nothing else does. Two times 0.5 ms of
 * update lie between the steps. */
static void an_even_run_loses_what_the_formula_says(void **state)
{
    struct trace_explanation of;
    char *text = NULL;

    (void)state;
    explain(&even, &of);
    assert_int_equal(of.steps, 3);
    assert_ms(of.ideal_ns, 48.0);
    assert_ms(of.even_ns, 63.0);
    assert_ms(of.uneven_ns, 63.0);
    assert_ms(of.message_ns, 63.0);
    assert_ms(of.measured_ns, 63.0);
    assert_ms(of.between_ns, 1.0);
    assert_true(fabs(of.measured_bubble - 15.0 / 63.0) < 1e-9);
    assert_true(fabs(of.jitter - 1.0) < 1e-6);
    text = tell(&of);
    assert_non_null(strstr(text, "+15.00 ms (+23.8%): (p-1)(F+I) = 3 x 5.00 ms = 15.00 ms"));
    assert_non_null(strstr(text, "Most of it is the schedule's"));
    free(text);
}

/* What a schedule adds and its formula, p = 4, m = 8, of a rank's F, I, W = 2, 3, 1 ms a micro-batch, or 2 ms each. */
static void every_schedule_has_its_formula_or_says_that_it_has_none(void **state)
{
    static const struct {
        enum schedule schedule;
        int32_t chunks;
        int32_t slices;
        bool late;
        bool same;
        const char *says;
    } cases[] = {
        {SCHEDULE_GPIPE, 1, 1, false, false,
         "+15.00 ms (+23.8%): (p-1)(F+I) = 3 x 5.00 ms = 15.00 ms"},
        {SCHEDULE_1F1B, 1, 1, true, false,
         "+18.00 ms (+27.3%): (p-1)(F+I+W) = 3 x 6.00 ms = 18.00 ms"},
        {SCHEDULE_BFS, 2, 1, false, false,
         "+7.50 ms (+13.5%): (p-1)(F+I)/v = 3 x 5.00 ms / 2 = 7.50 ms"},
        {SCHEDULE_ZB_H1, 1, 1, false, false,
         "+12.00 ms (+20.0%): (p-1)max(F, I+max(0, F-W)) = 3 x 4.00 ms = 12.00 ms"},
        {SCHEDULE_ZB_H2, 1, 1, false, false,
         "+9.00 ms (+15.8%): (p-1)max(F, I-F, F+I-2W) = 3 x 3.00 ms = 9.00 ms"},
        {SCHEDULE_IZB, 2, 1, false, false,
         "+6.00 ms (+11.1%): (p-1)max(F, I+max(0, F-W))/v = 3 x 4.00 ms / 2 = 6.00 ms"},
        {SCHEDULE_ZB_V, 2, 1, false, true,
         "+3.00 ms (+5.9%): (p-1)F/2 = 3 x 2.00 ms / 2 = 3.00 ms"},
        {SCHEDULE_ZB_V, 2, 1, false, false,
         ": simulated, because (p-1)F/2 holds only where F = I = W"},
        {SCHEDULE_V_HALF, 2, 1, false, true, ": simulated, because v_half has no closed form"},
        {SCHEDULE_V_MIN, 2, 1, false, true, ": simulated, because v_min has no closed form"},
        {SCHEDULE_SEQ1F1B, 1, 2, false, false,
         "+7.50 ms (+13.5%): (p-1)(F+I)/k = 3 x 5.00 ms / 2 = 7.50 ms"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct demo_config config = even;
        struct trace_explanation of;
        double parts = cases[i].chunks * cases[i].slices;
        char *text = NULL;

        config.shape.schedule = cases[i].schedule;
        config.shape.virtual_stages = cases[i].chunks;
        config.shape.sequence_slices = cases[i].slices;
        config.shape.microbatches = 8 * cases[i].slices;
        config.shape.early_send = !cases[i].late;
        config.forward_ms = 2.0 / parts;
        config.input_ms = (cases[i].same ? 2.0 : 3.0) / parts;
        config.weight_ms = (cases[i].same ? 2.0 : 1.0) / parts;
        explain(&config, &of);
        assert_ms(of.ideal_ns, 48.0);
        text = tell(&of);
        if (strstr(text, cases[i].says) == NULL) {
            fail_msg("expected \"%s\" in:\n%s", cases[i].says, text);
        }
        assert_true((strstr(text, "8 micro-batches in 2 slices") != NULL) ==
                    (cases[i].slices == 2));
        free(text);
    }
}

/* Stage s costs 1 + s as much: 1, 2, 3, 4 times 6 ms, on the mean 15; the last is 60 % above that. It has
 * 8 · 24 ms to do; before it come F of the stages 0 to 2 (2 + 4 + 6), and behind its last I their I's
 * (9 + 6 + 3) and the W of stage 0 (1), while its own last W (4) runs beside them. */
static void the_slowest_stage_is_named(void **state)
{
    struct demo_config config = even;
    struct trace_explanation of;
    char *text = NULL;

    (void)state;
    config.slope = 1.0;
    explain(&config, &of);
    assert_int_equal(of.slowest, 3);
    assert_true(fabs(of.slowest_excess - 0.6) < 1e-9);
    assert_ms(of.ideal_ns, 8 * 15.0);
    assert_ms(of.even_ns, 8 * 15.0 + 3 * 12.5);
    assert_ms(of.measured_ns, 12.0 + 8 * 24.0 - 4.0 + 18.0 + 1.0);
    assert_ms(of.uneven_ns, of.measured_ns / 1e6);
    text = tell(&of);
    assert_non_null(strstr(text, "stage 3 computes 60.0% more"));
    assert_non_null(strstr(text, "move layers away from stage 3"));
    free(text);
}

/* With early send, W gives slack: latency adds 2 (p-1) c. */
static void latency_is_told_apart(void **state)
{
    struct demo_config config = even;
    struct trace_explanation of;

    (void)state;
    config.message_ms = 0.25;
    explain(&config, &of);
    assert_ms(of.uneven_ns, 63.0);
    assert_ms(of.latency_ns, 0.25);
    assert_ms(of.message_ns, 63.0 + 2 * 3 * 0.25);
    assert_ms(of.measured_ns, of.message_ns / 1e6);
}

/* A single stage: every second F takes twice as long, its median 4 and its p90 8 ms, the mean 6. */
static void jitter_is_named(void **state)
{
    struct hand_span spans[24];
    struct plan *lowered = fixture_lowered(SCHEDULE_1F1B, 1, 12, true);
    struct trace_run run;
    struct trace_explanation of;
    int64_t at = 0;
    char *text = NULL;

    (void)state;
    for (int32_t mb = 0; mb < 12; mb++) {
        int64_t took = mb % 4 == 3 ? 8000 : 4000;
        struct hand_span *pair = spans + (ptrdiff_t)2 * mb;

        pair[0] = (struct hand_span)HAND_F(0, 0, mb, at, at + took);
        pair[1] = (struct hand_span)HAND_B(0, 0, mb, at + took, at + took + 2000);
        at += took + 2000;
    }
    hand_run_make(spans, 24, 1, &run);
    assert_int_equal(trace_explain_make(&run, lowered, &of), STATUS_OK);
    assert_int_equal(of.jitter_kind, TRACE_F);
    assert_true(fabs(of.jitter - 2.0) < 1e-9);
    assert_ms(of.F, 5.0);
    assert_ms(of.measured_ns, 12 * 7.0);
    text = tell(&of);
    assert_non_null(strstr(text, "F of virtual stage 0: one in ten takes 2.00 times"));
    assert_non_null(strstr(text, "There is little left to gain."));
    free(text);
    trace_run_release(&run);
    plan_destroy(&lowered);
}

static void another_plan_than_the_runs_is_refused(void **state)
{
    struct trace_run run;
    struct trace_explanation of;
    struct plan *fewer = fixture_lowered(SCHEDULE_1F1B, 2, 8, true);
    struct plan *more = fixture_lowered(SCHEDULE_1F1B, 5, 8, true);

    (void)state;
    demo_run_make(&even, "demo", &run);
    assert_int_equal(trace_explain_make(&run, fewer, &of), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "virtual stage 2"));
    assert_int_equal(trace_explain_make(&run, more, &of), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "virtual stage 4"));
    trace_run_release(&run);
    plan_destroy(&fewer);
    plan_destroy(&more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_even_run_loses_what_the_formula_says),
        cmocka_unit_test(every_schedule_has_its_formula_or_says_that_it_has_none),
        cmocka_unit_test(the_slowest_stage_is_named),
        cmocka_unit_test(latency_is_told_apart),
        cmocka_unit_test(jitter_is_named),
        cmocka_unit_test(another_plan_than_the_runs_is_refused),
    };

    return cmocka_run_group_tests_name("trace_explain", tests, NULL, NULL);
}
