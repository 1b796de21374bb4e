/*
 * GATHER and RELEASE: where lowering puts them, what they wait for, what is refused, and that neither
 * a file nor a simulation makes anything else of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/plan_text.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"
#include "tests/scheduler/plan_fixture.h"

static struct plan *gathering(enum schedule schedule, int32_t ranks, int32_t microbatches,
                              int32_t chunks, bool early_send)
{
    struct plan_shape shape = {.schedule = schedule,
                               .ranks = ranks,
                               .microbatches = microbatches,
                               .virtual_stages = chunks,
                               .lane_depth = 2,
                               .early_send = early_send,
                               .reduce = true,
                               .gather = true};
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    assert_int_equal(plan_validate(lowered), STATUS_OK);
    return lowered;
}

static void expect_depends(const struct plan *plan, int32_t rank, int32_t index, int32_t first,
                           int32_t second)
{
    const struct action *action = &plan->lines[rank].actions[index];

    assert_int_equal(action->depends[0], first);
    assert_int_equal(action->depends[1], second);
}

static void each_f_and_i_stands_between_a_gather_and_a_release(void **state)
{
    struct plan *plan = gathering(SCHEDULE_1F1B, 2, 1, 1, true);

    (void)state;
    assert_string_equal(fixture_line(plan, 0),
                        "0GATHER_F0 0F0 0RELEASE_F0 0SEND_F0 0RECV_B0 0GATHER_B0 0B0 0RELEASE_B0 "
                        "REDUCE STEP");
    assert_string_equal(fixture_line(plan, 1),
                        "1RECV_F0 1GATHER_F0 1F0 1RELEASE_F0 1GATHER_B0 1I0 1RELEASE_B0 1SEND_B0 "
                        "1W0 REDUCE STEP");
    expect_depends(plan, 0, 0, ACTION_NONE, ACTION_NONE);
    expect_depends(plan, 0, 1, 0, ACTION_NONE); /* its GATHER */
    expect_depends(plan, 0, 2, 1, ACTION_NONE);
    expect_depends(plan, 0, 5, 2, ACTION_NONE); /* the RELEASE before */
    expect_depends(plan, 1, 2, 0, 1);           /* its message, its GATHER */
    expect_depends(plan, 1, 7, 5, ACTION_NONE); /* the I, and no RELEASE */
    plan_destroy(&plan);
    plan = gathering(SCHEDULE_1F1B, 2, 1, 1, false);
    assert_string_equal(fixture_line(plan, 1),
                        "1RECV_F0 1GATHER_F0 1F0 1RELEASE_F0 1GATHER_B0 1B0 1RELEASE_B0 1SEND_B0 "
                        "REDUCE STEP");
    plan_destroy(&plan);
}

static void chunks_of_a_rank_and_evaluations_gather_too(void **state)
{
    struct plan *plan = gathering(SCHEDULE_INTERLEAVED_1F1B, 1, 1, 2, true);
    struct plan *compute = NULL;
    struct plan *evaluation = NULL;

    (void)state;
    assert_string_equal(fixture_line(plan, 0),
                        "0GATHER_F0 0F0 0RELEASE_F0 1GATHER_F0 1F0 1RELEASE_F0 1GATHER_B0 1B0 "
                        "1RELEASE_B0 0GATHER_B0 0B0 0RELEASE_B0 REDUCE STEP");
    assert_int_equal(plan->lines[0].actions[3].chunk, 1);
    assert_int_equal(plan_generate_evaluation(plan, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &evaluation), STATUS_OK);
    assert_int_equal(plan_validate(evaluation), STATUS_OK);
    assert_string_equal(fixture_line(evaluation, 0),
                        "0GATHER_F0 0F0 0RELEASE_F0 1GATHER_F0 1F0 1RELEASE_F0");
    plan_destroy(&compute);
    plan_destroy(&evaluation);
    plan_destroy(&plan);
}

static void every_schedule_is_legal_with_them(void **state)
{
    static const enum schedule schedules[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B,
                                              SCHEDULE_INTERLEAVED_1F1B, SCHEDULE_FORWARD_ONLY};

    (void)state;
    for (size_t i = 0; i < sizeof(schedules) / sizeof(schedules[0]); i++) {
        bool chunks = i >= 2;

        for (int32_t p = 1; p <= 4; p++) {
            for (int32_t m = 1; m <= 6; m++) {
                struct plan *plan = gathering(schedules[i], p, m, chunks ? 2 : 1, m % 2 == 0);

                plan_destroy(&plan);
            }
        }
    }
}

static struct plan *small(void)
{
    return gathering(SCHEDULE_1F1B, 2, 1, 1, true);
}

/* Rank 1: 1RECV_F0 1GATHER_F0 1F0 1RELEASE_F0 1GATHER_B0 1I0 1RELEASE_B0 1SEND_B0 1W0 … */
static struct action *at(struct plan *plan, int32_t index)
{
    return &plan->lines[1].actions[index];
}

static void one_out_of_place_is_refused(void **state)
{
    struct plan *plan = small();

    (void)state;
    plan->shape.gather = false;
    fixture_refused(plan, "rank 0, action 0 (0GATHER_F0): has no place in this plan");
    plan = small();
    at(plan, 1)->microbatch = 1;
    fixture_refused(plan, "rank 1, action 1 (1GATHER_F1): micro-batch 1 is outside 0 to 0");
    plan = small();
    at(plan, 1)->virtual_stage = 0;
    fixture_refused(plan, "virtual stage 0 is not chunk 0 of this rank");
    plan = small();
    at(plan, 4)->direction = LANE_F;
    fixture_refused(plan, "action 4 (1GATHER_F0): stands beside no F, I or B of its own");
    plan = small();
    at(plan, 6)->direction = LANE_F;
    fixture_refused(plan, "action 5 (1I0): has no RELEASE of its own right behind it");
    plan = small();
    at(plan, 4)->kind = ACTION_RELEASE;
    at(plan, 4)->depends[0] = 2;
    fixture_refused(plan, "action 4 (1RELEASE_B0): stands beside no F, I or B of its own");
    plan = small();
    at(plan, 3)->kind = ACTION_GATHER;
    fixture_refused(plan, "action 2 (1F0): has no RELEASE of its own right behind it");
    plan = small();
    at(plan, 4)->slot = 0;
    fixture_refused(plan, "that this kind of action does not have");
    plan = fixture_lowered(SCHEDULE_1F1B, 2, 1, true);
    plan->shape.gather = true;
    fixture_refused(plan, "rank 0, action 0 (0F0): has no GATHER of its own right before it");
}

static void one_that_waits_for_the_wrong_thing_is_refused(void **state)
{
    struct plan *plan = small();

    (void)state;
    at(plan, 2)->depends[1] = ACTION_NONE;
    fixture_refused(plan, "action 2 (1F0): does not name action 1 (1GATHER_F0)");
    plan = small();
    at(plan, 4)->depends[0] = ACTION_NONE;
    fixture_refused(plan, "action 4 (1GATHER_B0): does not name action 3 (1RELEASE_F0)");
    plan = small();
    at(plan, 6)->depends[0] = ACTION_NONE;
    fixture_refused(plan, "action 6 (1RELEASE_B0): does not name action 5 (1I0)");
    plan = small();
    at(plan, 4)->depends[1] = 0;
    fixture_refused(plan, "may not wait for action 0: only compute and STEP wait for messages");
}

/* A file with them is stripped, and lowered again to the same lines where the job gathers, and without
 * them where it does not. */
static void a_plan_file_gets_them_by_the_job_and_not_by_the_file(void **state)
{
    static const char text[] =
        "0GATHER_F0,0F0,0RELEASE_F0,0SEND_F0,0RECV_B0,0GATHER_B0,0B0,0RELEASE_B0,REDUCE,STEP\n"
        "1RECV_F0,1GATHER_F0,1F0,1RELEASE_F0,1GATHER_B0,1I0,1RELEASE_B0,1SEND_B0,1W0,REDUCE,STEP\n";
    struct plan *generated = small();

    (void)state;
    for (int gathers = 0; gathers < 2; gathers++) {
        struct plan_shape shape = generated->shape;
        struct plan *compute = NULL;
        struct plan *lowered = NULL;

        shape.schedule = SCHEDULE_FILE;
        shape.gather = gathers == 1;
        assert_int_equal(plan_text_parse("text", text, strlen(text), &shape, &compute), STATUS_OK);
        assert_string_equal(fixture_line(compute, 1), "1F0 1I0 1W0");
        assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
        assert_int_equal(plan_validate(lowered), STATUS_OK);
        for (int32_t rank = 0; rank < 2; rank++) {
            bool same = plan_line_hash(lowered, rank) == plan_line_hash(generated, rank);

            assert_int_equal(same, gathers == 1);
        }
        assert_int_equal(strstr(fixture_line(lowered, 1), "GATHER") != NULL, gathers == 1);
        plan_destroy(&compute);
        plan_destroy(&lowered);
    }
    plan_destroy(&generated);
}

static double makespan(const struct plan *plan, double gather)
{
    struct plan_costs costs;
    struct simulation simulation;
    double result = 0.0;

    assert_int_equal(plan_costs_uniform(plan, 4.0, 3.0, 2.0, 0.0, &costs), STATUS_OK);
    costs.gather = gather;
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    result = simulation.makespan;
    simulation_release(&simulation);
    plan_costs_release(&costs);
    return result;
}

/* F 4, I 3, W 2 on one rank and micro-batch: 9, and with 1 a GATHER 11. On two ranks the path is F, F,
 * I, then B: 4 + 4 + 3 + 5 = 16, and of its four gathers the last one comes while the message is
 * waited for. */
static void they_take_no_time_unless_told(void **state)
{
    struct plan *one = gathering(SCHEDULE_1F1B, 1, 1, 1, true);
    struct plan *two = small();
    struct plan *plain = fixture_lowered(SCHEDULE_1F1B, 2, 1, true);

    (void)state;
    assert_true(makespan(one, 0.0) == 9.0);
    assert_true(makespan(one, 1.0) == 11.0);
    assert_true(makespan(two, 0.0) == 16.0);
    assert_true(makespan(two, 0.0) == makespan(plain, 5.0));
    /* Rank 1 has its first layer at 1, long before its message at 5. */
    assert_true(makespan(two, 1.0) == 1.0 + 4.0 + 4.0 + 1.0 + 3.0 + 5.0);
    plan_destroy(&one);
    plan_destroy(&two);
    plan_destroy(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_f_and_i_stands_between_a_gather_and_a_release),
        cmocka_unit_test(chunks_of_a_rank_and_evaluations_gather_too),
        cmocka_unit_test(every_schedule_is_legal_with_them),
        cmocka_unit_test(one_out_of_place_is_refused),
        cmocka_unit_test(one_that_waits_for_the_wrong_thing_is_refused),
        cmocka_unit_test(a_plan_file_gets_them_by_the_job_and_not_by_the_file),
        cmocka_unit_test(they_take_no_time_unless_told),
    };

    return cmocka_run_group_tests_name("gathering", tests, NULL, NULL);
}
