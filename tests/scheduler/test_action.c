#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/action.h"

static const char *const words[] = {
    "0F0",      "2F0",           "2I17",           "3W4",
    "12B345",   "2SEND_F0",      "3RECV_F0",       "999999999B999999999",
    "1SEND_B9", "0RECV_B1",      "SYNC",           "REDUCE",
    "STEP",     "3GATHER_F0",    "12RELEASE_B345", "2F3.1",
    "0B0.0",    "3SEND_F12.1023"};

static const char *const not_words[] = {"",
                                        " ",
                                        "F",
                                        "0F",
                                        "F0",
                                        "0X0",
                                        "0f0",
                                        "-1F0",
                                        "0F-1",
                                        "0F0F",
                                        "0F0.",
                                        "0F.1",
                                        "0F0.1.2",
                                        "0F0.1024",
                                        "STEP.1",
                                        "0F999999999.9",
                                        "0F0 1F0",
                                        "0F0,",
                                        "0SEND0",
                                        "0SEND_0",
                                        "0SEND_X0",
                                        "0F_F0",
                                        "STEP0",
                                        "0STEP",
                                        "0SYNC1",
                                        "SYNCS",
                                        "0REDUCE_GRAD0",
                                        "0GATHER0",
                                        "GATHER_F0",
                                        "0RELEASES_F0",
                                        "0RELEASE_F",
                                        "1000000000F0",
                                        "0F1000000000",
                                        "SEND_F0",
                                        "0SEND_F",
                                        "0RECV_FB0",
                                        "0__0",
                                        "0_F0",
                                        "(0F0;1B0)",
                                        "\x80\xff"};

static void every_form_of_an_action_reads_back_as_it_was_written(void **state)
{
    char text[32];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct action action;

        assert_int_equal(action_parse(words[i], strlen(words[i]), &action), STATUS_OK);
        assert_int_equal(action_print(&action, text, sizeof(text)), strlen(words[i]));
        assert_string_equal(text, words[i]);
    }
}

static void the_fields_of_a_message_are_where_they_belong(void **state)
{
    static const char text[] = "\t 3RECV_B12\r\n";
    struct action action;

    (void)state;
    assert_int_equal(action_parse(text, strlen(text), &action), STATUS_OK);
    assert_int_equal(action.kind, ACTION_RECV);
    assert_int_equal(action.direction, LANE_B);
    assert_int_equal(action.virtual_stage, 3);
    assert_int_equal(action.microbatch, 12);
    assert_int_equal(action.peer, ACTION_NONE);
    assert_int_equal(action.sequence, ACTION_NONE);
    assert_int_equal(action.slot, ACTION_NONE);
    assert_int_equal(action.gradient, ACTION_NONE);
    assert_int_equal(action.landing, ACTION_NONE);
    assert_int_equal(action.depends[0], ACTION_NONE);
    assert_int_equal(action.depends[ACTION_DEPENDS - 1], ACTION_NONE);
}

static void an_action_of_the_whole_rank_has_no_stage_and_no_micro_batch(void **state)
{
    struct action action;

    (void)state;
    assert_int_equal(action_parse("STEP", 4, &action), STATUS_OK);
    assert_int_equal(action.kind, ACTION_STEP);
    assert_int_equal(action.virtual_stage, ACTION_NONE);
    assert_int_equal(action.microbatch, ACTION_NONE);
}

static void what_is_not_an_action_is_refused_and_nothing_is_written(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(not_words) / sizeof(not_words[0]); i++) {
        struct action action;
        struct action before;

        memset(&action, 0x5a, sizeof(action));
        before = action;
        assert_int_equal(action_parse(not_words[i], strlen(not_words[i]), &action),
                         STATUS_ERR_REFUSED);
        assert_memory_equal(&action, &before, sizeof(action));
    }
}

static void the_text_ends_where_its_bytes_end(void **state)
{
    struct action action;

    (void)state;
    assert_int_equal(action_parse("0F01B2", 3, &action), STATUS_OK);
    assert_int_equal(action.kind, ACTION_F);
    assert_int_equal(action.microbatch, 0);
    assert_int_equal(action_parse("0F0", 2, &action), STATUS_ERR_REFUSED);
}

static void a_text_that_does_not_fit_is_cut(void **state)
{
    struct action action;
    char text[5] = "....";

    (void)state;
    assert_int_equal(action_parse("12B345", 6, &action), STATUS_OK);
    assert_int_equal(action_print(&action, text, sizeof(text)), 4);
    assert_string_equal(text, "12B3");
    assert_int_equal(action_print(&action, text, 0), 0);
}

static void only_f_i_w_and_b_are_compute(void **state)
{
    (void)state;
    assert_true(action_is_compute(ACTION_F));
    assert_true(action_is_compute(ACTION_I));
    assert_true(action_is_compute(ACTION_W));
    assert_true(action_is_compute(ACTION_B));
    assert_false(action_is_compute(ACTION_SEND));
    assert_false(action_is_compute(ACTION_RECV));
    assert_false(action_is_compute(ACTION_SYNC));
    assert_false(action_is_compute(ACTION_REDUCE));
    assert_false(action_is_compute(ACTION_STEP));
    assert_string_equal(action_kind_text(ACTION_REDUCE), "REDUCE");
    assert_string_equal(action_kind_text((enum action_kind)200), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_an_action_reads_back_as_it_was_written),
        cmocka_unit_test(the_fields_of_a_message_are_where_they_belong),
        cmocka_unit_test(an_action_of_the_whole_rank_has_no_stage_and_no_micro_batch),
        cmocka_unit_test(what_is_not_an_action_is_refused_and_nothing_is_written),
        cmocka_unit_test(the_text_ends_where_its_bytes_end),
        cmocka_unit_test(a_text_that_does_not_fit_is_cut),
        cmocka_unit_test(only_f_i_w_and_b_are_compute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
