/* The executor over whole pipelines of fake workers: what the plan promises holds when every
 * action ends late and in random order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler/executor.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "tests/scheduler/fake_worker.h"
#include "tests/scheduler/pipeline_run.h"

static struct plan *make_chunks(enum schedule schedule, int32_t p, int32_t m, int32_t v,
                                bool early_send)
{
    struct plan_shape shape = {.schedule = schedule,
                               .ranks = p,
                               .microbatches = m,
                               .virtual_stages = v,
                               .lane_depth = 1 + m % 2,
                               .early_send = early_send,
                               .embedding_sync = m % 3 != 0,
                               .reduce = m % 4 == 0,
                               .gather = m % 3 == 1};
    struct plan *compute = NULL;
    struct plan *lowered = NULL;

    assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

static struct plan *make_plan(enum schedule schedule, int32_t p, int32_t m, bool early_send)
{
    return make_chunks(schedule, p, m, 1, early_send);
}

static void assert_right(const struct plan *plan, uint64_t seed, bool issue_waits)
{
    struct fake_config config = {.seed = seed, .issue_waits = issue_waits};
    struct outcome outcome;

    pipeline_run(plan, config, &outcome);
    if (outcome.verdict != FAKE_RIGHT) {
        fail_msg("%s p=%d m=%d v=%d early=%d waits=%d seed=%d: verdict %d at rank %d action %d",
                 schedule_text(plan->shape.schedule), (int)plan->shape.ranks,
                 (int)plan->shape.microbatches, (int)plan->shape.virtual_stages,
                 (int)plan->shape.early_send, (int)issue_waits, (int)seed, (int)outcome.verdict,
                 (int)outcome.place.rank, (int)outcome.place.index);
    }
    assert_int_equal(outcome.allocations, 0);
}

static void run_grid(enum schedule schedule, bool early_send)
{
    for (int32_t p = 1; p <= 5; p++) {
        for (int32_t m = 1; m <= 9; m++) {
            struct plan *plan = make_plan(schedule, p, m, early_send);

            for (uint64_t seed = 0; seed < 4; seed++) {
                assert_right(plan, seed, false);
                assert_right(plan, seed, true);
            }
            plan_destroy(&plan);
        }
    }
}

static void gpipe_gives_the_tokens_of_one_process(void **state)
{
    (void)state;
    run_grid(SCHEDULE_GPIPE, false);
}

static void gpipe_with_early_send_gives_the_tokens_of_one_process(void **state)
{
    (void)state;
    run_grid(SCHEDULE_GPIPE, true);
}

static void one_f_one_b_gives_the_tokens_of_one_process(void **state)
{
    (void)state;
    run_grid(SCHEDULE_1F1B, false);
}

static void one_f_one_b_with_early_send_gives_the_tokens_of_one_process(void **state)
{
    (void)state;
    run_grid(SCHEDULE_1F1B, true);
}

static void forward_only_gives_the_tokens_of_one_process(void **state)
{
    (void)state;
    run_grid(SCHEDULE_FORWARD_ONLY, false);
}

/* One rank, whose chunks hand over to each other; two, whose neighbours in both directions are the
 * same rank; and more. */
static void run_chunks(enum schedule schedule, int32_t v, bool early_send)
{
    for (int32_t p = 1; p <= 4; p++) {
        for (int32_t m = 1; m <= 8; m++) {
            struct plan *plan = make_chunks(schedule, p, m, v, early_send);

            for (uint64_t seed = 0; seed < 3; seed++) {
                assert_right(plan, seed, false);
                assert_right(plan, seed, true);
            }
            plan_destroy(&plan);
        }
    }
}

static void interleaved_1f1b_gives_the_tokens_of_one_process(void **state)
{
    (void)state;
    run_chunks(SCHEDULE_INTERLEAVED_1F1B, 2, false);
    run_chunks(SCHEDULE_INTERLEAVED_1F1B, 3, true);
}

static void forward_only_over_chunks_gives_the_tokens_of_one_process(void **state)
{
    (void)state;
    run_chunks(SCHEDULE_FORWARD_ONLY, 2, false);
}

static int32_t find_action(const struct plan *plan, int32_t rank, enum action_kind kind, int nth)
{
    const struct plan_line *line = &plan->lines[rank];

    for (int32_t index = 0; index < line->count; index++) {
        if (line->actions[index].kind == kind && nth-- == 0) {
            return index;
        }
    }
    fail_msg("the line has no such action");
    return -1;
}

static void assert_named(const struct plan *plan, const struct outcome *outcome, int32_t rank,
                         int32_t index)
{
    char text[32];
    char expected[64];

    (void)action_print(&plan->lines[rank].actions[index], text, sizeof(text));
    (void)snprintf(expected, sizeof(expected), "action %d (%s): ", (int)index, text);
    assert_int_equal(outcome->verdict, FAKE_FAILED);
    assert_int_equal(outcome->statuses[rank], STATUS_ERR_NUMERIC);
    assert_int_equal(strncmp(outcome->messages[rank], expected, strlen(expected)), 0);
    assert_non_null(strstr(outcome->messages[rank], "the fault of this test"));
}

static void an_action_that_cannot_be_issued_is_named(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_1F1B, 3, 5, true);
    struct outcome outcome;

    (void)state;
    for (int32_t index = 0; index < plan->lines[1].count; index += 3) {
        struct fake_config config = {.seed = (uint64_t)index,
                                     .fault = FAKE_FAULT_ISSUE,
                                     .fault_rank = 1,
                                     .fault_index = index};

        pipeline_run(plan, config, &outcome);
        assert_named(plan, &outcome, 1, index);
    }
    plan_destroy(&plan);
}

static void an_action_that_ends_badly_is_named(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_1F1B, 3, 5, true);
    struct outcome outcome;

    (void)state;
    for (int32_t index = 0; index < plan->lines[1].count; index += 3) {
        struct fake_config config = {.seed = (uint64_t)index,
                                     .fault = FAKE_FAULT_END,
                                     .fault_rank = 1,
                                     .fault_index = index};

        pipeline_run(plan, config, &outcome);
        assert_named(plan, &outcome, 1, index);
    }
    plan_destroy(&plan);
}

static void a_rank_that_fails_frees_all_others(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_1F1B, 4, 6, true);
    struct fake_config config = {.seed = 3,
                                 .issue_waits = true,
                                 .fault = FAKE_FAULT_ISSUE,
                                 .fault_rank = 3,
                                 .fault_index = 1};
    struct outcome outcome;

    (void)state;
    pipeline_run(plan, config, &outcome);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(outcome.statuses[rank], STATUS_ERR_CANCELLED);
    }
    plan_destroy(&plan);
}

static void cancel_ends_every_wait(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct plan *plan = make_plan(SCHEDULE_1F1B, 4, 6, true);
        struct fake_config config = {.seed = 5,
                                     .issue_waits = waits == 1,
                                     .cancel_when_idle = true,
                                     .fault = FAKE_FAULT_STALL,
                                     .fault_rank = 2,
                                     .fault_index = find_action(plan, 2, ACTION_I, 1)};
        struct outcome outcome;

        pipeline_run(plan, config, &outcome);
        for (int32_t rank = 0; rank < 4; rank++) {
            assert_int_equal(outcome.statuses[rank], STATUS_ERR_CANCELLED);
        }
        plan_destroy(&plan);
    }
}

static void a_cancelled_executor_issues_nothing(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_GPIPE, 1, 2, false);
    struct fake_config config = {.deadline_ns = clock_deadline(PIPELINE_SECONDS)};
    struct fake_world *world = NULL;
    struct executor executor;

    (void)state;
    assert_int_equal(fake_world_create(plan, &config, &world), STATUS_OK);
    assert_int_equal(executor_init(&executor, plan->lines[0].count), STATUS_OK);
    cancel_request(fake_world_cancel(world));
    assert_int_equal(executor_run(&executor, &plan->lines[0], fake_world_worker(world, 0),
                                  fake_world_cancel(world), clock_deadline(PIPELINE_SECONDS)),
                     STATUS_ERR_CANCELLED);
    assert_int_equal(executor_progress(&executor), 0);
    assert_int_equal(fake_world_totals(world, 0)->forward, 0);
    executor_release(&executor);
    executor_release(&executor);
    fake_world_destroy(&world);
    plan_destroy(&plan);
}

static void an_action_that_never_ends_is_a_hang(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_1F1B, 3, 4, true);
    struct fake_config config = {.seed = 9,
                                 .fault = FAKE_FAULT_STALL,
                                 .fault_rank = 1,
                                 .fault_index = find_action(plan, 1, ACTION_F, 2)};
    struct outcome outcome;

    (void)state;
    pipeline_run(plan, config, &outcome);
    assert_int_equal(outcome.verdict, FAKE_HANG);
    plan_destroy(&plan);
}

static void a_message_that_is_never_sent_is_a_hang(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_1F1B, 2, 4, true);
    struct fake_config config = {.seed = 2};
    struct outcome outcome;

    (void)state;
    plan->lines[0].actions[find_action(plan, 0, ACTION_SEND, 1)].sequence = 77;
    pipeline_run(plan, config, &outcome);
    assert_int_equal(outcome.verdict, FAKE_HANG);
    plan_destroy(&plan);
}

/* How many of 20 seeds end with `verdict`. */
static int count_verdicts(const struct plan *plan, enum fake_verdict verdict)
{
    int found = 0;

    for (uint64_t seed = 0; seed < 20; seed++) {
        struct fake_config config = {.seed = seed};
        struct outcome outcome;

        pipeline_run(plan, config, &outcome);
        found += outcome.verdict == verdict ? 1 : 0;
    }
    return found;
}

static void a_forward_that_does_not_wait_for_its_message_reads_poison(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_1F1B, 2, 4, true);
    struct fake_config config = {.fault = FAKE_FAULT_STALL,
                                 .fault_index = find_action(plan, 0, ACTION_SEND, 0)};
    struct outcome outcome;

    (void)state;
    pipeline_run(plan, config, &outcome);
    assert_int_equal(outcome.verdict, FAKE_HANG);
    plan->lines[1].actions[find_action(plan, 1, ACTION_F, 0)].depends[0] = ACTION_NONE;
    pipeline_run(plan, config, &outcome);
    assert_int_equal(outcome.verdict, FAKE_POISONED);
    assert_int_equal(outcome.place.rank, 1);
    assert_int_equal(outcome.place.index, find_action(plan, 1, ACTION_F, 0));
    plan_destroy(&plan);
}

static void swapped_stashes_make_a_wrong_token(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_GPIPE, 2, 4, false);
    struct action *first = &plan->lines[0].actions[find_action(plan, 0, ACTION_F, 0)];
    struct action *second = &plan->lines[0].actions[find_action(plan, 0, ACTION_F, 1)];
    int32_t slot = first->slot;

    (void)state;
    first->slot = second->slot;
    second->slot = slot;
    assert_int_equal(count_verdicts(plan, FAKE_WRONG), 20);
    plan_destroy(&plan);
}

/* Both micro-batches of chunk 0 into one landing buffer of chunk 1. */
static void a_buffer_between_chunks_that_is_still_read_is_noticed(void **state)
{
    struct plan *plan = make_chunks(SCHEDULE_FORWARD_ONLY, 1, 2, 2, false);
    struct plan_line *line = &plan->lines[0];
    struct action held = line->actions[1];

    (void)state;
    line->actions[1] = line->actions[2];
    line->actions[2] = held;
    line->actions[2].depends[0] = 0;
    line->actions[3].depends[0] = 1;
    assert_int_equal(count_verdicts(plan, FAKE_POISONED), 20);
    plan_destroy(&plan);
}

static void an_out_buffer_that_is_not_waited_for_is_noticed(void **state)
{
    struct plan *plan = make_plan(SCHEDULE_GPIPE, 2, 6, false);

    (void)state;
    for (int nth = 1; nth < 6; nth++) {
        plan->lines[0].actions[find_action(plan, 0, ACTION_F, nth)].depends[0] = ACTION_NONE;
    }
    assert_true(count_verdicts(plan, FAKE_POISONED) + count_verdicts(plan, FAKE_WRONG) > 0);
    plan_destroy(&plan);
}

/* Layers that are gathered too early go where the action before still reads, and an action that does
 * not wait for its own reads what is not there. */
static void a_gather_that_is_not_waited_for_is_noticed(void **state)
{
    static const enum action_kind kinds[] = {ACTION_GATHER, ACTION_F};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan *plan = make_plan(SCHEDULE_GPIPE, 1, 4, false);
        struct plan_line *line = &plan->lines[0];

        for (int32_t index = 0; index < line->count; index++) {
            if (line->actions[index].kind == kinds[i]) {
                line->actions[index].depends[0] = ACTION_NONE;
            }
        }
        assert_true(count_verdicts(plan, FAKE_WRONG) > 0);
        plan_destroy(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpipe_gives_the_tokens_of_one_process),
        cmocka_unit_test(gpipe_with_early_send_gives_the_tokens_of_one_process),
        cmocka_unit_test(one_f_one_b_gives_the_tokens_of_one_process),
        cmocka_unit_test(one_f_one_b_with_early_send_gives_the_tokens_of_one_process),
        cmocka_unit_test(forward_only_gives_the_tokens_of_one_process),
        cmocka_unit_test(interleaved_1f1b_gives_the_tokens_of_one_process),
        cmocka_unit_test(forward_only_over_chunks_gives_the_tokens_of_one_process),
        cmocka_unit_test(an_action_that_cannot_be_issued_is_named),
        cmocka_unit_test(an_action_that_ends_badly_is_named),
        cmocka_unit_test(a_rank_that_fails_frees_all_others),
        cmocka_unit_test(cancel_ends_every_wait),
        cmocka_unit_test(a_cancelled_executor_issues_nothing),
        cmocka_unit_test(an_action_that_never_ends_is_a_hang),
        cmocka_unit_test(a_message_that_is_never_sent_is_a_hang),
        cmocka_unit_test(a_forward_that_does_not_wait_for_its_message_reads_poison),
        cmocka_unit_test(swapped_stashes_make_a_wrong_token),
        cmocka_unit_test(a_buffer_between_chunks_that_is_still_read_is_noticed),
        cmocka_unit_test(an_out_buffer_that_is_not_waited_for_is_noticed),
        cmocka_unit_test(a_gather_that_is_not_waited_for_is_noticed),
    };

    return cmocka_run_group_tests_name("executor", tests, NULL, NULL);
}
