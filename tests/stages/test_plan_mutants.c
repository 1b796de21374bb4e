/*
 * What plan_validate() says of a plan is what happens: plans with one thing changed at random, each
 * run on real lanes in many interleavings (mutant.h, mutant_world.h, mutant_run.h).
 *
 *   test_plan_mutants [FIRST [COUNT]]     other mutants than the usual ones, or one alone
 *
 * Accepted: every run must be right. Refused: some run must show a fault of a kind that fits the
 * reason, or the refusal has an excuse (mutant_verdict.h) and is counted as one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/lower.h"
#include "tests/scheduler/plan_fixture.h"
#include "tests/stages/landing.h"
#include "tests/stages/mutant.h"
#include "tests/stages/mutant_run.h"
#include "tests/stages/mutant_verdict.h"
#include "tests/stages/mutant_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MUTANTS 1000
#else
#define MUTANTS 10000
#endif

#define RUNS_ACCEPTED 10
#define RUNS_EXCUSED  20
#define RUNS_REFUSED  300 /* most faults show in the first run, the rarest within 30 */

/* Which mutants. */
struct choice {
    uint64_t first;
    uint64_t count;
    bool usual;
};

/* What came of all mutants. */
struct tally {
    int32_t mutants;
    int32_t outcomes[REASONS][OUTCOMES]; /* by the first fault that showed */
    int32_t accepted[MUTATION_KINDS];
    int32_t shown[MUTATION_KINDS];
    int32_t excused[MUTATION_KINDS];
    int32_t excuses[EXCUSES];
};

static struct mutant_world world;

/* Faults by which a reason may show. The validator names the first thing that it finds wrong, a run
 * the first that happens: where an order is wrong, much can be. */
static const uint32_t fitting[REASONS] = {
    [REASON_ACCEPTED] = 1U << OUTCOME_RIGHT,
    [REASON_FORM] = UINT32_MAX ^ 1U << OUTCOME_LEFT,
    [REASON_COMPLETE] = UINT32_MAX,
    [REASON_ORDER] =
        1U << OUTCOME_HANG | 1U << OUTCOME_WRONG | 1U << OUTCOME_POISONED | 1U << OUTCOME_SUM,
    [REASON_WAITS] = UINT32_MAX ^ 1U << OUTCOME_LEFT,
    [REASON_TAGS] =
        1U << OUTCOME_HANG | 1U << OUTCOME_WRONG | 1U << OUTCOME_POISONED | 1U << OUTCOME_SUM,
    [REASON_COUNT] = 1U << OUTCOME_OUTSIDE,
    [REASON_DEADLOCK] =
        1U << OUTCOME_HANG | 1U << OUTCOME_WRONG | 1U << OUTCOME_SUM | 1U << OUTCOME_OUTSIDE,
    [REASON_LIFETIME] = UINT32_MAX ^ 1U << OUTCOME_LEFT,
    [REASON_ACCUMULATE] = 1U << OUTCOME_SUM,
    [REASON_END] = 1U << OUTCOME_HANG | 1U << OUTCOME_SUM | 1U << OUTCOME_OUTSIDE,
    [REASON_IDLE] = UINT32_MAX ^ 1U << OUTCOME_LEFT,
    [REASON_UNKNOWN] = 0,
};

/* Whether a mutation of this kind leaves a plan numbered as lowering would: then nothing but a cycle
 * can make it hang, and a cycle always can. */
static bool stays_numbered(enum mutation_kind kind)
{
    return kind == MUTATION_LANDINGS || kind == MUTATION_REORDER || kind == MUTATION_ADD;
}

static enum outcome run_once(const struct mutant *mutant, uint64_t seed)
{
    return mutant_run(&world, mutant->plan, mutant->mutation.rank, mutant->mutation.index, seed);
}

/* Runs a mutant until a fault shows, or all runs were right. A hang that the validator foresees must
 * show itself, whatever shows before. */
static enum outcome run_mutant(const struct mutant *mutant, uint64_t number,
                               const struct verdict *verdict)
{
    bool must_hang = verdict->reason == REASON_DEADLOCK && stays_numbered(mutant->mutation.kind);
    int32_t runs = verdict->reason == REASON_ACCEPTED              ? RUNS_ACCEPTED
                   : mutant_excuse(mutant, verdict) != EXCUSE_NONE ? RUNS_EXCUSED
                                                                   : RUNS_REFUSED;

    for (int32_t run = 0; run < runs; run++) {
        enum outcome outcome = run_once(mutant, number * RUNS_REFUSED + (uint64_t)run);

        if (outcome != OUTCOME_RIGHT && (!must_hang || outcome == OUTCOME_HANG)) {
            return outcome;
        }
    }
    return OUTCOME_RIGHT;
}

static void fail_mutant(const struct mutant *mutant, uint64_t number, const struct verdict *verdict,
                        enum outcome outcome, const char *what)
{
    char text[256];

    mutant_print(mutant, text, sizeof(text));
    fail_msg("%s\nmutant %llu (test_plan_mutants %llu 1): %s\nthe validator: %s %s\nthe run: %s, "
             "rank %d, action %d: %s",
             what, (unsigned long long)number, (unsigned long long)number, text,
             reason_text(verdict->reason), verdict->message, outcome_text(outcome),
             world.fault_rank, world.fault_index, world.fault_text);
}

static void check_refused(const struct mutant *mutant, uint64_t number,
                          const struct verdict *verdict, enum outcome outcome, struct tally *tally)
{
    enum excuse excuse = EXCUSE_NONE;

    if (outcome != OUTCOME_RIGHT) {
        if ((fitting[verdict->reason] >> outcome & 1U) == 0) {
            fail_mutant(mutant, number, verdict, outcome, "the fault does not fit the reason");
        }
        if (outcome == OUTCOME_HANG && stays_numbered(mutant->mutation.kind) &&
            verdict->reason > REASON_DEADLOCK) {
            fail_mutant(mutant, number, verdict, outcome, "it hangs, but not as a deadlock");
        }
        tally->shown[mutant->mutation.kind]++;
        return;
    }
    excuse = mutant_excuse(mutant, verdict);
    if (excuse == EXCUSE_NONE) {
        fail_mutant(mutant, number, verdict, outcome, "refused without need");
    }
    tally->excused[mutant->mutation.kind]++;
    tally->excuses[excuse]++;
}

static void check_mutant(uint64_t number, struct tally *tally)
{
    struct mutant mutant;
    struct verdict verdict;
    enum outcome original;
    enum outcome outcome;
    int saved = fixture_mute();

    mutant_make(number, &mutant);
    original = mutant_run(&world, mutant.original, 0, 0, number);
    mutant_judge(mutant.plan, &verdict);
    outcome = run_mutant(&mutant, number, &verdict);
    fixture_unmute(saved);
    tally->mutants++;
    tally->outcomes[verdict.reason][outcome]++;
    if (original != OUTCOME_RIGHT) {
        fail_mutant(&mutant, number, &verdict, original, "wrong without the mutation");
    }
    if (verdict.reason == REASON_UNKNOWN) {
        fail_mutant(&mutant, number, &verdict, outcome, "a refusal that this test does not know");
    }
    if (verdict.reason != REASON_ACCEPTED) {
        check_refused(&mutant, number, &verdict, outcome, tally);
    } else if (outcome != OUTCOME_RIGHT) {
        fail_mutant(&mutant, number, &verdict, outcome, "accepted, but it does not run right");
    } else {
        tally->accepted[mutant.mutation.kind]++;
    }
    mutant_release(&mutant);
}

static void print_tally(const struct tally *tally)
{
    print_message("%-52s accepted  shown  excused\n", "mutation");
    for (int32_t kind = 0; kind < MUTATION_KINDS; kind++) {
        print_message("%-52s %8d %6d %8d\n", mutation_text((enum mutation_kind)kind),
                      tally->accepted[kind], tally->shown[kind], tally->excused[kind]);
    }
    print_message("%-14s", "verdict");
    for (int32_t outcome = 0; outcome < OUTCOMES; outcome++) {
        print_message(" %9s", outcome_text((enum outcome)outcome));
    }
    for (int32_t reason = 0; reason < REASONS; reason++) {
        print_message("\n%-14s", reason_text((enum reason)reason));
        for (int32_t outcome = 0; outcome < OUTCOMES; outcome++) {
            print_message(" %9d", tally->outcomes[reason][outcome]);
        }
    }
    for (int32_t excuse = EXCUSE_NONE + 1; excuse < EXCUSES; excuse++) {
        print_message("%srefused, and right in every run: %s: %d\n", excuse == 1 ? "\n" : "",
                      excuse_text((enum excuse)excuse), tally->excuses[excuse]);
    }
}

/* Excuses must stay rare, and what they are for must be there, or the test would hold nothing to its
 * word. In parts of a thousand of all mutants. A kind of mutation is 45 of them: IDLE is one in
 * eight of those of eight kinds, and all of the fields of actions that have none; IMPLIED is most of
 * DROP and REDIRECT, since compute goes in the order of the line anyway; LARGER is half of COUNT;
 * WAITS is the fourth of ADD and REDIRECT that falls on a message; PLACE needs an exchange with a
 * SYNC or a REDUCE. */
static void check_shares(const struct tally *tally)
{
    static const int32_t most[EXCUSES] = {
        [EXCUSE_IDLE] = 50,  [EXCUSE_IMPLIED] = 50, [EXCUSE_LARGER] = 35,
        [EXCUSE_WAITS] = 25, [EXCUSE_PLACE] = 5,
    };
    int32_t accepted = tally->outcomes[REASON_ACCEPTED][OUTCOME_RIGHT];
    int32_t excused = 0;

    for (int32_t excuse = 0; excuse < EXCUSES; excuse++) {
        assert_true(tally->excuses[excuse] * 1000 <= most[excuse] * tally->mutants);
        excused += tally->excuses[excuse];
    }
    assert_true(accepted * 20 >= tally->mutants);
    assert_true((accepted + excused) * 3 <= tally->mutants);
    for (int32_t reason = 0; reason < REASON_UNKNOWN; reason++) {
        int32_t found = 0;

        for (int32_t outcome = 0; outcome < OUTCOMES; outcome++) {
            found += tally->outcomes[reason][outcome];
        }
        assert_true(found > 0);
    }
}

static void test_what_the_validator_says_of_a_mutant_is_what_happens(void **state)
{
    const struct choice *choice = *state;
    struct tally tally = {.mutants = 0};

    for (uint64_t number = choice->first; number < choice->first + choice->count; number++) {
        check_mutant(number, &tally);
    }
    print_tally(&tally);
    if (choice->usual) {
        check_shares(&tally);
    }
}

/* A plan with something wrong that is known. */
struct known {
    struct plan *plan; /* owns */
    int32_t rank;
    int32_t index;
};

static struct action *action_of(struct known *known, int32_t rank, const char *text)
{
    known->rank = rank;
    known->index = fixture_find(known->plan, rank, text);
    assert_true(known->index >= 0);
    return &known->plan->lines[rank].actions[known->index];
}

/* The plan is refused for this reason, and every one of `runs` runs that is not right ends so; some
 * do. Releases the plan. */
static void expect_known(struct known *known, enum reason reason, enum outcome expected)
{
    struct verdict verdict;
    int32_t found = 0;
    int saved = fixture_mute();

    mutant_judge(known->plan, &verdict);
    for (uint64_t seed = 0; seed < 200; seed++) {
        enum outcome outcome = mutant_run(&world, known->plan, known->rank, known->index, seed);

        found += outcome == expected;
    }
    fixture_unmute(saved);
    if (verdict.reason != reason || found == 0) {
        fail_msg("%s: %s; %d of 200 runs end with %s", reason_text(verdict.reason), verdict.message,
                 found, outcome_text(expected));
    }
    plan_destroy(&known->plan);
}

static void test_a_send_behind_a_wait_for_its_answer_hangs(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_GPIPE, 3, 1, false)};
    int32_t send = 0;

    (void)state;
    (void)action_of(&known, 1, "1SEND_F0");
    send = known.index;
    mutant_swap(known.plan, 1, send, send + 1, false);     /* its neighbour is 1RECV_B0, … */
    mutant_swap(known.plan, 1, send + 1, send + 2, false); /* … then 1B0 */
    assert_int_equal(known.plan->lines[1].actions[send + 1].kind, ACTION_B);
    expect_known(&known, REASON_DEADLOCK, OUTCOME_HANG);
}

static void test_too_few_landing_buffers_hang(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_GPIPE, 2, 4, false)};

    (void)state;
    known.plan->buffers[1].landing_f = 3; /* gpipe holds all four */
    assert_int_equal(landing_number(known.plan), STATUS_OK);
    expect_known(&known, REASON_DEADLOCK, OUTCOME_HANG);
}

static void test_a_message_that_is_never_sent_hangs(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_1F1B, 2, 2, false)};

    (void)state;
    (void)action_of(&known, 0, "0SEND_F1");
    mutant_delete(known.plan, 0, known.index);
    expect_known(&known, REASON_COMPLETE, OUTCOME_HANG);
}

static void test_a_message_that_waits_for_another_blocks_what_would_free_it(void **state)
{
    /* 0SEND_F4 waits for the gradient of 3, whose landing buffer 0W0 gives back, behind it. A worker
     * in line finds the gradient of 0 there. */
    static const char text[] = "0F0,0F1,0F2,0F3,0I0,0I1,0F4,0W0,0W1,0I2,0W2,0I3,0W3,0I4,0W4\n"
                               "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4\n";
    struct plan *compute = fixture_text(text);
    struct known known = {.plan = NULL};
    int32_t send = 0;

    (void)state;
    compute->shape.lane_depth = 1;
    assert_int_equal(plan_lower(compute, &known.plan), STATUS_OK);
    plan_destroy(&compute);
    assert_int_equal(known.plan->buffers[0].landing_b, 3);
    for (int32_t k = 2; k < 4; k++) {
        (void)action_of(&known, 0, k == 2 ? "0RECV_B2" : "0RECV_B3");
        for (int32_t i = known.index; i > fixture_find(known.plan, 0, "0SEND_F4"); i--) {
            mutant_swap(known.plan, 0, i, i - 1, false);
        }
    }
    send = fixture_find(known.plan, 0, "0SEND_F4");
    assert_int_equal(known.plan->lines[0].actions[send - 1].kind, ACTION_RECV);
    action_of(&known, 0, "0SEND_F4")->depends[1] = send - 1;
    expect_known(&known, REASON_WAITS, OUTCOME_WRONG);
}

static void test_a_message_with_another_number_is_another_message(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_1F1B, 2, 3, false)};

    (void)state;
    action_of(&known, 0, "0SEND_F1")->sequence = 2;
    expect_known(&known, REASON_TAGS, OUTCOME_WRONG);
}

static void test_a_reader_that_does_not_wait_reads_poison(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_1F1B, 2, 3, false)};

    (void)state;
    action_of(&known, 1, "1F0")->depends[0] = ACTION_NONE;
    expect_known(&known, REASON_ORDER, OUTCOME_POISONED);
}

static void test_two_micro_batches_in_one_slot_read_poison(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_GPIPE, 2, 3, false)};
    int32_t slot = action_of(&known, 0, "0F0")->slot;

    (void)state;
    action_of(&known, 0, "0F1")->slot = slot;
    expect_known(&known, REASON_LIFETIME, OUTCOME_POISONED);
}

static void test_an_out_buffer_that_is_written_too_early_is_seen(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_GPIPE, 2, 3, false)};

    (void)state;
    action_of(&known, 0, "0F1")->depends[0] = ACTION_NONE; /* 0SEND_F0 */
    expect_known(&known, REASON_LIFETIME, OUTCOME_POISONED);
}

static void test_a_gradient_that_is_not_added_is_missed(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_1F1B, 2, 3, true)};

    (void)state;
    (void)action_of(&known, 1, "1W1");
    mutant_delete(known.plan, 1, known.index);
    expect_known(&known, REASON_COMPLETE, OUTCOME_SUM);
}

static void test_gradients_in_another_order_are_another_sum(void **state)
{
    struct plan *compute = fixture_text("0F0,0F1,0B1,0B0\n");
    struct known known = {.plan = NULL};

    (void)state;
    assert_int_equal(plan_lower(compute, &known.plan), STATUS_OK);
    plan_destroy(&compute);
    expect_known(&known, REASON_ACCUMULATE, OUTCOME_SUM);
}

static void test_a_slot_too_few_is_outside(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_GPIPE, 1, 4, false)};

    (void)state;
    known.plan->buffers[0].slots = 3;
    expect_known(&known, REASON_LIFETIME, OUTCOME_OUTSIDE);
}

static void test_a_step_before_the_end_misses_gradients(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_GPIPE, 1, 2, false)};
    int32_t count = known.plan->lines[0].count;

    (void)state;
    mutant_swap(known.plan, 0, count - 1, count - 2, false);
    expect_known(&known, REASON_END, OUTCOME_SUM);
}

static void test_a_message_sent_twice_is_left_over(void **state)
{
    struct known known = {.plan = fixture_lowered(SCHEDULE_1F1B, 2, 1, false)};
    struct action again = *action_of(&known, 1, "1SEND_B0");
    struct action step = known.plan->lines[1].actions[known.index + 1];

    (void)state;
    assert_int_equal(step.kind, ACTION_STEP);
    assert_int_equal(plan_append(known.plan, 1, &step), STATUS_OK);
    known.plan->lines[1].actions[known.index + 1] = again;
    again.depends[0] = known.index;
    expect_known(&known, REASON_COMPLETE, OUTCOME_LEFT);
}

static int open_world(void **state)
{
    (void)state;
    mutant_world_open(&world);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    mutant_world_close(&world);
    return 0;
}

int main(int argc, char **argv)
{
    struct choice choice = {.first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0,
                            .count = argc > 2 ? strtoull(argv[2], NULL, 10) : MUTANTS,
                            .usual = argc < 2};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_send_behind_a_wait_for_its_answer_hangs),
        cmocka_unit_test(test_too_few_landing_buffers_hang),
        cmocka_unit_test(test_a_message_that_is_never_sent_hangs),
        cmocka_unit_test(test_a_message_that_waits_for_another_blocks_what_would_free_it),
        cmocka_unit_test(test_a_message_with_another_number_is_another_message),
        cmocka_unit_test(test_a_reader_that_does_not_wait_reads_poison),
        cmocka_unit_test(test_two_micro_batches_in_one_slot_read_poison),
        cmocka_unit_test(test_an_out_buffer_that_is_written_too_early_is_seen),
        cmocka_unit_test(test_a_gradient_that_is_not_added_is_missed),
        cmocka_unit_test(test_gradients_in_another_order_are_another_sum),
        cmocka_unit_test(test_a_slot_too_few_is_outside),
        cmocka_unit_test(test_a_step_before_the_end_misses_gradients),
        cmocka_unit_test(test_a_message_sent_twice_is_left_over),
        cmocka_unit_test_prestate(test_what_the_validator_says_of_a_mutant_is_what_happens,
                                  &choice),
    };

    return cmocka_run_group_tests_name("plan_mutants", tests, open_world, close_world);
}
