/* crew: start, output and failures of the processes of a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "crew_rig.h"
#include "stages/agent/crew.h"

static void all_processes_get_torchruns_environment_and_the_job(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(
        &rig,
        "echo \"<$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
        "$MASTER_PORT $TORCHELASTIC_RESTART_COUNT $OMP_NUM_THREADS $WEIR_JOB>\" >&2",
        3, 10.0);
    assert_int_equal(crew_rig_finish(&rig), 0);
    assert_non_null(strstr(rig.err_text, "[rank 0] <0 0 3 3 0 127.0.0.1 29500 0 1 job-of-the-"));
    assert_non_null(strstr(rig.err_text, "[rank 1] <1 1 3 3 0 127.0.0.1 29500 0 1 job-of-the-"));
    assert_non_null(strstr(rig.err_text, "[rank 2] <2 2 3 3 0 127.0.0.1 29500 0 1 job-of-the-"));
    crew_rig_remove(&rig);
}

static void stdout_of_rank_0_is_passed_on_as_it_is_and_the_rest_gets_a_prefix(void **state)
{
    struct crew_rig rig;
    char text[CREW_RIG_TEXT_BYTES];

    (void)state;
    crew_rig_start(&rig,
                   "echo result $RANK; echo talk $RANK >&2; echo \"[rank $RANK] named\" >&2;"
                   "printf 'no newline' >&2",
                   2, 10.0);
    assert_int_equal(crew_rig_finish(&rig), 0);
    assert_string_equal(rig.out_text, "result 0\n");
    assert_int_equal(crew_rig_count(rig.err_text, "[rank 1] result 1\n"), 1);
    assert_int_equal(crew_rig_count(rig.err_text, "[rank 0] talk 0\n"), 1);
    assert_int_equal(crew_rig_count(rig.err_text, "[rank 1] talk 1\n"), 1);
    assert_int_equal(crew_rig_count(rig.err_text, "[rank 1] named\n"), 1);
    assert_null(strstr(rig.err_text, "] [rank"));
    assert_int_equal(crew_rig_count(rig.err_text, "[rank 0] no newline\n"), 1);
    crew_rig_read_log(&rig, 0, text);
    assert_int_equal(crew_rig_count(text, "\nresult 0\n"), 1);
    assert_int_equal(crew_rig_count(text, "\ntalk 0\n"), 1);
    assert_int_equal(crew_rig_count(text, "job job-of-the-test rank 0 of 2\n"), 1);
    crew_rig_remove(&rig);
}

static void one_process_alone_gets_no_prefix(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig, "echo talk >&2", 1, 10.0);
    assert_int_equal(crew_rig_finish(&rig), 0);
    assert_string_equal(rig.err_text, "talk\n");
    crew_rig_remove(&rig);
}

static void lines_of_several_processes_never_mix(void **state)
{
    static struct crew_rig rig;
    char text[CREW_RIG_TEXT_BYTES];
    char *at = NULL;
    int lines = 0;

    (void)state;
    crew_rig_start(
        &rig,
        "i=0; while [ $i -lt 100 ]; do printf '<begin-%s' $RANK >&2; printf -- '-end-%s>\\n' "
        "$RANK >&2; i=$((i + 1)); done",
        4, 10.0);
    assert_int_equal(crew_rig_finish(&rig), 0);
    for (at = strtok(rig.err_text, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        char expected[64];

        assert_true(at[6] >= '0' && at[6] <= '3');
        (void)snprintf(expected, sizeof(expected), "[rank %c] <begin-%c-end-%c>", at[6], at[6],
                       at[6]);
        assert_string_equal(at, expected);
        lines++;
    }
    assert_int_equal(lines, 400);
    crew_rig_read_log(&rig, 2, text);
    assert_int_equal(crew_rig_count(text, "\n<begin-2-end-2>"), 100);
    crew_rig_remove(&rig);
}

static void a_log_is_appended_to_unless_it_shall_begin_anew(void **state)
{
    struct crew_rig_setup setup = {.script = "echo $0 said >&2", .processes = 1, .grace_s = 10.0};
    static struct crew_rig rig;
    char text[CREW_RIG_TEXT_BYTES];

    (void)state;
    crew_rig_start_as(&rig, &setup);
    assert_int_equal(crew_rig_finish(&rig), 0);
    crew_rig_start_again(&rig, &setup);
    assert_int_equal(crew_rig_finish(&rig), 0);
    crew_rig_read_log(&rig, 0, text);
    assert_int_equal(crew_rig_count(text, "==== "), 2);
    assert_int_equal(crew_rig_count(text, "sh said\n"), 2);
    setup.truncate_logs = true;
    crew_rig_start_again(&rig, &setup);
    assert_int_equal(crew_rig_finish(&rig), 0);
    crew_rig_read_log(&rig, 0, text);
    assert_int_equal(crew_rig_count(text, "==== "), 1);
    assert_int_equal(crew_rig_count(text, "sh said\n"), 1);
    crew_rig_remove(&rig);
}

static void rank_0_may_keep_stdout_and_then_its_log_has_stderr_alone(void **state)
{
    const struct crew_rig_setup setup = {
        .script = "printf 'bar %s' $RANK; echo talk >&2",
        .processes = 2,
        .grace_s = 10.0,
        .keeps_stdout = true,
    };
    static struct crew_rig rig;
    char text[CREW_RIG_TEXT_BYTES];

    (void)state;
    crew_rig_start_as(&rig, &setup);
    assert_int_equal(crew_rig_finish(&rig), 0);
    assert_string_equal(rig.out_text, "bar 0");
    assert_int_equal(crew_rig_count(rig.err_text, "[rank 1] bar 1\n"), 1);
    crew_rig_read_log(&rig, 0, text);
    assert_int_equal(crew_rig_count(text, "\ntalk\n"), 1);
    assert_null(strstr(text, "bar"));
    crew_rig_remove(&rig);
}

static void a_console_that_nobody_reads_any_more_does_not_end_the_job(void **state)
{
    const struct crew_rig_setup setup = {
        .script = "echo talk >&2; echo result",
        .processes = 2,
        .grace_s = 10.0,
        .leaves_stderr = true,
    };
    static struct crew_rig rig;
    char text[CREW_RIG_TEXT_BYTES];

    (void)state;
    crew_rig_start_as(&rig, &setup);
    assert_int_equal(crew_rig_finish(&rig), 0);
    assert_string_equal(rig.out_text, "result\n");
    crew_rig_read_log(&rig, 1, text);
    assert_int_equal(crew_rig_count(text, "\ntalk\n"), 1);
    crew_rig_remove(&rig);
}

static void the_first_failing_rank_gives_the_exit_code_and_ends_the_others(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig, "if [ $RANK = 1 ]; then echo the cause >&2; exit 7; fi; exec sleep 600", 3,
                   50.0);
    assert_int_equal(crew_rig_finish(&rig), 7);
    assert_non_null(strstr(rig.err_text, "first: rank 1\ntail: the cause\n"));
    crew_rig_remove(&rig);
}

static void a_rank_killed_by_a_signal_gives_128_plus_the_signal(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig, "if [ $RANK = 2 ]; then kill -9 $$; fi; exec sleep 600", 3, 50.0);
    assert_int_equal(crew_rig_finish(&rig), 137);
    assert_non_null(strstr(rig.err_text, "first: rank 2\n"));
    crew_rig_remove(&rig);
}

static void a_rank_that_fails_because_it_was_told_to_stop_is_not_the_first(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig,
                   "if [ $RANK = 1 ]; then until grep -q ready rank-0.log; do sleep 0.02; done; "
                   "exit 7; fi; trap 'exit 9' TERM; echo ready >&2; while :; do sleep 0.02; done",
                   2, 50.0);
    assert_int_equal(crew_rig_finish(&rig), 7);
    assert_non_null(strstr(rig.err_text, "first: rank 1\n"));
    crew_rig_remove(&rig);
}

static void
the_rank_that_spoke_of_an_error_first_is_blamed_though_another_was_gone_before(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig,
                   "if [ $RANK = 1 ]; then until grep -q error rank-0.log; do sleep 0.02; done; "
                   "echo 'error: a peer is gone' >&2; exit 7; fi; trap 'exit 9' TERM; "
                   "echo 'error: the cause' >&2; while :; do sleep 0.02; done",
                   2, 50.0);
    assert_int_equal(crew_rig_finish(&rig), 9);
    assert_non_null(strstr(rig.err_text, "first: rank 0\ntail: error: the cause\n"));
    crew_rig_remove(&rig);
}

static void the_last_20_lines_of_stderr_are_kept_for_the_report(void **state)
{
    struct crew_rig rig;

    (void)state;
    crew_rig_start(&rig,
                   "i=1; while [ $i -le 30 ]; do echo line $i. >&2; i=$((i + 1)); done; exit 2", 1,
                   10.0);
    assert_int_equal(crew_rig_finish(&rig), 2);
    assert_int_equal(crew_rig_count(rig.err_text, "tail: line "), 20);
    assert_non_null(strstr(rig.err_text, "first: rank 0\ntail: line 11.\n"));
    assert_non_null(strstr(rig.err_text, "tail: line 30.\n"));
    crew_rig_remove(&rig);
}

/* A crew in this process, for what its caller sees of it. */
static enum status run_here(const char *dir, const char *program, char *seconds,
                            struct crew_outcome *outcome)
{
    char *arguments[] = {(char[]){"sleep"}, seconds, NULL};
    const struct crew_config config = {
        .program = program,
        .arguments = arguments,
        .processes = 2,
        .log_dir = dir,
        .job = "job",
        .master_addr = "127.0.0.1",
        .master_port = 1,
        .grace_ns = CLOCK_SECOND,
        .failure_grace_ns = CLOCK_SECOND,
        .out = STDOUT_FILENO,
        .err = STDERR_FILENO,
    };
    struct crew *crew = NULL;
    enum status status = STATUS_OK;

    assert_int_equal(crew_create(&config, &crew), STATUS_OK);
    status = crew_run(crew, outcome);
    crew_destroy(&crew);
    assert_null(crew);
    return status;
}

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

static void a_crew_puts_signals_back_and_closes_what_it_opened(void **state)
{
    struct crew_rig rig = {.dir = "/tmp/test-crew-XXXXXX"};
    int before = open_descriptors();
    struct crew_outcome outcome;
    struct sigaction pipe_action;
    sigset_t mask;

    (void)state;
    assert_non_null(mkdtemp(rig.dir));
    assert_int_equal(run_here(rig.dir, "/bin/sleep", (char[]){"0"}, &outcome), STATUS_OK);
    assert_int_equal(outcome.rank, -1);
    assert_int_equal(crew_outcome_code(&outcome), 0);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &mask), 0);
    assert_false(sigismember(&mask, SIGTERM));
    assert_false(sigismember(&mask, SIGCHLD));
    assert_int_equal(sigaction(SIGPIPE, NULL, &pipe_action), 0);
    assert_true(pipe_action.sa_handler == SIG_DFL);
    crew_rig_remove(&rig);
}

static void a_program_that_cannot_be_started_is_an_error_that_leaves_nothing(void **state)
{
    struct crew_rig rig = {.dir = "/tmp/test-crew-XXXXXX"};
    int before = open_descriptors();
    struct crew_outcome outcome;

    (void)state;
    assert_non_null(mkdtemp(rig.dir));
    assert_int_equal(run_here(rig.dir, "/nonexistent/program", (char[]){"0"}, &outcome),
                     STATUS_ERR_IO);
    assert_non_null(strstr(status_last()->message, "/nonexistent/program"));
    assert_non_null(strstr(status_last()->message, "No such file"));
    assert_int_equal(open_descriptors(), before);
    crew_rig_remove(&rig);
}

static void a_rank_that_cannot_be_started_ends_those_that_run(void **state)
{
    struct crew_rig rig = {.dir = "/tmp/test-crew-XXXXXX"};
    struct crew_outcome outcome;
    char path[128];

    (void)state;
    assert_non_null(mkdtemp(rig.dir));
    /* A directory where the second rank's log should be. */
    (void)snprintf(path, sizeof(path), "%s/rank-1.log", rig.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(run_here(rig.dir, "/bin/sleep", (char[]){"600"}, &outcome), STATUS_ERR_IO);
    assert_non_null(strstr(status_last()->message, "rank-1.log"));
    crew_rig_remove(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_processes_get_torchruns_environment_and_the_job),
        cmocka_unit_test(stdout_of_rank_0_is_passed_on_as_it_is_and_the_rest_gets_a_prefix),
        cmocka_unit_test(one_process_alone_gets_no_prefix),
        cmocka_unit_test(lines_of_several_processes_never_mix),
        cmocka_unit_test(a_log_is_appended_to_unless_it_shall_begin_anew),
        cmocka_unit_test(rank_0_may_keep_stdout_and_then_its_log_has_stderr_alone),
        cmocka_unit_test(a_console_that_nobody_reads_any_more_does_not_end_the_job),
        cmocka_unit_test(the_first_failing_rank_gives_the_exit_code_and_ends_the_others),
        cmocka_unit_test(a_rank_killed_by_a_signal_gives_128_plus_the_signal),
        cmocka_unit_test(a_rank_that_fails_because_it_was_told_to_stop_is_not_the_first),
        cmocka_unit_test(
            the_rank_that_spoke_of_an_error_first_is_blamed_though_another_was_gone_before),
        cmocka_unit_test(the_last_20_lines_of_stderr_are_kept_for_the_report),
        cmocka_unit_test(a_crew_puts_signals_back_and_closes_what_it_opened),
        cmocka_unit_test(a_program_that_cannot_be_started_is_an_error_that_leaves_nothing),
        cmocka_unit_test(a_rank_that_cannot_be_started_ends_those_that_run),
    };

    return crew_rig_adopt() ? cmocka_run_group_tests(tests, NULL, NULL) : EXIT_FAILURE;
}
