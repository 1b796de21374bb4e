#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/lower.h"

static const struct action *find(const struct plan *plan, int32_t rank, const char *text)
{
    int32_t i = fixture_find(plan, rank, text);

    assert_true(i >= 0);
    return &plan->lines[rank].actions[i];
}

static void expect_depends(const struct plan *plan, int32_t rank, int32_t i, int32_t first,
                           int32_t second)
{
    const struct action *action = &plan->lines[rank].actions[i];

    assert_int_equal(action->depends[0], first);
    assert_int_equal(action->depends[1], second);
    assert_int_equal(action->depends[2], ACTION_NONE);
    assert_int_equal(action->depends[3], ACTION_NONE);
}

static void early_send_puts_the_gradient_on_its_way_before_w(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 2, 2, true);

    (void)state;
    assert_string_equal(fixture_line(plan, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 "
                                               "0B1 SYNC STEP");
    assert_string_equal(fixture_line(plan, 1), "1RECV_F0 1F0 1I0 1SEND_B0 1W0 1RECV_F1 1F1 SYNC "
                                               "1I1 1SEND_B1 1W1 STEP");
    plan_destroy(&plan);
}

static void without_early_send_a_b_stays_whole(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_GPIPE, 2, 2, false);

    (void)state;
    assert_string_equal(fixture_line(plan, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 "
                                               "0B1 SYNC STEP");
    assert_string_equal(fixture_line(plan, 1), "1RECV_F0 1F0 1RECV_F1 1F1 SYNC 1B0 1SEND_B0 1B1 "
                                               "1SEND_B1 STEP");
    plan_destroy(&plan);
}

static void one_rank_has_no_messages_and_no_sync(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 1, 2, true);
    const struct plan_buffers *buffers = plan_buffers_of(plan, 0, 0);

    (void)state;
    assert_string_equal(fixture_line(plan, 0), "0F0 0B0 0F1 0B1 STEP");
    assert_int_equal(buffers->slots, 1);
    assert_int_equal(buffers->gradients, 1);
    assert_int_equal(buffers->landing_f, 0);
    assert_int_equal(buffers->landing_b, 0);
    plan_destroy(&plan);
}

static void forward_only_has_one_slot_no_sync_and_no_step(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_FORWARD_ONLY, 3, 5, true);
    const struct plan_buffers *buffers = plan_buffers_of(plan, 1, 0);
    int32_t i;

    (void)state;
    assert_string_equal(fixture_line(plan, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0F3 "
                                               "0SEND_F3 0F4 0SEND_F4");
    assert_string_equal(fixture_line(plan, 2), "2RECV_F0 2F0 2RECV_F1 2F1 2RECV_F2 2F2 2RECV_F3 "
                                               "2F3 2RECV_F4 2F4");
    assert_int_equal(buffers->slots, 1);
    assert_int_equal(buffers->gradients, 0);
    assert_int_equal(buffers->landing_f, 3);
    assert_int_equal(buffers->landing_b, 0);
    for (i = 0; i < plan->lines[1].count; i++) {
        if (plan->lines[1].actions[i].kind == ACTION_F) {
            assert_int_equal(plan->lines[1].actions[i].slot, 0);
        }
    }
    plan_destroy(&plan);
}

static void sync_is_left_out_where_it_is_not_wanted(void **state)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_1F1B, 2, 1, true);
    struct plan *compute = NULL;
    struct plan *plan = NULL;

    (void)state;
    shape.embedding_sync = false;
    compute = fixture_compute(SCHEDULE_1F1B, 2, 1);
    compute->shape = shape;
    assert_int_equal(plan_lower(compute, &plan), STATUS_OK);
    assert_string_equal(fixture_line(plan, 0), "0F0 0SEND_F0 0RECV_B0 0B0 STEP");
    assert_int_equal(plan->lines[0].actions[4].depends[0], ACTION_NONE);
    plan_destroy(&compute);
    plan_destroy(&plan);
}

static void dependencies_are_those_worked_out_by_hand(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 2, 2, true);
    static const int32_t expected[2][12][2] = {{{-1, -1},
                                                {0, -1},
                                                {1, -1},
                                                {2, -1},
                                                {-1, -1},
                                                {4, 0},
                                                {-1, -1},
                                                {6, 2},
                                                {-1, -1},
                                                {8, -1}},
                                               {{-1, -1},
                                                {0, -1},
                                                {1, -1},
                                                {2, -1},
                                                {2, -1},
                                                {-1, -1},
                                                {5, -1},
                                                {6, -1},
                                                {6, 3},
                                                {8, -1},
                                                {8, -1},
                                                {-1, -1}}};
    int32_t rank;
    int32_t i;

    (void)state;
    assert_int_equal(plan->lines[0].count, 10);
    assert_int_equal(plan->lines[1].count, 12);
    for (rank = 0; rank < 2; rank++) {
        for (i = 0; i < plan->lines[rank].count; i++) {
            expect_depends(plan, rank, i, expected[rank][i][0], expected[rank][i][1]);
        }
    }
    plan_destroy(&plan);
}

static void a_middle_rank_waits_for_message_forward_and_out_buffer(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 3, 4, true);
    const struct action *forward = find(plan, 1, "1F1");
    const struct action *input_gradient = find(plan, 1, "1I1");

    (void)state;
    assert_int_equal(forward->depends[0], fixture_find(plan, 1, "1RECV_F1"));
    assert_int_equal(forward->depends[1], fixture_find(plan, 1, "1SEND_F0"));
    assert_int_equal(input_gradient->depends[0], fixture_find(plan, 1, "1RECV_B1"));
    assert_int_equal(input_gradient->depends[1], fixture_find(plan, 1, "1F1"));
    assert_int_equal(input_gradient->depends[2], fixture_find(plan, 1, "1SEND_B0"));
    assert_int_equal(input_gradient->depends[3], ACTION_NONE);
    plan_destroy(&plan);
}

static void buffers_are_peaks_and_landings_add_the_depth(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 4, 8, true);
    int32_t rank;

    (void)state;
    for (rank = 0; rank < 4; rank++) {
        const struct plan_buffers *buffers = plan_buffers_of(plan, rank, 0);

        assert_int_equal(buffers->slots, 4 - rank);
        assert_int_equal(buffers->gradients, 1);
        assert_int_equal(buffers->landing_f, rank == 0 ? 0 : 4 - rank + 2);
        assert_int_equal(buffers->landing_b, rank == 3 ? 0 : 3);
    }
    plan_destroy(&plan);
}

/* Rank 2 of p = 4 has 2 slots, so 4 landing buffers for activations, and 3 for gradients. */
static void landing_buffers_go_in_turn_and_agree_at_both_ends(void **state)
{
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 4, 8, true);
    char text[32];
    int32_t k;

    (void)state;
    for (k = 0; k < 8; k++) {
        const struct action message = {.kind = ACTION_SEND, .virtual_stage = 1, .microbatch = k};
        const struct action *send;

        (void)action_print(&message, text, sizeof(text));
        send = find(plan, 1, text);
        assert_int_equal(send->landing, k % 4);
        assert_int_equal(send->sequence, k);
        assert_int_equal(send->peer, 2);
    }
    assert_int_equal(find(plan, 2, "2RECV_F5")->landing, 1);
    assert_int_equal(find(plan, 2, "2RECV_F5")->sequence, 5);
    assert_int_equal(find(plan, 2, "2RECV_F5")->peer, 1);
    assert_int_equal(find(plan, 2, "2F5")->landing, 1);
    assert_int_equal(find(plan, 3, "3SEND_B5")->landing, 2);
    assert_int_equal(find(plan, 2, "2RECV_B5")->landing, 2);
    assert_int_equal(find(plan, 2, "2I5")->landing, 2);
    assert_int_equal(find(plan, 2, "2W5")->landing, 2);
    assert_int_equal(find(plan, 3, "3I5")->landing, ACTION_NONE);
    assert_int_equal(find(plan, 0, "0F5")->landing, ACTION_NONE);
    plan_destroy(&plan);
}

static void what_cannot_be_lowered_is_refused_with_rank_index_and_action(void **state)
{
    static const struct {
        const char *text;
        const char *expected;
    } cases[] = {
        {"0B0 0F0\n", "rank 0, action 0 (0B0): stands before the F"},
        {"0F0 0W0 0I0\n", "rank 0, action 1 (0W0): stands before the I"},
        {"0F0 0F1 0B0 0B0\n", "rank 0, action 3 (0B0): repeats action 2 (0B0)"},
        {"0F0 0I0 0B0\n", "rank 0, action 2 (0B0): repeats action 1 (0I0)"},
        {"0F0 0B0 0W0\n", "rank 0, action 2 (0W0): repeats action 1 (0B0)"},
        {"0F0 0B0\n1F0 0I0 1B0\n", "rank 1, action 1 (0I0): virtual stage 0 is not"},
        {"1F0 0F0 0B0 1B0\n", "rank 0, action 0 (1F0): stands before virtual stage 0"},
    };
    int saved = fixture_mute();
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan *plan = fixture_text(cases[i].text);
        struct plan *lowered = NULL;

        assert_int_equal(plan_lower(plan, &lowered), STATUS_ERR_REFUSED);
        assert_null(lowered);
        assert_non_null(strstr(status_last()->message, cases[i].expected));
        plan_destroy(&plan);
    }
    fixture_unmute(saved);
}

static void a_backward_in_a_forward_only_plan_is_refused(void **state)
{
    struct plan *plan = fixture_text("0F0 0B0\n");
    struct plan *lowered = NULL;
    int saved = fixture_mute();

    (void)state;
    plan->shape.schedule = SCHEDULE_FORWARD_ONLY;
    assert_int_equal(plan_lower(plan, &lowered), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
    plan_destroy(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_send_puts_the_gradient_on_its_way_before_w),
        cmocka_unit_test(without_early_send_a_b_stays_whole),
        cmocka_unit_test(one_rank_has_no_messages_and_no_sync),
        cmocka_unit_test(forward_only_has_one_slot_no_sync_and_no_step),
        cmocka_unit_test(sync_is_left_out_where_it_is_not_wanted),
        cmocka_unit_test(dependencies_are_those_worked_out_by_hand),
        cmocka_unit_test(a_middle_rank_waits_for_message_forward_and_out_buffer),
        cmocka_unit_test(buffers_are_peaks_and_landings_add_the_depth),
        cmocka_unit_test(landing_buffers_go_in_turn_and_agree_at_both_ends),
        cmocka_unit_test(what_cannot_be_lowered_is_refused_with_rank_index_and_action),
        cmocka_unit_test(a_backward_in_a_forward_only_plan_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
