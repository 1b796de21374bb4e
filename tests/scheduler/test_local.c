#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/validate.h"

static struct action *find(struct plan *plan, int32_t rank, const char *text)
{
    int32_t i = fixture_find(plan, rank, text);

    assert_true(i >= 0);
    return &plan->lines[rank].actions[i];
}

static struct plan *lower_text(const char *text)
{
    struct plan *compute = fixture_text(text);
    struct plan *lowered = NULL;

    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

struct handover {
    const char *text;
    int32_t landing;
    int32_t target;
};

static void expect_handovers(struct plan *plan, const struct handover *expected, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        assert_int_equal(find(plan, 0, expected[i].text)->landing, expected[i].landing);
        assert_int_equal(find(plan, 0, expected[i].text)->target, expected[i].target);
    }
    assert_int_equal(plan_validate(plan), STATUS_OK);
}

/* 0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1, by hand. Activations into chunk 1: micro-batch 0's from 0F0 to
 * the end of 1B0, then micro-batch 1's: one buffer. Gradients into chunk 0: 1B0 to 0B0, 1B1 to
 * 0B1: one buffer. */
static void one_rank_of_two_chunks_needs_one_buffer_each_way(void **state)
{
    static const struct handover expected[] = {{"0F0", -1, 0}, {"1F0", 0, -1}, {"1B0", -1, 0},
                                               {"0F1", -1, 0}, {"0B0", 0, -1}, {"1F1", 0, -1},
                                               {"1B1", -1, 0}, {"0B1", 0, -1}};
    struct plan *plan = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, 1, 2, 2, true);

    (void)state;
    assert_string_equal(fixture_line(plan, 0), "0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1 STEP");
    expect_handovers(plan, expected, sizeof(expected) / sizeof(expected[0]));
    assert_int_equal(plan_buffers_of(plan, 0, 0)->landing_f, 0);
    assert_int_equal(plan_buffers_of(plan, 0, 1)->landing_f, 1);
    assert_int_equal(plan_buffers_of(plan, 0, 0)->landing_b, 1);
    assert_int_equal(plan_buffers_of(plan, 0, 1)->landing_b, 0);
    plan_destroy(&plan);
}

/* The I of chunk 1 gives its input back and takes a buffer of chunk 0, which W of chunk 0 gives
 * back: with both W at the end, two of those are in use. */
static void an_input_is_held_until_i_and_a_gradient_until_w(void **state)
{
    static const struct handover expected[] = {{"0F0", -1, 0}, {"0F1", -1, 1}, {"1F0", 0, -1},
                                               {"1F1", 1, -1}, {"1I0", -1, 0}, {"1W0", -1, -1},
                                               {"0I0", 0, -1}, {"1I1", -1, 1}, {"1W1", -1, -1},
                                               {"0I1", 1, -1}, {"0W0", 0, -1}, {"0W1", 1, -1}};
    struct plan *plan = lower_text("0F0 0F1 1F0 1F1 1I0 1W0 0I0 1I1 1W1 0I1 0W0 0W1\n");

    (void)state;
    expect_handovers(plan, expected, sizeof(expected) / sizeof(expected[0]));
    assert_int_equal(plan_buffers_of(plan, 0, 1)->landing_f, 2);
    assert_int_equal(plan_buffers_of(plan, 0, 0)->landing_b, 2);
    plan_destroy(&plan);
    plan = lower_text("0F0 1F0 1I0 0F1 1F1 1W0 0I0 0W0 1I1 1W1 0I1 0W1\n");
    assert_int_equal(find(plan, 0, "0F1")->target, 0); /* given back by 1I0 */
    assert_int_equal(find(plan, 0, "1I1")->target, 0); /* given back by 0W0 */
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
}

/* Forward only: F of the next chunk is the last reader. */
static void a_forward_only_plan_gives_back_at_f(void **state)
{
    struct plan *plan = fixture_chunks(SCHEDULE_FORWARD_ONLY, 1, 3, 3, true);

    (void)state;
    assert_string_equal(fixture_line(plan, 0), "0F0 1F0 2F0 0F1 1F1 2F1 0F2 1F2 2F2");
    assert_int_equal(find(plan, 0, "0F2")->target, 0);
    assert_int_equal(find(plan, 0, "1F2")->landing, 0);
    assert_int_equal(find(plan, 0, "1F2")->target, 0);
    assert_int_equal(find(plan, 0, "2F2")->target, ACTION_NONE);
    assert_int_equal(plan_buffers_of(plan, 0, 2)->landing_f, 1);
    assert_int_equal(plan_buffers_of(plan, 0, 1)->landing_b, 0);
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
}

/* A V: the turn is on rank 1, whose two chunks are neighbours; the ends talk over the lane. */
static void a_turn_is_handed_over_and_the_rest_is_sent(void **state)
{
    struct plan *plan = lower_text("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n");

    (void)state;
    assert_string_equal(fixture_line(plan, 1),
                        "1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2B0 1I0 1SEND_B0 1W0 STEP");
    assert_int_equal(find(plan, 1, "1F0")->target, 0);
    assert_int_equal(find(plan, 1, "2F0")->landing, 0);
    assert_int_equal(find(plan, 1, "2B0")->target, 0);
    assert_int_equal(find(plan, 1, "1I0")->landing, 0);
    assert_int_equal(find(plan, 1, "1W0")->landing, 0);
    assert_int_equal(find(plan, 1, "1I0")->target, ACTION_NONE);
    assert_int_equal(plan_buffers_of(plan, 1, 1)->landing_f, 1);
    assert_int_equal(plan_buffers_of(plan, 1, 0)->landing_b, 1);
    assert_int_equal(plan_buffers_of(plan, 1, 0)->landing_f, 3);
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
}

static struct plan *example(void)
{
    return lower_text("0F0 0F1 1F0 1F1 1I0 1W0 0I0 1I1 1W1 0I1 0W0 0W1\n");
}

static void a_wrong_buffer_between_chunks_is_refused(void **state)
{
    struct plan *plan = example();

    (void)state;
    find(plan, 0, "0F1")->target = 0;
    fixture_refused(plan, "(0F1): takes landing buffer 0, which micro-batch 0 still holds");
    plan = example();
    find(plan, 0, "0F1")->target = 2;
    fixture_refused(plan, "(0F1): landing buffer 2 is outside 0 to 1");
    plan = example();
    find(plan, 0, "1F1")->landing = 0;
    fixture_refused(plan, "(1F1): uses landing buffer 0, which its micro-batch does not hold");
    plan = example();
    find(plan, 0, "0W0")->landing = 1;
    fixture_refused(plan, "(0W0): uses landing buffer 1, which its micro-batch does not hold");
    plan = example();
    find(plan, 0, "1I1")->target = 0;
    fixture_refused(plan, "(1I1): takes landing buffer 0, which micro-batch 0 still holds");
    plan = example();
    find(plan, 0, "1F1")->target = 0;
    fixture_refused(plan, "(1F1): writes to landing buffer 0, but no chunk of this rank reads it");
    plan = example();
    plan->buffers[1].landing_f = 0;
    fixture_refused(plan, "buffer counts");
}

static void replicas_are_reduced_behind_all_work_and_before_the_step(void **state)
{
    struct plan *plan = fixture_reduced(2, 1, 1);

    (void)state;
    assert_string_equal(fixture_line(plan, 0), "0F0 0SEND_F0 0RECV_B0 0B0 REDUCE SYNC STEP");
    assert_string_equal(fixture_line(plan, 1), "1RECV_F0 1F0 SYNC 1I0 1SEND_B0 1W0 REDUCE STEP");
    assert_int_equal(find(plan, 0, "REDUCE")->depends[0], 3);
    assert_int_equal(find(plan, 0, "STEP")->depends[0], 4);
    assert_int_equal(find(plan, 0, "STEP")->depends[1], 5);
    assert_int_equal(find(plan, 1, "REDUCE")->depends[0], 5);
    assert_int_equal(find(plan, 1, "STEP")->depends[0], 6);
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
    plan = fixture_reduced(1, 2, 2);
    assert_string_equal(fixture_line(plan, 0), "0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1 REDUCE STEP");
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
}

static void exchange(struct plan *plan, int32_t rank, int32_t a, int32_t b)
{
    struct action held = plan->lines[rank].actions[a];

    plan->lines[rank].actions[a] = plan->lines[rank].actions[b];
    plan->lines[rank].actions[b] = held;
}

static void a_reduce_out_of_place_is_refused(void **state)
{
    struct plan *plan = fixture_reduced(2, 1, 1);

    (void)state;
    plan->shape.reduce = false;
    fixture_refused(plan, "rank 0, action 4 (REDUCE): has no place in this plan");
    plan = fixture_reduced(2, 1, 1);
    find(plan, 1, "REDUCE")->depends[0] = ACTION_NONE;
    fixture_refused(plan, "(REDUCE): does not name action 5 (1W0)");
    plan = fixture_reduced(2, 1, 1);
    find(plan, 1, "STEP")->depends[0] = ACTION_NONE;
    fixture_refused(plan, "(STEP): does not name action 6 (REDUCE)");
    plan = fixture_reduced(2, 1, 1);
    find(plan, 1, "REDUCE")->microbatch = 0;
    fixture_refused(plan, "rank 1, action 6");
    plan = fixture_reduced(2, 1, 1);
    exchange(plan, 0, 4, 5);
    fixture_refused(plan, "(SYNC): stands before action 5");
    plan = fixture_lowered(SCHEDULE_1F1B, 2, 1, true);
    plan->shape.reduce = true;
    fixture_refused(plan, "rank 0 has no REDUCE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_of_two_chunks_needs_one_buffer_each_way),
        cmocka_unit_test(an_input_is_held_until_i_and_a_gradient_until_w),
        cmocka_unit_test(a_forward_only_plan_gives_back_at_f),
        cmocka_unit_test(a_turn_is_handed_over_and_the_rest_is_sent),
        cmocka_unit_test(a_wrong_buffer_between_chunks_is_refused),
        cmocka_unit_test(replicas_are_reduced_behind_all_work_and_before_the_step),
        cmocka_unit_test(a_reduce_out_of_place_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
