/* crew: signals, and that nothing is left of a job however it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew_rig.h"
#include "stages/agent/process.h"

static void a_rank_that_ignores_term_is_killed_after_the_grace(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(
        &rig,
        "if [ $RANK = 0 ]; then trap '' TERM; echo deaf >&2; while :; do sleep 0.05; done; fi;"
        "exec sleep 600",
        2, 0.2);
    crew_rig_wait_for(&rig, "deaf", 1);
    assert_int_equal(kill(rig.pid, SIGTERM), 0);
    assert_int_equal(crew_rig_finish(&rig), 143);
    assert_null(strstr(rig.err_text, "first: rank"));
    crew_rig_remove(&rig);
}

static void a_signal_reaches_every_process_and_their_orderly_end_is_no_failure(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct crew_rig rig;

        crew_rig_start(
            &rig,
            "trap 'echo stopped >&2; exit 143' TERM; trap 'echo stopped >&2; exit 130' INT;"
            "echo ready >&2; while :; do sleep 0.05; done",
            3, 50.0);
        crew_rig_wait_for(&rig, "ready", 3);
        assert_int_equal(kill(rig.pid, signals[i]), 0);
        assert_int_equal(crew_rig_finish(&rig), 128 + signals[i]);
        assert_int_equal(crew_rig_count(rig.err_text, "] stopped\n"), 3);
        assert_null(strstr(rig.err_text, "first: rank"));
        crew_rig_remove(&rig);
    }
}

static void a_second_signal_kills_at_once(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig, "trap 'echo heard >&2' INT; echo ready >&2; while :; do sleep 0.05; done",
                   2, 500.0);
    crew_rig_wait_for(&rig, "ready", 2);
    assert_int_equal(kill(rig.pid, SIGINT), 0);
    crew_rig_wait_for(&rig, "] heard", 2);
    assert_int_equal(kill(rig.pid, SIGINT), 0);
    assert_int_equal(crew_rig_finish(&rig), 130);
    crew_rig_remove(&rig);
}

static void a_failure_after_a_signal_is_still_reported(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(
        &rig,
        "trap 'test $RANK = 1 && exit 5; exit 143' TERM; echo ready >&2; while :; do sleep "
        "0.05; done",
        2, 50.0);
    crew_rig_wait_for(&rig, "ready", 2);
    assert_int_equal(kill(rig.pid, SIGTERM), 0);
    assert_int_equal(crew_rig_finish(&rig), 5);
    assert_non_null(strstr(rig.err_text, "first: rank 1\n"));
    crew_rig_remove(&rig);
}

static void a_signal_after_a_failure_kills_who_does_not_end(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig,
                   "if [ $RANK = 1 ]; then until grep -q ready rank-0.log; do sleep 0.02; done; "
                   "exit 7; fi; trap 'echo heard >&2' TERM; echo ready >&2; "
                   "while :; do sleep 0.02; done",
                   2, 500.0);
    crew_rig_wait_for(&rig, "] heard", 1);
    assert_int_equal(kill(rig.pid, SIGINT), 0);
    assert_int_equal(crew_rig_finish(&rig), 7);
    assert_non_null(strstr(rig.err_text, "first: rank 1\n"));
    crew_rig_remove(&rig);
}

static void after_a_failure_a_rank_that_ignores_term_is_killed_after_the_grace(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig,
                   "if [ $RANK = 1 ]; then until grep -q ready rank-0.log; do sleep 0.02; done; "
                   "exit 7; fi; trap '' TERM; echo ready >&2; while :; do sleep 0.02; done",
                   2, 0.2);
    assert_int_equal(crew_rig_finish(&rig), 7);
    assert_non_null(strstr(rig.err_text, "first: rank 1\n"));
    crew_rig_remove(&rig);
}

static void hup_does_nothing_where_it_is_ignored(void **state)
{
    const struct crew_rig_setup setup = {
        .script = "trap 'echo stopped >&2; exit 143' TERM; echo ready >&2; "
                  "while :; do sleep 0.02; done",
        .processes = 2,
        .grace_s = 50.0,
        .ignores_hup = true,
    };
    static struct crew_rig rig;

    (void)state;
    crew_rig_start_as(&rig, &setup);
    crew_rig_wait_for(&rig, "ready", 2);
    assert_int_equal(kill(rig.pid, SIGHUP), 0);
    /* Were the first one heard, this would be the second, which kills, and the code HUP's. */
    assert_int_equal(kill(rig.pid, SIGTERM), 0);
    assert_int_equal(crew_rig_finish(&rig), 128 + SIGTERM);
    assert_int_equal(crew_rig_count(rig.err_text, "] stopped\n"), 2);
    crew_rig_remove(&rig);
}

static void a_killed_agent_leaves_neither_processes_nor_their_children(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig, "trap '' TERM HUP; sleep 600 & echo ready >&2; wait; sleep 600", 3, 10.0);
    crew_rig_wait_for(&rig, "ready", 3);
    assert_int_equal(kill(rig.pid, SIGKILL), 0);
    assert_int_equal(crew_rig_finish(&rig), CREW_RIG_SIGNALLED + SIGKILL);
    crew_rig_remove(&rig);
}

static void the_kernel_kills_a_process_whose_starter_dies(void **state)
{
    char *arguments[] = {(char[]){"sleep"}, (char[]){"600"}, NULL};
    const struct process_config config = {.program = "/bin/sleep", .arguments = arguments};
    pid_t starter = fork();

    (void)state;
    assert_true(starter >= 0);
    if (starter == 0) {
        struct process process;

        _exit(process_start(&config, &process) >= 0 ? 0 : 1);
    }
    crew_rig_nothing_is_left();
}

static void a_process_that_ends_leaves_no_children(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig, "sleep 600 & sleep 600 & exit 0", 2, 10.0);
    assert_int_equal(crew_rig_finish(&rig), 0);
    crew_rig_remove(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_ignores_term_is_killed_after_the_grace),
        cmocka_unit_test(a_signal_reaches_every_process_and_their_orderly_end_is_no_failure),
        cmocka_unit_test(a_second_signal_kills_at_once),
        cmocka_unit_test(a_failure_after_a_signal_is_still_reported),
        cmocka_unit_test(a_signal_after_a_failure_kills_who_does_not_end),
        cmocka_unit_test(after_a_failure_a_rank_that_ignores_term_is_killed_after_the_grace),
        cmocka_unit_test(hup_does_nothing_where_it_is_ignored),
        cmocka_unit_test(a_killed_agent_leaves_neither_processes_nor_their_children),
        cmocka_unit_test(the_kernel_kills_a_process_whose_starter_dies),
        cmocka_unit_test(a_process_that_ends_leaves_no_children),
    };

    return crew_rig_adopt() ? cmocka_run_group_tests(tests, NULL, NULL) : EXIT_FAILURE;
}
