/* The fault switch: what it understands, what it refuses, and where it strikes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "stages/fault.h"

static int unset(void **state)
{
    (void)state;
    return unsetenv("WEIR_FAULT");
}

#ifdef WEIR_FAULTS

static void assert_fault(const char *text, struct fault expected)
{
    struct fault fault = {.rank = -1};

    assert_int_equal(setenv("WEIR_FAULT", text, 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_int_equal(fault.kind, expected.kind);
    assert_int_equal(fault.rank, expected.rank);
    assert_true(fault.step == expected.step);
    assert_int_equal(fault.action, expected.action);
}

static void kind_rank_step_and_action_are_read(void **state)
{
    (void)state;
    assert_fault("die@3:7", (struct fault){.kind = FAULT_DIE, .rank = 3, .step = 7, .action = 0});
    assert_fault("stall@0:12:5",
                 (struct fault){.kind = FAULT_STALL, .rank = 0, .step = 12, .action = 5});
    assert_fault("poison@1:2:0",
                 (struct fault){.kind = FAULT_POISON, .rank = 1, .step = 2, .action = 0});
    assert_fault(
        "die@0:start",
        (struct fault){.kind = FAULT_DIE, .rank = 0, .step = FAULT_STEP_START, .action = 0});
    assert_fault("die@0:end",
                 (struct fault){.kind = FAULT_DIE, .rank = 0, .step = FAULT_STEP_END, .action = 0});
    assert_fault(
        "overflow@2:any",
        (struct fault){.kind = FAULT_OVERFLOW, .rank = 2, .step = FAULT_STEP_ANY, .action = 0});
    assert_fault("", (struct fault){.kind = FAULT_NONE, .rank = 0, .step = 0, .action = 0});
}

static void what_cannot_be_understood_is_refused_as_it_stands(void **state)
{
    static const char *const wrong[] = {
        "die",
        "die@",
        "die@1",
        "die@1:",
        "die@x:1",
        "die@1:2:",
        "die@1:2:3:4",
        "die@1:2:x",
        "kill@1:2",
        "die@-1:2",
        "die@1:-2",
        "die@1:endless",
        "DIE@1:2",
        "die@1:2trail",
        "die@99999999999:1",
        "full@1:2",
        "stall@1:2:save+5",
        "slow@1:2:3x",
        "slow@1:2:save+5",
        "die@1:2:piece+5",
        "slow@1:2:piece+",
        "slow@1:2:piece+5x",
        "die@1:2:save+",
        "die@1:2:save+x",
        "full@1:2:save+5x",
        "skew@1:any",
        "skew@0:any:clock+5",
        "skew@1:2:clock+5",
        "skew@1:any:clock+",
        "skew@1:any:clock+5x",
        "die@1:any:clock+5",
    };
    struct fault fault = {.rank = -1};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(setenv("WEIR_FAULT", wrong[i], 1), 0);
        assert_int_equal(fault_read(&fault), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, wrong[i]));
        assert_non_null(strstr(status_last()->message, "die|stall|slow|poison|overflow@rank:step"));
    }
    assert_int_equal(fault.rank, -1);
}

static void poison_strikes_at_its_place_alone(void **state)
{
    const struct fault fault = {.kind = FAULT_POISON, .rank = 1, .step = 2, .action = 3};
    const struct fault none = {.kind = FAULT_NONE, .rank = 1, .step = 2, .action = 3};

    (void)state;
    assert_true(fault_strike(&fault, 1, 2, 3, NULL));
    assert_false(fault_strike(&fault, 0, 2, 3, NULL));
    assert_false(fault_strike(&fault, 1, 1, 3, NULL));
    assert_false(fault_strike(&fault, 1, 2, 4, NULL));
    assert_false(fault_strike(&none, 1, 2, 3, NULL));
}

static void any_step_is_each_that_runs(void **state)
{
    const struct fault fault = {.kind = FAULT_OVERFLOW, .rank = 1, .step = FAULT_STEP_ANY};

    (void)state;
    assert_true(fault_strike(&fault, 1, 1, 0, NULL));
    assert_true(fault_strike(&fault, 1, 77, 0, NULL));
    assert_false(fault_strike(&fault, 0, 1, 0, NULL));
    assert_false(fault_strike(&fault, 1, 1, 1, NULL));
    assert_false(fault_strike(&fault, 1, FAULT_STEP_START, 0, NULL));
    assert_false(fault_strike(&fault, 1, FAULT_STEP_END, 0, NULL));
}

static void a_slow_action_spoils_nothing_and_takes_its_time(void **state)
{
    struct fault fault;
    int64_t begin_ns = 0;

    (void)state;
    assert_int_equal(setenv("WEIR_FAULT", "slow@0:any:7", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    begin_ns = clock_now_ns();
    assert_false(fault_strike(&fault, 0, 5, 7, NULL));
    assert_true(clock_now_ns() - begin_ns >= FAULT_SLOW_NS);
}

static void a_place_in_a_save_is_read(void **state)
{
    struct fault fault;

    (void)state;
    assert_int_equal(setenv("WEIR_FAULT", "full@3:10:save+1000", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_true(fault.kind == FAULT_FULL && fault.rank == 3 && fault.step == 10 && fault.saving &&
                fault.bytes == 1000);
    assert_int_equal(setenv("WEIR_FAULT", "die@0:5:save+0", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_true(fault.kind == FAULT_DIE && fault.saving && fault.bytes == 0);
    /* It is no place in a step. */
    assert_false(fault_strike(&fault, 0, 5, 0, NULL));
}

static void a_piece_of_a_file_is_read(void **state)
{
    struct fault fault;

    (void)state;
    assert_int_equal(setenv("WEIR_FAULT", "slow@3:start:piece+7", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_true(fault.kind == FAULT_SLOW && fault.rank == 3 && fault.step == FAULT_STEP_START &&
                fault.moving && fault.piece == 7 && !fault.saving);
    assert_int_equal(setenv("WEIR_FAULT", "stall@0:5:piece+1", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_true(fault.kind == FAULT_STALL && fault.moving && fault.piece == 1);
    /* It is no place in a step: nobody stalls here. */
    assert_false(fault_strike(&fault, 0, 5, 0, NULL));
}

/* Ahead by what was asked for when it was read, and by 0.2 ms more each second. */
static void a_skewed_clock_is_read_and_gains(void **state)
{
    struct fault fault;
    struct span_ring spans;
    const int64_t before_ns = clock_now_ns();

    (void)state;
    assert_int_equal(setenv("WEIR_FAULT", "skew@2:any:clock+5000", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_true(fault.kind == FAULT_SKEW && fault.ahead_ns == 5000);
    assert_true(fault.since_ns >= before_ns && fault.since_ns <= clock_now_ns());
    assert_true(fault_skews(&fault, 2));
    assert_false(fault_skews(&fault, 0));
    assert_int_equal(fault_clock_ns(&fault, fault.since_ns), fault.since_ns + 5000);
    assert_int_equal(fault_clock_ns(&fault, fault.since_ns + 3 * CLOCK_SECOND),
                     fault.since_ns + 3 * CLOCK_SECOND + 5000 + 600000);
    /* It breaks nothing. */
    assert_false(fault_strike(&fault, 2, 1, 0, NULL));

    /* Of four spans the first was taken before, and the ring has come round. */
    assert_int_equal(span_ring_init(&spans, 3), STATUS_OK);
    for (int i = 0; i < 4; i++) {
        struct span taken;

        span_ring_put(&spans, &(struct span){.begin_ns = fault.since_ns,
                                             .end_ns = fault.since_ns + CLOCK_SECOND});
        assert_int_equal(i == 0 ? span_ring_take(&spans, &taken, 1) : 1, 1);
    }
    fault_skew(&fault, 1, &spans); /* somebody else's */
    assert_int_equal(spans.spans[1].begin_ns, fault.since_ns);
    fault_skew(&fault, 2, &spans);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(spans.spans[i].begin_ns, fault.since_ns + 5000);
        assert_int_equal(spans.spans[i].end_ns, fault.since_ns + CLOCK_SECOND + 5000 + 200000);
    }
    span_ring_release(&spans);
}

static void a_slow_disk_is_so_from_its_piece_on(void **state)
{
    const struct fault fault = {
        .kind = FAULT_SLOW, .rank = 1, .step = 2, .moving = true, .piece = 4};
    int64_t begin_ns = 0;

    (void)state;
    begin_ns = clock_now_ns();
    fault_move(&fault, 1, 2, 4, NULL);
    fault_move(&fault, 1, 2, 5, NULL);
    assert_true(clock_now_ns() - begin_ns >= 2 * FAULT_SLOW_NS);
    /* An earlier piece, another rank, another step: a hundred of each, which a busy machine holds up less than as
     * many waits would. */
    for (int other = 0; other < 3; other++) {
        begin_ns = clock_now_ns();
        for (int i = 0; i < 100; i++) {
            fault_move(&fault, other == 1 ? 0 : 1, other == 2 ? 3 : 2, other == 0 ? 3 : 4, NULL);
        }
        assert_true(clock_now_ns() - begin_ns < 100 * FAULT_SLOW_NS);
    }
}

/* Bytes 0 … 999 of the file are written, whatever the pieces are. */
static void a_save_has_room_up_to_the_byte_of_the_fault(void **state)
{
    const struct fault fault = {
        .kind = FAULT_FULL, .rank = 1, .step = 2, .saving = true, .bytes = 1000};
    const struct fault none = {.kind = FAULT_NONE};
    struct fault_writing writing = {.fault = &fault, .rank = 1, .step = 2};

    (void)state;
    assert_int_equal(fault_room(&writing, 0, 1000), 1000);
    assert_int_equal(fault_room(&writing, 0, 1001), 1000);
    assert_int_equal(fault_room(&writing, 900, 200), 100);
    assert_int_equal(fault_room(&writing, 1000, 1), 0);
    assert_int_equal(fault_room(NULL, 0, 5000), 5000);
    assert_int_equal(fault_write(&writing, "a/path"), STATUS_ERR_IO);
    assert_non_null(strstr(status_last()->message, "a/path"));
    writing.rank = 0;
    assert_int_equal(fault_room(&writing, 0, 5000), 5000);
    writing = (struct fault_writing){.fault = &fault, .rank = 1, .step = 3};
    assert_int_equal(fault_room(&writing, 0, 5000), 5000);
    writing = (struct fault_writing){.fault = &none, .rank = 0, .step = 0};
    assert_int_equal(fault_room(&writing, 0, 5000), 5000);
}

static void a_restarted_job_has_no_fault(void **state)
{
    struct fault fault = {.kind = FAULT_DIE};

    (void)state;
    assert_int_equal(setenv("WEIR_FAULT", "die@3:7", 1), 0);
    assert_int_equal(setenv("TORCHELASTIC_RESTART_COUNT", "1", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_int_equal(fault.kind, FAULT_NONE);
    assert_int_equal(unsetenv("TORCHELASTIC_RESTART_COUNT"), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_int_equal(fault.kind, FAULT_DIE);
}

static void a_stall_ends_with_the_job(void **state)
{
    const struct fault fault = {.kind = FAULT_STALL, .rank = 0, .step = 1};
    struct cancel cancel = {0};

    (void)state;
    cancel_request(&cancel);
    assert_false(fault_strike(&fault, 0, 1, 0, &cancel));
}

static void to_die_is_to_be_killed(void **state)
{
    const struct fault fault = {.kind = FAULT_DIE, .rank = 0, .step = 1};
    int ended = 0;
    pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        (void)fault_strike(&fault, 0, 1, 0, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    assert_int_equal(WTERMSIG(ended), SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(kind_rank_step_and_action_are_read, unset),
        cmocka_unit_test_teardown(what_cannot_be_understood_is_refused_as_it_stands, unset),
        cmocka_unit_test(poison_strikes_at_its_place_alone),
        cmocka_unit_test(any_step_is_each_that_runs),
        cmocka_unit_test_teardown(a_slow_action_spoils_nothing_and_takes_its_time, unset),
        cmocka_unit_test_teardown(a_place_in_a_save_is_read, unset),
        cmocka_unit_test_teardown(a_piece_of_a_file_is_read, unset),
        cmocka_unit_test_teardown(a_skewed_clock_is_read_and_gains, unset),
        cmocka_unit_test(a_slow_disk_is_so_from_its_piece_on),
        cmocka_unit_test(a_save_has_room_up_to_the_byte_of_the_fault),
        cmocka_unit_test_teardown(a_restarted_job_has_no_fault, unset),
        cmocka_unit_test(a_stall_ends_with_the_job),
        cmocka_unit_test(to_die_is_to_be_killed),
    };

    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}

#else

static void a_build_without_the_switch_never_strikes(void **state)
{
    const struct fault strike = {.kind = FAULT_POISON, .rank = 0, .step = 1};
    struct fault fault = {.kind = FAULT_DIE};

    (void)state;
    assert_int_equal(setenv("WEIR_FAULT", "die@0:1", 1), 0);
    assert_int_equal(fault_read(&fault), STATUS_OK);
    assert_int_equal(fault.kind, FAULT_NONE);
    assert_false(fault_strike(&strike, 0, 1, 0, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_build_without_the_switch_never_strikes, unset),
    };

    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}

#endif
