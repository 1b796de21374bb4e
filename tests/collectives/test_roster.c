#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/roster.h"

enum {
    WORLD = 4
};

#define AT(seconds) ((int64_t)((seconds)*1e9))

static struct roster roster;

static const struct roster_limits limits = {
    .dead_after_ns = AT(10.0), .stall_after_ns = AT(60.0), .last_words_ns = AT(0.1)};

/* Four ranks on host a, all heard and moving at 100 s. */
static int make_roster(void **state)
{
    (void)state;
    if (roster_init(&roster, WORLD) != STATUS_OK) {
        return -1;
    }
    for (int32_t rank = 0; rank < WORLD; rank++) {
        struct member *member = &roster.members[rank];

        member->state = MEMBER_PRESENT;
        (void)snprintf(member->place.host, sizeof(member->place.host), "a");
        member->place.pid = 100 + rank;
        member->heard_ns = AT(100.0);
        member->beat_ns = AT(100.0);
        member->changed_ns = AT(100.0);
        member->progress = (struct control_progress){.step = 5, .phase = 1, .action = 17};
    }
    return 0;
}

static int release_roster(void **state)
{
    (void)state;
    roster_release(&roster);
    roster_release(&roster);
    return 0;
}

/* A beat at `seconds` of a rank that has stood still since `since`. */
static void beat(int32_t rank, double seconds, double since)
{
    roster.members[rank].heard_ns = AT(seconds);
    roster.members[rank].beat_ns = AT(seconds);
    roster.members[rank].changed_ns = AT(since);
}

static void expect_verdict(double seconds, int32_t rank, const char *text)
{
    struct control_cause cause = {.rank = -7};

    assert_true(roster_judge(&roster, &limits, AT(seconds), &cause));
    assert_int_equal(cause.rank, rank);
    assert_int_equal(cause.status, STATUS_ERR_PEER);
    assert_string_equal(cause.text, text);
}

static void expect_no_verdict(double seconds)
{
    struct control_cause cause;

    assert_false(roster_judge(&roster, &limits, AT(seconds), &cause));
}

static void test_a_silent_rank_is_dead_after_its_time_and_not_before(void **state)
{
    (void)state;
    for (int32_t rank = 0; rank < WORLD; rank++) {
        beat(rank, rank == 2 ? 100.0 : 109.0, 100.0);
    }
    expect_no_verdict(110.0);
    expect_verdict(110.5, 2,
                   "rank 2 (a, process 102) was lost: no sign of life for 10.5 s; it was last seen "
                   "at step 5, phase 1, action 17");
    assert_int_equal(roster.members[2].state, MEMBER_LOST);
    expect_no_verdict(110.5);
}

static void test_a_process_that_has_ended_may_still_be_heard_for_a_moment(void **state)
{
    (void)state;
    roster.members[1].ended_ns = AT(101.0);
    expect_no_verdict(101.05);
    expect_verdict(101.1, 1,
                   "rank 1 (a, process 101) was lost: its process has ended; it was last seen at "
                   "step 5, phase 1, action 17");
}

static void test_a_connection_that_is_gone_is_a_death(void **state)
{
    (void)state;
    roster.members[3].cut = true;
    expect_verdict(100.0, 3,
                   "rank 3 (a, process 103) was lost: its connection is gone; it was last seen at "
                   "step 5, phase 1, action 17");
}

static void test_who_has_left_is_neither_dead_nor_hanging(void **state)
{
    (void)state;
    for (int32_t rank = 0; rank < WORLD; rank++) {
        roster.members[rank].state = MEMBER_LEFT;
        roster.members[rank].ended_ns = AT(101.0);
    }
    expect_no_verdict(1000.0);
}

static void test_of_those_that_stand_still_the_one_that_works_hangs(void **state)
{
    (void)state;
    /* Ranks 0 and 1 wait longer than rank 2 works, because they wait for it. */
    roster.members[0].in_round = true;
    roster.members[1].progress.waits = true;
    beat(0, 200.0, 100.0);
    beat(1, 200.0, 110.0);
    beat(2, 200.0, 139.0);
    beat(3, 200.0, 199.0);
    expect_verdict(201.0, 2,
                   "rank 2 (a, process 102) hangs: no progress for 61.0 s at step 5, phase 1, "
                   "action 17");
}

static void test_nobody_hangs_while_somebody_works(void **state)
{
    (void)state;
    for (int32_t rank = 0; rank < WORLD; rank++) {
        roster.members[rank].progress.waits = rank != 3;
        beat(rank, 200.0, rank == 3 ? 150.0 : 100.0);
    }
    expect_no_verdict(201.0);
}

static void test_where_all_wait_the_one_that_waits_longest_is_named(void **state)
{
    struct control_cause cause;

    (void)state;
    for (int32_t rank = 0; rank < WORLD; rank++) {
        roster.members[rank].progress.waits = true;
        beat(rank, 200.0, rank == 1 ? 120.0 : 130.0);
    }
    assert_true(roster_judge(&roster, &limits, AT(201.0), &cause));
    assert_int_equal(cause.rank, 1);
    /* As long as one has only just begun to wait, it is not over. */
    beat(0, 200.0, 199.0);
    expect_no_verdict(201.0);
}

/* Ranks 0, 1 and 3 wait for their devices, which wait for rank 2's. */
static void test_of_those_that_wait_for_their_devices_the_one_whose_device_works_hangs(void **state)
{
    (void)state;
    for (int32_t rank = 0; rank < WORLD; rank++) {
        roster.members[rank].progress.stands = rank != 2;
        beat(rank, 200.0, rank == 2 ? 130.0 : 110.0);
    }
    expect_verdict(201.0, 2,
                   "rank 2 (a, process 102) hangs: no progress for 70.0 s at step 5, phase 1, "
                   "action 17");
}

static void test_a_stall_is_judged_by_what_was_told_not_by_when(void **state)
{
    (void)state;
    /* The last beat, nine seconds ago, told of a minute without progress, not of more. */
    for (int32_t rank = 0; rank < WORLD; rank++) {
        beat(rank, 200.0, 140.0);
    }
    expect_no_verdict(209.0);
}

static void test_who_was_away_forgives(void **state)
{
    (void)state;
    roster_forgive(&roster, AT(500.0));
    expect_no_verdict(509.0);
}

static void test_those_that_are_absent_are_named(void **state)
{
    char text[64];
    char small[32];

    (void)state;
    roster.members[1].state = MEMBER_ABSENT;
    roster_name_absent(&roster, text, sizeof(text));
    assert_string_equal(text, "rank 1");
    roster.members[3].state = MEMBER_ABSENT;
    roster_name_absent(&roster, text, sizeof(text));
    assert_string_equal(text, "ranks 1, 3");
    roster.members[0].state = MEMBER_ABSENT;
    roster.members[2].state = MEMBER_ABSENT;
    roster_name_absent(&roster, small, sizeof(small));
    assert_string_equal(small, "ranks 0, 1, …");
}

static void test_only_its_own_route_speaks_for_a_member(void **state)
{
    struct wire_name name = {.bytes = "r1.7", .size = 4};

    (void)state;
    roster.members[1].route = name;
    assert_ptr_equal(roster_find_route(&roster, &name), &roster.members[1]);
    name.size = 3;
    assert_null(roster_find_route(&roster, &name));
    name.size = 4;
    roster.members[1].state = MEMBER_LEFT;
    assert_null(roster_find_route(&roster, &name));
}

int main(void)
{
#define WITH_ROSTER(test) cmocka_unit_test_setup_teardown(test, make_roster, release_roster)
    const struct CMUnitTest tests[] = {
        WITH_ROSTER(test_a_silent_rank_is_dead_after_its_time_and_not_before),
        WITH_ROSTER(test_a_process_that_has_ended_may_still_be_heard_for_a_moment),
        WITH_ROSTER(test_a_connection_that_is_gone_is_a_death),
        WITH_ROSTER(test_who_has_left_is_neither_dead_nor_hanging),
        WITH_ROSTER(test_of_those_that_stand_still_the_one_that_works_hangs),
        WITH_ROSTER(test_nobody_hangs_while_somebody_works),
        WITH_ROSTER(test_where_all_wait_the_one_that_waits_longest_is_named),
        WITH_ROSTER(test_of_those_that_wait_for_their_devices_the_one_whose_device_works_hangs),
        WITH_ROSTER(test_a_stall_is_judged_by_what_was_told_not_by_when),
        WITH_ROSTER(test_who_was_away_forgives),
        WITH_ROSTER(test_those_that_are_absent_are_named),
        WITH_ROSTER(test_only_its_own_route_speaks_for_a_member),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
