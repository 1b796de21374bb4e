/* The critical path of runs whose path was worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace_path.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/hand_run.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A part as it was worked out: cause, rank, kind of its span, microseconds. */
struct expected {
    enum trace_path_cause cause;
    int32_t rank;
    enum trace_kind kind;
    int64_t begin_us;
    int64_t end_us;
};

static void assert_path(const struct hand_span *spans, size_t count, int32_t stages,
                        const struct expected *expected, size_t expected_count)
{
    struct trace_run run;
    struct trace_path path;

    hand_run_make(spans, count, stages, &run);
    assert_int_equal(trace_path_make(&run, &path), STATUS_OK);
    assert_int_equal(path.steps, 1);
    for (size_t index = 0; index < expected_count && index < path.count; index++) {
        const struct trace_path_part *part = &path.parts[index];

        if (part->cause != expected[index].cause || part->rank->rank != expected[index].rank ||
            part->span->kind != expected[index].kind ||
            part->begin_ns != expected[index].begin_us * 1000 ||
            part->end_ns != expected[index].end_us * 1000) {
            fail_msg("part %zu: cause %d, rank %d, kind %u, %lld to %lld ns", index,
                     (int)part->cause, (int)part->rank->rank, part->span->kind,
                     (long long)part->begin_ns, (long long)part->end_ns);
        }
    }
    assert_int_equal(path.count, expected_count);
    trace_path_release(&path);
    trace_run_release(&run);
}

/* Two stages, one micro-batch. Stage 1 gets the activation 3 us after it was copied, its host idles
 * for 1 us between F and I, and its STEP waits for stage 0, which comes to it 14 us later. */
static const struct hand_span one_microbatch[] = {
    HAND_F(0, 0, 0, 0, 10),
    HAND_SEND(0, 0, 0, LANE_F, 1, 10, 11),
    HAND_WAIT(0, 0, 0, LANE_B, 1, 11, 34),
    HAND_RECV(0, 0, 0, LANE_B, 1, 11, 34),
    HAND_B(0, 0, 0, 34, 54),
    HAND_OTHER(0, OPTIMIZER, 54, 55),
    HAND_OTHER(0, STEP, 55, 60),
    HAND_OTHER(0, OPTIMIZER, 60, 61),
    HAND_WAIT(1, 1, 0, LANE_F, 0, 0, 14),
    HAND_RECV(1, 1, 0, LANE_F, 0, 0, 14),
    HAND_F(1, 1, 0, 14, 20),
    HAND_I(1, 1, 0, 21, 30),
    HAND_SEND(1, 1, 0, LANE_B, 0, 30, 32),
    HAND_W(1, 1, 0, 32, 40),
    HAND_OTHER(1, OPTIMIZER, 40, 41),
    HAND_OTHER(1, STEP, 41, 60),
    HAND_OTHER(1, OPTIMIZER, 60, 62),
};

static void the_path_goes_over_messages_gaps_and_the_step(void **state)
{
    static const struct expected expected[] = {
        {TRACE_PATH_WORK, 0, TRACE_F, 0, 10},     {TRACE_PATH_WORK, 0, TRACE_SEND, 10, 11},
        {TRACE_PATH_MESSAGE, 1, TRACE_F, 11, 14}, {TRACE_PATH_WORK, 1, TRACE_F, 14, 20},
        {TRACE_PATH_HOST, 1, TRACE_I, 20, 21},    {TRACE_PATH_WORK, 1, TRACE_I, 21, 30},
        {TRACE_PATH_WORK, 1, TRACE_SEND, 30, 32}, {TRACE_PATH_MESSAGE, 0, TRACE_B, 32, 34},
        {TRACE_PATH_WORK, 0, TRACE_B, 34, 54},    {TRACE_PATH_WORK, 0, TRACE_OPTIMIZER, 54, 55},
        {TRACE_PATH_WORK, 1, TRACE_STEP, 55, 60}, {TRACE_PATH_WORK, 1, TRACE_OPTIMIZER, 60, 62},
    };

    (void)state;
    assert_path(one_microbatch, COUNT(one_microbatch), 2, expected, COUNT(expected));
}

/* Of 62 us: stage 0 has F 10, B 20, optimizer 1; stage 1 F 6, a gap of 1, I 9, STEP 5, optimizer 2;
 * the links 1 + 3 down and 2 + 2 up. */
static void the_shares_add_up_to_the_path(void **state)
{
    struct trace_run run;
    struct trace_path path;
    struct trace_path_share share;

    (void)state;
    hand_run_make(one_microbatch, COUNT(one_microbatch), 2, &run);
    assert_int_equal(trace_path_make(&run, &path), STATUS_OK);
    assert_int_equal(trace_path_share_make(&run, &path, &share), STATUS_OK);
    assert_int_equal(share.stages, 2);
    assert_true(share.total_ns == 62e3);
    assert_true(share.stage_ns[0] == 31e3 && share.stage_ns[1] == 23e3);
    assert_int_equal(share.link_count, 2);
    assert_true(share.links[0].from == 0 && share.links[0].to == 1 && share.links[0].ns == 4e3);
    assert_true(share.links[1].from == 1 && share.links[1].to == 0 && share.links[1].ns == 4e3);
    assert_true(share.kind_ns[TRACE_F] == 16e3 && share.kind_ns[TRACE_I] == 9e3);
    assert_true(share.kind_ns[TRACE_B] == 20e3 && share.kind_ns[TRACE_W] == 0.0);
    assert_true(share.kind_ns[TRACE_SEND] == 3e3 && share.kind_ns[TRACE_STEP] == 5e3);
    assert_true(share.cause_ns[TRACE_PATH_MESSAGE] == 5e3);
    assert_true(share.cause_ns[TRACE_PATH_HOST] == 1e3);
    trace_path_share_release(&share);
    trace_path_release(&path);
    trace_run_release(&run);
}

/* One landing buffer: the second activation is ready at 5, but leaves at 20, because stage 1 gives
 * the buffer back at 19, with the end of its I. */
static void a_late_send_waits_for_the_reader_of_its_buffer(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 2),
        HAND_SEND(0, 0, 0, LANE_F, 1, 2, 3),
        HAND_F(0, 0, 1, 3, 5),
        HAND_WAIT(0, 0, 1, LANE_F, 1, 5, 21),
        HAND_SEND(0, 0, 1, LANE_F, 1, 20, 21),
        HAND_F(0, 0, 2, 21, 23),
        HAND_RECV(1, 1, 0, LANE_F, 0, 0, 4),
        HAND_F(1, 1, 0, 4, 10),
        HAND_I(1, 1, 0, 10, 19),
        HAND_RECV(1, 1, 1, LANE_F, 0, 19, 22),
        HAND_F(1, 1, 1, 22, 28),
    };
    static const struct expected expected[] = {
        {TRACE_PATH_WORK, 0, TRACE_F, 0, 2},      {TRACE_PATH_WORK, 0, TRACE_SEND, 2, 3},
        {TRACE_PATH_MESSAGE, 1, TRACE_F, 3, 4},   {TRACE_PATH_WORK, 1, TRACE_F, 4, 10},
        {TRACE_PATH_WORK, 1, TRACE_I, 10, 19},    {TRACE_PATH_LANDING, 0, TRACE_SEND, 19, 20},
        {TRACE_PATH_WORK, 0, TRACE_SEND, 20, 21}, {TRACE_PATH_MESSAGE, 1, TRACE_F, 21, 22},
        {TRACE_PATH_WORK, 1, TRACE_F, 22, 28},
    };

    (void)state;
    assert_path(spans, COUNT(spans), 2, expected, COUNT(expected));
}

/* Where the same buffer was given back long before, the sender's own work held the message up. */
static void a_send_that_its_rank_held_up_follows_its_line(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 5),
        HAND_W(0, 0, 7, 5, 20),
        HAND_SEND(0, 0, 0, LANE_F, 1, 20, 21),
        HAND_I(1, 1, 9, 0, 6), /* gives back at 6 */
        HAND_RECV(1, 1, 0, LANE_F, 0, 6, 22),
        HAND_F(1, 1, 0, 22, 30),
    };
    static const struct expected expected[] = {
        {TRACE_PATH_WORK, 0, TRACE_F, 0, 5},      {TRACE_PATH_WORK, 0, TRACE_W, 5, 20},
        {TRACE_PATH_WORK, 0, TRACE_SEND, 20, 21}, {TRACE_PATH_MESSAGE, 1, TRACE_F, 21, 22},
        {TRACE_PATH_WORK, 1, TRACE_F, 22, 30},
    };

    (void)state;
    assert_path(spans, COUNT(spans), 2, expected, COUNT(expected));
}

/* A device does not say when a message travelled: what made it is what was waited for. */
static void without_sends_the_maker_is_what_was_waited_for(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 10),
        HAND_F(1, 1, 0, 12, 20),
        HAND_B(1, 1, 0, 20, 30),
        HAND_B(0, 0, 0, 33, 40),
    };
    static const struct expected expected[] = {
        {TRACE_PATH_WORK, 0, TRACE_F, 0, 10},     {TRACE_PATH_MESSAGE, 1, TRACE_F, 10, 12},
        {TRACE_PATH_WORK, 1, TRACE_F, 12, 20},    {TRACE_PATH_WORK, 1, TRACE_B, 20, 30},
        {TRACE_PATH_MESSAGE, 0, TRACE_B, 30, 33}, {TRACE_PATH_WORK, 0, TRACE_B, 33, 40},
    };

    (void)state;
    assert_path(spans, COUNT(spans), 2, expected, COUNT(expected));
}

/* Stage 1 has the message at 12, and only then looks whether its weights are whole, before its F. */
static void what_stands_behind_a_message_in_the_line_waited_for_it(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 10),
        HAND_SEND(0, 0, 0, LANE_F, 1, 10, 11),
        HAND_RECV(1, 1, 0, LANE_F, 0, 0, 12),
        HAND_OTHER(1, SYNC, 12, 13),
        HAND_F(1, 1, 0, 13, 20),
    };
    static const struct expected expected[] = {
        {TRACE_PATH_WORK, 0, TRACE_F, 0, 10},        {TRACE_PATH_WORK, 0, TRACE_SEND, 10, 11},
        {TRACE_PATH_MESSAGE, 1, TRACE_SYNC, 11, 12}, {TRACE_PATH_WORK, 1, TRACE_SYNC, 12, 13},
        {TRACE_PATH_WORK, 1, TRACE_F, 13, 20},
    };

    (void)state;
    assert_path(spans, COUNT(spans), 2, expected, COUNT(expected));
}

/* The owner of the embedding waits in its SYNC from 30 to 45, the head has sent at 40. */
static void the_owner_of_the_embedding_waits_for_the_head(void **state)
{
    static const struct hand_span spans[] = {
        HAND_B(0, 0, 0, 10, 30),
        HAND_OTHER(0, SYNC, 30, 45),
        HAND_F(1, 1, 0, 0, 20),
        HAND_OTHER(1, SYNC, 20, 40),
    };
    static const struct expected expected[] = {
        {TRACE_PATH_WORK, 1, TRACE_F, 0, 20},
        {TRACE_PATH_WORK, 1, TRACE_SYNC, 20, 40},
        {TRACE_PATH_MESSAGE, 0, TRACE_SYNC, 40, 45},
    };

    (void)state;
    assert_path(spans, COUNT(spans), 2, expected, COUNT(expected));
}

/* Replicas sum their gradients: rank 1, of the same stage, comes last. */
static void a_reduction_waits_for_the_last_replica(void **state)
{
    static const struct hand_span spans[] = {
        HAND_B(0, 0, 0, 0, 10), HAND_OTHER(0, REDUCE, 10, 30), HAND_OTHER(0, OPTIMIZER, 30, 33),
        HAND_B(1, 0, 0, 0, 25), HAND_OTHER(1, REDUCE, 25, 30), HAND_OTHER(1, OPTIMIZER, 30, 31),
    };
    struct trace_run run;
    struct trace_path path;

    (void)state;
    hand_run_make(spans, COUNT(spans), 2, &run);
    run.ranks[1].pipeline_rank = 0; /* two replicas of one stage */
    trace_run_arrange(&run);
    assert_int_equal(trace_path_make(&run, &path), STATUS_OK);
    assert_int_equal(path.count, 3);
    assert_int_equal(path.parts[0].rank->rank, 1);
    assert_int_equal(path.parts[0].end_ns, 25000);
    assert_int_equal(path.parts[1].span->kind, TRACE_REDUCE);
    assert_int_equal(path.parts[1].begin_ns, 25000);
    assert_int_equal(path.parts[2].end_ns, 33000);
    trace_path_release(&path);
    trace_run_release(&run);
}

/* The parts of each step of a simulated run touch each other, from the first action to the end. */
static void a_path_has_no_holes(void **state)
{
    static const enum schedule schedules[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B,
                                              SCHEDULE_INTERLEAVED_1F1B};

    (void)state;
    for (size_t index = 0; index < COUNT(schedules); index++) {
        const struct demo_config config = {
            .shape = {.schedule = schedules[index],
                      .ranks = 3,
                      .microbatches = 6,
                      .virtual_stages = schedules[index] == SCHEDULE_INTERLEAVED_1F1B ? 2 : 1,
                      .lane_depth = 2,
                      .early_send = true},
            .first_step = 4,
            .steps = 2,
            .forward_ms = 2.0,
            .input_ms = 3.0,
            .weight_ms = 1.5,
            .message_ms = 0.25,
            .slope = 0.1,
            .update_ms = 1.0};
        struct trace_run run;
        struct trace_path path;
        int64_t at_ns = INT64_MIN;

        demo_run_make(&config, "demo", &run);
        assert_int_equal(trace_path_make(&run, &path), STATUS_OK);
        assert_int_equal(path.steps, 2);
        for (size_t part = 0; part < path.count; part++) {
            const struct trace_path_part *at = &path.parts[part];
            bool begins = part == 0 || at->span->args[TRACE_ARG_STEP] !=
                                           path.parts[part - 1].span->args[TRACE_ARG_STEP];

            assert_true(at->begin_ns < at->end_ns);
            assert_true(begins || at->begin_ns == at_ns);
            /* A step begins with the first forward of the first stage. */
            assert_true(!begins || (at->rank->rank == 0 && at->span->kind == TRACE_F));
            at_ns = at->end_ns;
        }
        assert_int_equal(at_ns, run.ranks[0].spans[run.ranks[0].count - 1].end_ns);
        trace_path_release(&path);
        trace_run_release(&run);
    }
}

static void an_empty_run_has_an_empty_path(void **state)
{
    struct trace_run run;
    struct trace_path path;

    (void)state;
    hand_run_make(NULL, 0, 2, &run);
    assert_int_equal(trace_path_make(&run, &path), STATUS_OK);
    assert_int_equal(path.count, 0);
    trace_path_release(&path);
    trace_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_goes_over_messages_gaps_and_the_step),
        cmocka_unit_test(the_shares_add_up_to_the_path),
        cmocka_unit_test(a_late_send_waits_for_the_reader_of_its_buffer),
        cmocka_unit_test(a_send_that_its_rank_held_up_follows_its_line),
        cmocka_unit_test(without_sends_the_maker_is_what_was_waited_for),
        cmocka_unit_test(what_stands_behind_a_message_in_the_line_waited_for_it),
        cmocka_unit_test(the_owner_of_the_embedding_waits_for_the_head),
        cmocka_unit_test(a_reduction_waits_for_the_last_replica),
        cmocka_unit_test(a_path_has_no_holes),
        cmocka_unit_test(an_empty_run_has_an_empty_path),
    };

    return cmocka_run_group_tests_name("trace_path", tests, NULL, NULL);
}
