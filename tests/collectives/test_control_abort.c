/*
 * How a job ends before its time: an abort, a rank that leaves, a rank that hangs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/control.h"
#include "control_rig.h"

static enum status abort_from_turns(struct rig_rank *self)
{
    TRY(rig_barrier(self, 1));
    if (self->rank == self->rig->turns) {
        control_abort(self->control, "disk full while saving step 4");
        control_abort(self->control, "a second cause");
    }
    return rig_barrier(self, 2);
}

static void test_an_abort_of_any_rank_reaches_all_with_its_cause(void **state)
{
    (void)state;
    for (int culprit = 0; culprit < 4; culprit++) {
        struct control_rig rig;

        rig_init(&rig, 4);
        rig.turns = culprit;
        rig_run(&rig, abort_from_turns);
        for (int32_t rank = 0; rank < 4; rank++) {
            const struct rig_rank *self = &rig.ranks[rank];

            assert_int_equal(self->ended, rank == culprit ? STATUS_ERR_CANCELLED : STATUS_ERR_PEER);
            assert_string_equal(self->ended_text, "disk full while saving step 4");
            assert_string_equal(self->cause, "disk full while saving step 4");
            assert_int_equal(self->cause_rank, culprit);
            assert_int_equal(self->aborts, 1);
            assert_true(cancel_requested(&self->cancel));
            assert_int_equal(self->closed, STATUS_OK);
        }
        rig_release(&rig);
    }
}

static enum status abort_alone(struct rig_rank *self)
{
    control_abort(self->control, "alone");
    return rig_barrier(self, 1);
}

static void test_a_world_of_one_aborts_alike(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 1);
    rig_run(&rig, abort_alone);
    assert_int_equal(rig.ranks[0].ended, STATUS_ERR_CANCELLED);
    assert_string_equal(rig.ranks[0].cause, "alone");
    assert_int_equal(rig.ranks[0].aborts, 1);
    rig_release(&rig);
}

static enum status leave_early(struct rig_rank *self)
{
    TRY(rig_barrier(self, 1));
    return self->rank == 1 ? STATUS_OK : rig_barrier(self, 2);
}

static void test_a_rank_that_leaves_while_others_wait_is_named(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig_run(&rig, leave_early);
    assert_int_equal(rig.ranks[1].closed, STATUS_OK);
    assert_int_equal(rig.ranks[0].ended, STATUS_ERR_PEER);
    assert_int_equal(rig.ranks[2].ended, STATUS_ERR_PEER);
    assert_non_null(strstr(rig.ranks[2].ended_text, "rank 1"));
    assert_non_null(strstr(rig.ranks[2].ended_text, "BARRIER 2"));
    rig_release(&rig);
}

/* ---- stall ---- */

static void describe_step(void *context, int32_t rank, const struct control_progress *progress,
                          char *text, size_t text_bytes)
{
    (void)context;
    (void)snprintf(text, text_bytes, "stage %d, step %d, action %d (1F3)", (int)rank,
                   (int)progress->step, (int)progress->action);
}

/* Rank 2 hangs in action 17; the others wait for it, each in its own way, and for longer. */
static enum status hang_in_action(struct rig_rank *self)
{
    struct control_progress progress = {.step = 5, .phase = 1, .action = self->rank};

    control_progress(self->control, &progress);
    control_waits(self->control, self->rank == 1);
    TRY(rig_barrier(self, 1));
    if (self->rank == 0) {
        return rig_barrier(self, 2);
    }
    if (self->rank == 2) {
        progress.action = 17;
        control_progress(self->control, &progress);
    }
    while (!cancel_requested(&self->cancel)) {
        clock_sleep_ns(CLOCK_MS);
    }
    return STATUS_OK;
}

static void test_a_rank_that_hangs_is_named_with_what_it_was_doing(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig.ranks[0].config.stall_after_s = 1.5;
    rig.ranks[0].config.describe = describe_step;
    rig_run(&rig, hang_in_action);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(rig.ranks[rank].cause_rank, 2);
        assert_non_null(strstr(rig.ranks[rank].cause, "hangs"));
        assert_non_null(strstr(rig.ranks[rank].cause, "stage 2, step 5, action 17 (1F3)"));
    }
    assert_int_equal(rig.ranks[0].ended, STATUS_ERR_PEER);
    rig_release(&rig);
}

/* The others are in a round for more than twice the limit while rank 1 works on. */
static enum status wait_for_a_slow_rank(struct rig_rank *self)
{
    struct control_progress progress = {.step = 1, .action = 0};
    int64_t until_ns = clock_now_ns() + 3600 * CLOCK_MS;

    while (self->rank == 1 && clock_now_ns() < until_ns) {
        progress.action++;
        control_progress(self->control, &progress);
        clock_sleep_ns(5 * CLOCK_MS);
    }
    return rig_barrier(self, 1);
}

static void test_a_rank_that_waits_in_a_round_does_not_hang(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig.ranks[0].config.stall_after_s = 1.5;
    rig_run(&rig, wait_for_a_slow_rank);
    rig_assert_all_well(&rig);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_abort_of_any_rank_reaches_all_with_its_cause),
        cmocka_unit_test(test_a_world_of_one_aborts_alike),
        cmocka_unit_test(test_a_rank_that_leaves_while_others_wait_is_named),
        cmocka_unit_test(test_a_rank_that_hangs_is_named_with_what_it_was_doing),
        cmocka_unit_test(test_a_rank_that_waits_in_a_round_does_not_hang),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
