/* The bubble by cause, of runs whose gaps were named by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "scheduler/trace_bubble.h"
#include "scheduler/trace_summary.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/hand_run.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Microseconds of each cause, in the order of TRACE_BUBBLE_TABLE. */
static void assert_causes(const struct trace_bubble_rank *rank, double busy,
                          const double expected[TRACE_BUBBLE_CAUSES])
{
    if (rank->busy_ns != busy * 1e3) {
        fail_msg("rank %d is busy for %g ns", (int)rank->rank, rank->busy_ns);
    }
    for (int cause = 0; cause < TRACE_BUBBLE_CAUSES; cause++) {
        if (rank->cause_ns[cause] != expected[cause] * 1e3) {
            fail_msg("rank %d, %s: %g ns, expected %g us", (int)rank->rank,
                     trace_bubble_text((enum trace_bubble_cause)cause), rank->cause_ns[cause],
                     expected[cause]);
        }
    }
}

/* The pipeline runs from 0 to 54. Rank 0: a copy of 1, a message for 23. Rank 1: 14 of warm-up, a
 * gap of 1, a copy of 2, an optimizer of 1 after its last action at 40, and STEP until 60. */
static void each_moment_has_one_cause(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 10),
        HAND_SEND(0, 0, 0, LANE_F, 1, 10, 11),
        HAND_WAIT(0, 0, 0, LANE_B, 1, 11, 34),
        HAND_RECV(0, 0, 0, LANE_B, 1, 11, 34),
        HAND_B(0, 0, 0, 34, 54),
        HAND_OTHER(0, OPTIMIZER, 54, 55),
        HAND_OTHER(0, STEP, 55, 60),
        HAND_WAIT(1, 1, 0, LANE_F, 0, 0, 14),
        HAND_RECV(1, 1, 0, LANE_F, 0, 0, 14),
        HAND_F(1, 1, 0, 14, 20),
        HAND_I(1, 1, 0, 21, 30),
        HAND_SEND(1, 1, 0, LANE_B, 0, 30, 32),
        HAND_W(1, 1, 0, 32, 40),
        HAND_OTHER(1, OPTIMIZER, 40, 41),
        HAND_OTHER(1, STEP, 41, 60),
    };
    static const double first[] = {0, 23, 0, 1, 0, 0, 0, 0};
    static const double second[] = {14, 0, 0, 2, 0, 1, 13, 1};
    struct trace_run run;
    struct trace_bubble bubble;

    (void)state;
    hand_run_make(spans, COUNT(spans), 2, &run);
    assert_int_equal(trace_bubble_make(&run, &bubble), STATUS_OK);
    assert_int_equal(bubble.steps, 1);
    assert_true(bubble.span_ns == 54e3);
    assert_causes(&bubble.ranks[0], 30, first);
    assert_causes(&bubble.ranks[1], 23, second);
    assert_true(bubble.ranks[0].message_ns[1] == 23e3 && bubble.ranks[0].message_ns[0] == 0.0);
    trace_bubble_release(&bubble);
    trace_run_release(&run);
}

/* A wait without a RECV is for the out buffer; a copy inside of it is a copy. */
static void a_wait_to_send_is_for_the_neighbours_buffer(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 5),
        HAND_WAIT(0, 0, 0, LANE_F, 1, 5, 21),
        HAND_SEND(0, 0, 0, LANE_F, 1, 20, 21),
        HAND_F(0, 0, 1, 21, 23),
        HAND_OTHER(0, REDUCE, 23, 26),
        HAND_F(1, 1, 9, 0, 30),
    };
    static const double first[] = {0, 0, 15, 1, 3, 0, 4, 0};
    struct trace_run run;
    struct trace_bubble bubble;

    (void)state;
    hand_run_make(spans, COUNT(spans), 2, &run);
    assert_int_equal(trace_bubble_make(&run, &bubble), STATUS_OK);
    assert_causes(&bubble.ranks[0], 7, first);
    assert_true(bubble.ranks[0].buffer_ns[1] == 15e3);
    trace_bubble_release(&bubble);
    trace_run_release(&run);
}

/* Whatever the run: busy and causes of a rank are the span, and the bubble is the summary's. */
static void busy_and_causes_add_up_to_the_span(void **state)
{
    const struct demo_config config = {.shape = {.schedule = SCHEDULE_1F1B,
                                                 .ranks = 4,
                                                 .microbatches = 8,
                                                 .virtual_stages = 1,
                                                 .lane_depth = 2,
                                                 .early_send = true,
                                                 .embedding_sync = true,
                                                 .reduce = true},
                                       .first_step = 1,
                                       .steps = 3,
                                       .forward_ms = 3.0,
                                       .input_ms = 3.5,
                                       .weight_ms = 2.5,
                                       .message_ms = 0.25,
                                       .slope = 0.25,
                                       .update_ms = 2.0,
                                       .sync_ms = 4.0,
                                       .reduce_ms = 1.0};
    struct trace_run run;
    struct trace_bubble bubble;
    struct trace_summary summary;

    (void)state;
    demo_run_make(&config, "demo", &run);
    assert_int_equal(trace_bubble_make(&run, &bubble), STATUS_OK);
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_true(bubble.span_ns == summary.span_ns);
    for (size_t index = 0; index < bubble.count; index++) {
        const struct trace_bubble_rank *rank = &bubble.ranks[index];
        double sum = rank->busy_ns;

        for (int cause = 0; cause < TRACE_BUBBLE_CAUSES; cause++) {
            assert_true(rank->cause_ns[cause] >= 0.0);
            sum += rank->cause_ns[cause];
        }
        assert_true(fabs(sum - bubble.span_ns) < 1.0);
        assert_true(rank->busy_ns == summary.ranks[index].busy_ns);
    }
    trace_summary_release(&summary);
    trace_bubble_release(&bubble);
    trace_run_release(&run);
}

/* Nested and overlapping spans count once. */
static void what_overlaps_counts_once(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 10),
        HAND_F(0, 0, 1, 5, 15),
        HAND_SEND(0, 0, 0, LANE_F, 0, 12, 18),
        HAND_OTHER(0, REDUCE, 16, 20),
        HAND_F(0, 0, 2, 30, 40),
    };
    static const double expected[] = {0, 0, 0, 1, 4, 0, 0, 10};
    struct trace_run run;
    struct trace_bubble bubble;

    (void)state;
    hand_run_make(spans, COUNT(spans), 1, &run);
    assert_int_equal(trace_bubble_make(&run, &bubble), STATUS_OK);
    assert_causes(&bubble.ranks[0], 25, expected);
    trace_bubble_release(&bubble);
    trace_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_moment_has_one_cause),
        cmocka_unit_test(a_wait_to_send_is_for_the_neighbours_buffer),
        cmocka_unit_test(busy_and_causes_add_up_to_the_span),
        cmocka_unit_test(what_overlaps_counts_once),
    };

    return cmocka_run_group_tests_name("trace_bubble", tests, NULL, NULL);
}
