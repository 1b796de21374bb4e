/* Which schedules take how many chunks, and what else they have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "config_rig.h"

static void assert_legal(const char *first, const char *second, struct config **config)
{
    if (config_rig_load(config_rig_legal(), first, second, config) != STATUS_OK) {
        fail_msg("%s %s: %s", first, second != NULL ? second : "", status_last()->message);
    }
}

static void assert_refused(const char *first, const char *expected)
{
    config_rig_refuses(config_rig_legal(), first, expected);
}

static void assert_refused_with(const char *schedule, const char *more, const char *expected)
{
    struct config *config = NULL;

    assert_int_equal(config_rig_load(config_rig_legal(), schedule, more, &config),
                     STATUS_ERR_REFUSED);
    if (strstr(status_last()->message, expected) == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", expected, status_last()->message);
    }
}

static void virtual_stages_are_refused_with_the_schedules_that_have_them(void **state)
{
    static const char *const ones[] = {"gpipe", "1f1b", "zb_h1", "zb_h2", "seq1f1b"};
    static const char *const twos[] = {"zb_v", "v_half", "v_min"};
    char schedule[64];
    char expected[256];

    (void)state;
    for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
        (void)snprintf(schedule, sizeof(schedule), "--parallel.schedule=%s", ones[i]);
        (void)snprintf(expected, sizeof(expected),
                       "virtual_stages: 2 is not legal with parallel.schedule %s, which has one "
                       "chunk a rank: set it to 1; schedules with 2: interleaved_1f1b, bfs, izb, "
                       "zb_v, v_half, v_min or file:PATH",
                       ones[i]);
        assert_refused_with(schedule, "--parallel.virtual_stages=2", expected);
    }
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(schedule, sizeof(schedule), "--parallel.schedule=%s", twos[i]);
        (void)snprintf(
            expected, sizeof(expected),
            "virtual_stages: 3 is not legal with parallel.schedule %s, which has two "
            "chunks a rank: set it to 2; schedules with 3: interleaved_1f1b, bfs, izb or "
            "file:PATH",
            twos[i]);
        assert_refused_with(schedule, "--parallel.virtual_stages=3", expected);
        /* Not given, it is 1: the place is that of the schedule. */
        assert_refused_with(schedule, "--train.steps=1", "--parallel.schedule=");
        assert_refused_with(schedule, "--train.steps=1",
                            "virtual_stages: 1 is not legal with parallel.schedule");
    }
}

static void every_schedule_takes_its_chunks(void **state)
{
    static const char *const cases[][2] = {{"gpipe", "1"},
                                           {"1f1b", "1"},
                                           {"interleaved_1f1b", "3"},
                                           {"bfs", "3"},
                                           {"izb", "3"},
                                           {"bfs", "1"},
                                           {"izb", "1"},
                                           {"interleaved_1f1b", "1"},
                                           {"zb_v", "2"},
                                           {"v_half", "2"},
                                           {"v_min", "2"},
                                           {"zb_h1", "1"},
                                           {"zb_h2", "1"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct config *config = NULL;
        struct plan_shape shape;
        char schedule[64];
        char chunks[64];

        (void)snprintf(schedule, sizeof(schedule), "--parallel.schedule=%s", cases[i][0]);
        (void)snprintf(chunks, sizeof(chunks), "--parallel.virtual_stages=%s", cases[i][1]);
        assert_legal(schedule, chunks, &config);
        config_plan_shape(config, &shape);
        assert_string_equal(schedule_text(shape.schedule), cases[i][0]);
        assert_int_equal(shape.virtual_stages, cases[i][1][0] - '0');
        config_destroy(&config);
    }
}

static void extra_micro_batches_in_flight_are_of_1f1b_alone(void **state)
{
    struct config *config = NULL;
    struct plan_shape shape;

    (void)state;
    assert_legal("--parallel.schedule=1f1b", "--parallel.extra_in_flight=2", &config);
    config_plan_shape(config, &shape);
    assert_int_equal(shape.extra_in_flight, 2);
    config_destroy(&config);
    assert_refused_with("--parallel.schedule=gpipe", "--parallel.extra_in_flight=2",
                        "parallel.extra_in_flight: 2, but parallel.schedule gpipe has no such "
                        "freedom: set it to 0; 1f1b has it");
    assert_refused_with("--parallel.schedule=file:a.csv", "--parallel.extra_in_flight=1",
                        "parallel.schedule file has no such freedom");
    assert_refused_with("--parallel.schedule=1f1b", "--parallel.extra_in_flight=-1",
                        "extra_in_flight");
}

static void more_in_flight_than_helps_is_said(void **state)
{
    struct config *config = NULL;
    char text[512] = "";

    (void)state;
    assert_legal("--parallel.pp=3", "--parallel.extra_in_flight=3", &config);
    assert_true(config_note(config, 0, text, sizeof(text)));
    assert_non_null(
        strstr(text, "parallel.extra_in_flight 3 is no more than 2: with parallel.pp 3"));
    config_destroy(&config);
    assert_legal("--parallel.pp=3", "--parallel.extra_in_flight=2", &config);
    assert_false(config_note(config, 0, text, sizeof(text)));
    config_destroy(&config);
}

static void a_plan_from_a_file_has_as_many_chunks_as_it_says(void **state)
{
    struct config *config = NULL;

    (void)state;
    assert_int_equal(config_rig_load(config_rig_legal(), "--parallel.schedule=file:a/plan.csv",
                                     "--parallel.virtual_stages=3", &config),
                     STATUS_OK);
    assert_int_equal(config->parallel.schedule, SCHEDULE_FILE);
    assert_string_equal(config->parallel.schedule_file, "a/plan.csv");
    assert_int_equal(config->parallel.virtual_stages, 3);
    config_destroy(&config);
    /* The last word wins whole. */
    assert_int_equal(config_rig_load(config_rig_legal(), "--parallel.schedule=file:a/plan.csv",
                                     "--parallel.schedule=gpipe", &config),
                     STATUS_OK);
    assert_int_equal(config->parallel.schedule, SCHEDULE_GPIPE);
    assert_string_equal(config->parallel.schedule_file, "");
    config_destroy(&config);
    assert_refused("--parallel.schedule=file:", "v_min, seq1f1b, auto, file:PATH; found file:");
    assert_refused("--parallel.schedule=file", "v_min, seq1f1b, auto, file:PATH; found file");
}

/* 6 layers on 4 ranks of 2 chunks: virtual stages in model order, the last ones empty. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(virtual_stages_are_refused_with_the_schedules_that_have_them),
        cmocka_unit_test(every_schedule_takes_its_chunks),
        cmocka_unit_test(extra_micro_batches_in_flight_are_of_1f1b_alone),
        cmocka_unit_test(more_in_flight_than_helps_is_said),
        cmocka_unit_test(a_plan_from_a_file_has_as_many_chunks_as_it_says),
    };

    return cmocka_run_group_tests_name("config_schedule", tests, config_rig_open, config_rig_close);
}
