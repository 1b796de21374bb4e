/* Busy, bubble and waits, against numbers worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace.h"
#include "scheduler/trace_summary.h"
#include "tests/scheduler/demo_run.h"

/* In double; cmocka's own comparison is in float. */
static void assert_near(double found, double expected, double allowed)
{
    if (!(fabs(found - expected) <= allowed)) {
        fail_msg("found %.17g, expected %.17g", found, expected);
    }
}

static void put(struct trace_rank *rank, enum trace_kind kind, int64_t begin_ms, int64_t end_ms,
                int32_t step, int32_t peer, int32_t evaluation)
{
    struct span span = {.kind = kind, .begin_ns = begin_ms * 1000000, .end_ns = end_ms * 1000000};

    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        span.args[arg] = -1;
    }
    span.args[TRACE_ARG_STEP] = step;
    span.args[TRACE_ARG_PEER] = peer;
    span.args[TRACE_ARG_EVALUATION] = evaluation;
    assert_int_equal(trace_rank_append(rank, &span), STATUS_OK);
}

/* Two ranks, two steps. Step 1 computes from 10 to 110, step 2 from 200 to 260. Busy: rank 0 has
 * 30 + 40 + 50 = 120, rank 1 has 60 + 20 + 10 = 90. */
static void make_run(struct trace_run *run, struct trace_rank ranks[2])
{
    memset(run, 0, sizeof(*run));
    memset(ranks, 0, 2 * sizeof(*ranks));
    run->ranks = ranks;
    run->count = 2;
    ranks[1].rank = ranks[1].pipeline_rank = 1;
    put(&ranks[0], TRACE_F, 10, 40, 1, -1, 0);
    put(&ranks[0], TRACE_WAIT, 40, 70, 1, 1, 0);
    put(&ranks[0], TRACE_I, 70, 110, 1, -1, 0);
    put(&ranks[0], TRACE_STEP, 110, 120, 1, -1, 0);
    put(&ranks[0], TRACE_W, 200, 250, 2, -1, 0);
    put(&ranks[1], TRACE_RECV, 0, 40, 1, 0, 0);
    put(&ranks[1], TRACE_WAIT, 5, 40, 1, 0, 0);
    put(&ranks[1], TRACE_B, 40, 100, 1, -1, 0);
    put(&ranks[1], TRACE_F, 215, 235, 2, -1, 0);
    put(&ranks[1], TRACE_WAIT, 235, 250, 2, -1, 0);
    put(&ranks[1], TRACE_W, 250, 260, 2, -1, 0);
    /* Evaluation counts nowhere. */
    put(&ranks[0], TRACE_F, 300, 900, 2, -1, 1);
    put(&ranks[1], TRACE_WAIT, 300, 900, 2, 0, 1);
    trace_run_arrange(run);
}

static void release_ranks(struct trace_rank ranks[2])
{
    free(ranks[0].spans);
    free(ranks[1].spans);
}

static void a_trace_made_by_hand_gives_the_numbers_of_the_hand(void **state)
{
    struct trace_run run;
    struct trace_rank ranks[2];
    struct trace_summary summary;

    (void)state;
    make_run(&run, ranks);
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_int_equal(summary.steps, 2);
    assert_int_equal(summary.stages, 2);
    assert_near(summary.span_ns, 160e6, 1.0); /* 100 + 60 */
    assert_near(summary.ranks[0].busy_ns, 120e6, 1.0);
    assert_near(summary.ranks[1].busy_ns, 90e6, 1.0);
    assert_near(summary.ranks[0].bubble, 0.25, 1e-12);   /* 1 - 120/160 */
    assert_near(summary.ranks[1].bubble, 0.4375, 1e-12); /* 1 - 90/160 */
    assert_near(summary.bubble, 0.34375, 1e-12);         /* 1 - 210/320 */
    assert_near(summary.ranks[0].kind_ns[TRACE_STEP], 10e6, 1.0);
    assert_near(summary.ranks[1].kind_ns[TRACE_B], 60e6, 1.0);
    assert_int_equal(summary.slowest, 0);
    trace_summary_release(&summary);
    trace_summary_release(&summary);
    release_ranks(ranks);
}

static void waits_are_kept_by_who_was_waited_for(void **state)
{
    struct trace_run run;
    struct trace_rank ranks[2];
    struct trace_summary summary;

    (void)state;
    make_run(&run, ranks);
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_near(summary.ranks[0].wait_ns[0], 0.0, 1e-9);
    assert_near(summary.ranks[0].wait_ns[1], 30e6, 1.0);
    assert_near(summary.ranks[1].wait_ns[0], 35e6, 1.0);
    assert_near(summary.ranks[1].wait_ns[2], 15e6, 1.0); /* nobody in particular */
    trace_summary_release(&summary);
    release_ranks(ranks);
}

/* Interleaved, p 2, v 2, m 4, F = I = W = 1 a chunk, no early send: the makespan is twice the
 * published 13.5, of which each rank works 24; a reduction of 3 ms stands behind it. */
static void chunks_are_summed_up_and_reductions_are_not_busy(void **state)
{
    const struct demo_config config = {.shape = {.schedule = SCHEDULE_INTERLEAVED_1F1B,
                                                 .ranks = 2,
                                                 .microbatches = 4,
                                                 .virtual_stages = 2,
                                                 .lane_depth = 2,
                                                 .reduce = true},
                                       .steps = 1,
                                       .forward_ms = 1.0,
                                       .input_ms = 1.0,
                                       .weight_ms = 1.0,
                                       .reduce_ms = 3.0};
    struct trace_run run;
    struct trace_summary summary;

    (void)state;
    demo_run_make(&config, "run", &run);
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_near(summary.span_ns, 27e6, 1.0);
    assert_near(summary.bubble, 1.0 - 24.0 / 27.0, 1e-9);
    for (size_t rank = 0; rank < 2; rank++) {
        assert_near(summary.ranks[rank].busy_ns, 24e6, 1.0);
        assert_near(summary.ranks[rank].kind_ns[TRACE_REDUCE], 3e6, 1.0);
    }
    trace_summary_release(&summary);
    trace_run_release(&run);
}

/* GPipe and 1F1B with equal stages and free messages: (p-1)/(m+p-1) of the span is bubble. */
static void the_bubble_of_a_simulated_plan_is_the_closed_form(void **state)
{
    (void)state;
    for (int32_t p = 1; p <= 4; p++) {
        for (int32_t m = p; m <= 9; m += 2) {
            struct demo_config config = {
                .shape = {.schedule = m % 2 == 0 ? SCHEDULE_GPIPE : SCHEDULE_1F1B,
                          .ranks = p,
                          .microbatches = m,
                          .virtual_stages = 1,
                          .lane_depth = 2},
                .steps = 2,
                .forward_ms = 2.0,
                .input_ms = 3.0,
                .weight_ms = 1.0,
                .update_ms = 1.0};
            struct trace_run run;
            struct trace_summary summary;

            demo_run_make(&config, "run", &run);
            assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
            assert_near(summary.bubble, (p - 1.0) / (m + p - 1.0), 1e-6);
            assert_int_equal(summary.steps, 2);
            trace_summary_release(&summary);
            trace_run_release(&run);
        }
    }
}

static void the_table_names_the_slowest_stage_and_the_waits(void **state)
{
    struct trace_run run;
    struct trace_rank ranks[2];
    struct trace_summary summary;
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);

    (void)state;
    assert_non_null(out);
    make_run(&run, ranks);
    ranks[1].dropped = 77;
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_int_equal(trace_summary_print(&summary, out), STATUS_OK);
    (void)fclose(out);
    assert_non_null(strstr(text, "bubble 34.4%"));
    assert_non_null(strstr(text, "slowest: stage 0 (rank 0), busy 60.00 ms a step"));
    assert_non_null(strstr(text, "rank 1 waits  stage 0: 17.50 ms  other: 7.50 ms"));
    assert_non_null(strstr(text, "77 spans are not in the trace"));
    free(text);
    trace_summary_release(&summary);
    release_ranks(ranks);
}

static void nothing_traced_has_no_bubble(void **state)
{
    struct trace_rank rank = {.complete = true};
    struct trace_run run = {.ranks = &rank, .count = 1};
    struct trace_summary summary;

    (void)state;
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_int_equal(summary.steps, 0);
    assert_near(summary.bubble, 0.0, 0.0);
    trace_summary_release(&summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_made_by_hand_gives_the_numbers_of_the_hand),
        cmocka_unit_test(waits_are_kept_by_who_was_waited_for),
        cmocka_unit_test(the_bubble_of_a_simulated_plan_is_the_closed_form),
        cmocka_unit_test(the_table_names_the_slowest_stage_and_the_waits),
        cmocka_unit_test(chunks_are_summed_up_and_reductions_are_not_busy),
        cmocka_unit_test(nothing_traced_has_no_bubble),
    };

    return cmocka_run_group_tests_name("trace_summary", tests, NULL, NULL);
}
