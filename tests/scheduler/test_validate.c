#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "plan_mutation.h"
#include "scheduler/depth.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/validate.h"

/* Lowers plain text, which is the way to a plan that is wrong in its orders. */
static struct plan *lower_text(const char *text)
{
    struct plan *compute = fixture_text(text);
    struct plan *lowered = NULL;

    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

static struct plan *example(void)
{
    return fixture_lowered(SCHEDULE_1F1B, 4, 8, true);
}

static struct action *action_of(struct plan *plan, int32_t rank, const char *text)
{
    int32_t i = fixture_find(plan, rank, text);

    assert_true(i >= 0);
    return &plan->lines[rank].actions[i];
}

static void expect_accepted(enum schedule schedule, int32_t p, int32_t m, bool early)
{
    struct plan *plan =
        fixture_chunks(schedule, p, m, schedule_takes_chunks(schedule, 1) ? 1 : 2, early);
    int32_t depth = 0;

    assert_int_equal(plan_validate(plan), STATUS_OK);
    assert_int_equal(plan_min_depth(plan, &depth), STATUS_OK);
    assert_int_equal(depth, 1);
    plan_destroy(&plan);
}

static void every_generated_plan_is_accepted(void **state)
{
    int32_t schedule;
    int32_t p;
    int32_t m;

    (void)state;
    for (schedule = 0; schedule < SCHEDULE_FILE; schedule++) {
        for (p = 1; p <= 8; p++) {
            for (m = 1; m <= 17; m++) {
                expect_accepted((enum schedule)schedule, p, m, false);
                expect_accepted((enum schedule)schedule, p, m, true);
            }
        }
    }
}

static void drop_and_repeat_each(int32_t p, int32_t m, int32_t v)
{
    struct plan *plan = fixture_reduced(p, m, v);
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < p; rank++) {
        for (i = 0; i < plan->lines[rank].count; i++) {
            struct plan *mutant = fixture_reduced(p, m, v);

            mutation_drop(mutant, rank, i);
            fixture_refused(mutant, "plan refused: rank");
            mutant = fixture_reduced(p, m, v);
            mutation_duplicate(mutant, rank, i);
            fixture_refused(mutant, "plan refused: rank");
        }
    }
    plan_destroy(&plan);
}

/* Dropping any single action, or repeating any, must be noticed. */
static void a_dropped_or_repeated_action_is_refused_wherever_it_stood(void **state)
{
    (void)state;
    drop_and_repeat_each(3, 4, 1);
    drop_and_repeat_each(1, 3, 2);
    drop_and_repeat_each(2, 3, 2);
}

static void a_missing_action_is_named(void **state)
{
    struct plan *plan = example();

    (void)state;
    mutation_drop(plan, 2, fixture_find(plan, 2, "2W3"));
    fixture_refused(plan, "rank 2 has no B or W of micro-batch 3 on virtual stage 2");
    plan = example();
    mutation_drop(plan, 1, fixture_find(plan, 1, "1RECV_F7"));
    fixture_refused(plan, "rank 1 has no RECV_F of micro-batch 7");
    plan = example();
    mutation_drop(plan, 3, fixture_find(plan, 3, "STEP"));
    fixture_refused(plan, "rank 3 does not end with STEP");
    plan = example();
    mutation_drop(plan, 0, fixture_find(plan, 0, "SYNC"));
    fixture_refused(plan, "rank 0 has no SYNC");
}

static void a_repeated_action_is_named(void **state)
{
    struct plan *plan = example();
    int32_t at = fixture_find(plan, 1, "1F2");

    (void)state;
    mutation_duplicate(plan, 1, at);
    fixture_refused(plan, "(1F2): repeats action");
    plan = example();
    mutation_duplicate(plan, 3, fixture_find(plan, 3, "SYNC"));
    fixture_refused(plan, "(SYNC): repeats action");
}

static void an_action_before_what_it_needs_is_refused(void **state)
{
    struct plan *plan = example();

    (void)state;
    mutation_swap(plan, 1, fixture_find(plan, 1, "1RECV_F0"), fixture_find(plan, 1, "1F0"));
    fixture_refused(plan, "does not point to an earlier action");
    plan = example();
    mutation_swap(plan, 2, fixture_find(plan, 2, "2I1"), fixture_find(plan, 2, "2W1"));
    fixture_refused(plan, "does not point to an earlier action");
}

static void a_dependency_that_is_left_out_is_refused(void **state)
{
    struct plan *plan = example();

    (void)state;
    action_of(plan, 2, "2W1")->depends[0] = ACTION_NONE;
    fixture_refused(plan, "(2W1): does not name action");
    plan = example();
    action_of(plan, 2, "2F1")->depends[1] = ACTION_NONE;
    fixture_refused(plan, "(2F1): does not wait for action");
    plan = example();
    action_of(plan, 0, "STEP")->depends[0] = ACTION_NONE;
    fixture_refused(plan, "(STEP): does not name action");
    plan = example();
    action_of(plan, 3, "SYNC")->depends[0] = ACTION_NONE;
    fixture_refused(plan, "(SYNC): does not name action");
    plan = example();
    action_of(plan, 3, "SYNC")->depends[0] = 9999;
    fixture_refused(plan, "does not point to an earlier action");
}

static void lanes_that_disagree_at_their_ends_are_refused(void **state)
{
    struct plan *plan = lower_text("0F0 0F1 0B0 0B1\n1F1 1F0 1B0 1B1\n");

    (void)state;
    fixture_refused(plan, "(1RECV_F0): is message 1 of its lane here, but message 0 at rank 0");
    plan = example();
    action_of(plan, 1, "1SEND_F3")->sequence = 4;
    fixture_refused(plan, "(1SEND_F3): is numbered message 4 of its lane, but is the 3-th here");
}

static void a_retagged_message_is_refused(void **state)
{
    struct plan *plan = example();

    (void)state;
    action_of(plan, 1, "1SEND_F3")->microbatch = 4;
    fixture_refused(plan, "repeats action");
    plan = example();
    action_of(plan, 1, "1SEND_F3")->direction = LANE_B;
    fixture_refused(plan, "(1SEND_B3): peer is rank 2, expected rank 0");
    plan = example();
    action_of(plan, 1, "1SEND_F3")->peer = 3;
    fixture_refused(plan, "(1SEND_F3): peer is rank 3, expected rank 2");
    plan = example();
    action_of(plan, 1, "1F3")->virtual_stage = 2;
    fixture_refused(plan, "(2F3): virtual stage 2 is not chunk 0 of this rank");
    plan = example();
    action_of(plan, 1, "1F3")->microbatch = 8;
    fixture_refused(plan, "(1F8): micro-batch 8 is outside 0 to 7");
}

static void a_wrong_slot_gradient_set_or_landing_buffer_is_refused(void **state)
{
    struct plan *plan = example();

    (void)state;
    action_of(plan, 1, "1F1")->slot = action_of(plan, 1, "1F0")->slot;
    fixture_refused(plan, "(1F1): takes slot 0, which micro-batch 0 still holds");
    plan = example();
    action_of(plan, 1, "1I1")->slot = action_of(plan, 1, "1F2")->slot;
    fixture_refused(plan, "(1I1): uses slot 2, which its micro-batch does not hold");
    plan = example();
    action_of(plan, 1, "1F1")->slot = 3;
    fixture_refused(plan, "(1F1): slot 3 is outside 0 to 2");
    plan = example();
    action_of(plan, 1, "1W1")->gradient = 1;
    fixture_refused(plan, "(1W1): uses gradient set 1");
    plan = example();
    action_of(plan, 1, "1SEND_F5")->landing = 2;
    fixture_refused(plan, "(1SEND_F5): landing buffer 2, expected 1 in turn");
    plan = example();
    action_of(plan, 2, "2W5")->landing = 0;
    fixture_refused(plan, "(2W5): landing buffer 0, expected 2 in turn");
}

/* Micro-batches that ascend in one order and descend in another keep the lanes in step, so that
 * nothing but the order of accumulation is wrong. */
static void accumulation_out_of_order_is_refused(void **state)
{
    (void)state;
    fixture_refused(lower_text("0F0 0F1 0B1 0B0\n1F0 1F1 1B1 1B0\n"),
                    "(0B0): adds to gradients after micro-batch 1");
    fixture_refused(lower_text("0F0 0F1 0I0 0I1 0W1 0W0\n"),
                    "(0W0): adds to gradients after micro-batch 1");
    fixture_refused(lower_text("0F1 0F0 0B0 0B1\n1F1 1F0 1B0 1B1\n"),
                    "(1F0): adds to gradients after micro-batch 1");
}

/* Each chunk accumulates for itself: their micro-batches may mix, and each must ascend. */
static void accumulation_ascends_per_chunk(void **state)
{
    struct plan *plan = lower_text("0F0 1F0 1B0 0F1 1F1 1B1 0B0 0B1\n");

    (void)state;
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
    fixture_refused(lower_text("0F0 1F0 1B0 0F1 1F1 1B1 0B1 0B0\n"),
                    "action 7 (0B0): adds to gradients after micro-batch 1");
    fixture_refused(lower_text("0F0 0F1 1F1 1F0 1B0 0B0 1B1 0B1\n"),
                    "action 3 (1F0): adds to gradients after micro-batch 1");
}

static void step_and_sync_out_of_place_are_refused(void **state)
{
    struct plan *plan = example();

    (void)state;
    mutation_swap(plan, 2, plan->lines[2].count - 1, plan->lines[2].count - 2);
    fixture_refused(plan, "(STEP): is not the last action of its rank");
    plan = example();
    plan->shape.embedding_sync = false;
    fixture_refused(plan, "(SYNC): this rank has no part in an embedding sync");
    plan = example();
    mutation_swap(plan, 3, fixture_find(plan, 3, "SYNC"), fixture_find(plan, 3, "3F3"));
    fixture_refused(plan, "plan refused: rank 3");
}

/* Gives rank `rank` another number of landing buffers for activations, numbered in turn. */
static void set_landings(struct plan *plan, int32_t rank, int32_t landings)
{
    int32_t r;
    int32_t i;

    plan->buffers[rank].landing_f = landings;
    for (r = rank - 1; r <= rank; r++) {
        for (i = 0; i < plan->lines[r].count; i++) {
            struct action *action = &plan->lines[r].actions[i];
            bool sends = r == rank - 1 && action->kind == ACTION_SEND;
            bool lands = r == rank && (action->kind == ACTION_RECV || action->kind == ACTION_F);

            if ((sends || lands) && action->direction == LANE_F) {
                action->landing = action->microbatch % landings;
            }
        }
    }
}

/* Rank 1 of four begins three forwards before its first backward gives a landing buffer back. */
static void too_few_landing_buffers_are_refused_with_the_cycle(void **state)
{
    struct plan *plan = example();

    (void)state;
    set_landings(plan, 1, 3);
    assert_int_equal(plan_validate(plan), STATUS_OK);
    set_landings(plan, 1, 2);
    fixture_refused(plan, "-(landing)-> rank 1");
    plan = example();
    set_landings(plan, 1, 2);
    fixture_refused(plan, "deadlock at lane_depth 2, but not at 3, cycle of ");
    plan = example();
    plan->buffers[1].landing_f = 0;
    fixture_refused(plan, "buffer counts");
}

static void orders_that_wait_for_each_other_are_refused_with_the_cycle(void **state)
{
    (void)state;
    fixture_refused(lower_text("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n"),
                    "deadlock at any lane_depth, cycle of 8: ");
}

static void expect_verdict(const struct plan *plan, enum status expected)
{
    assert_int_equal(plan_validate(plan), expected);
}

static void change_numbers(struct plan *plan, struct action *action)
{
    const struct action old = *action;
    int32_t *fields[] = {&action->virtual_stage, &action->microbatch, &action->peer,
                         &action->sequence,      &action->slot,       &action->gradient,
                         &action->landing,       &action->target,     &action->depends[0],
                         &action->depends[1],    &action->depends[2]};
    size_t f;
    int32_t delta;

    for (f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
        bool dependency = fields[f] >= action->depends;

        for (delta = -3; delta <= 3; delta++) {
            if (delta != 0 && (!dependency || *fields[f] != ACTION_NONE)) {
                *fields[f] += delta;
                expect_verdict(plan, STATUS_ERR_REFUSED);
                *action = old;
            }
        }
    }
}

static void change_bytes(struct plan *plan, struct action *action)
{
    const struct action old = *action;
    int kind;

    for (kind = 0; kind <= ACTION_KINDS; kind++) {
        action->kind = (uint8_t)kind;
        expect_verdict(plan, kind == old.kind ? STATUS_OK : STATUS_ERR_REFUSED);
    }
    *action = old;
    action->direction ^= 1;
    expect_verdict(plan, STATUS_ERR_REFUSED);
    action->direction = 7;
    expect_verdict(plan, STATUS_ERR_REFUSED);
    *action = old;
    action->chunk ^= 1;
    expect_verdict(plan, STATUS_ERR_REFUSED);
    *action = old;
}

/* Any other value in any field of any action. A dependency more than needed slows nothing down
 * and is not refused, so that only those that are there are changed. */
static void look_at_every_field(struct plan *plan)
{
    int saved = fixture_mute();
    int32_t rank;
    int32_t i;

    for (rank = 0; rank < plan->shape.ranks; rank++) {
        for (i = 0; i < plan->lines[rank].count; i++) {
            change_numbers(plan, &plan->lines[rank].actions[i]);
            change_bytes(plan, &plan->lines[rank].actions[i]);
        }
    }
    fixture_unmute(saved);
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
}

static void every_field_of_every_action_is_looked_at(void **state)
{
    (void)state;
    look_at_every_field(fixture_lowered(SCHEDULE_1F1B, 3, 4, true));
    look_at_every_field(fixture_reduced(1, 3, 2));
    look_at_every_field(fixture_reduced(2, 3, 2));
    look_at_every_field(fixture_chunks(SCHEDULE_FORWARD_ONLY, 1, 2, 3, true));
}

static void a_plan_that_is_not_lowered_is_refused(void **state)
{
    int32_t depth = 0;
    struct plan *plan = fixture_compute(SCHEDULE_1F1B, 2, 2);
    int saved = fixture_mute();

    (void)state;
    assert_int_equal(plan_min_depth(plan, &depth), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
    fixture_refused(plan, "not lowered");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_generated_plan_is_accepted),
        cmocka_unit_test(a_dropped_or_repeated_action_is_refused_wherever_it_stood),
        cmocka_unit_test(a_missing_action_is_named),
        cmocka_unit_test(a_repeated_action_is_named),
        cmocka_unit_test(an_action_before_what_it_needs_is_refused),
        cmocka_unit_test(a_dependency_that_is_left_out_is_refused),
        cmocka_unit_test(lanes_that_disagree_at_their_ends_are_refused),
        cmocka_unit_test(a_retagged_message_is_refused),
        cmocka_unit_test(a_wrong_slot_gradient_set_or_landing_buffer_is_refused),
        cmocka_unit_test(accumulation_out_of_order_is_refused),
        cmocka_unit_test(accumulation_ascends_per_chunk),
        cmocka_unit_test(step_and_sync_out_of_place_are_refused),
        cmocka_unit_test(too_few_landing_buffers_are_refused_with_the_cycle),
        cmocka_unit_test(orders_that_wait_for_each_other_are_refused_with_the_cycle),
        cmocka_unit_test(every_field_of_every_action_is_looked_at),
        cmocka_unit_test(a_plan_that_is_not_lowered_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
