/* TERM, INT, HUP and KILL: what the run does with them, what it ends with, and that nothing stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/job.h"

/* An order that is obeyed at once, on a machine that has other things to do too. */
#define AT_ONCE_S 5.0

static struct job job;

static int make(void **state)
{
    (void)state;
    job_make(&job);
    return 0;
}

static int remove_job(void **state)
{
    (void)state;
    job_remove(&job);
    return 0;
}

/* A run that would go on for hours, in its fifth step. */
static void start_long(const char *before, const char *more)
{
    job_start(&job,
              "%s train \"$CONFIG\" --train.run_dir=\"$RUN\" --overwrite --train.steps=1000000 %s",
              before, more);
    if (!job_await(&job, "step 5/", 20.0)) {
        fail_msg("no step 5 in:\n%s%s", job.out, job.err);
    }
}

static void send_and_end(int signal)
{
    assert_int_equal(kill(job.shell, signal), 0);
    job_end(&job, job_age_s(&job) + 40.0);
}

/* Steps 1, 2, 3, … each in a whole line, here and in metrics.jsonl, and no weights of a run that
 * did not finish. */
static void assert_whole_steps(void)
{
    job_run(&job, 20.0,
            "tail -n +2 \"$RUN/metrics.jsonl\" | "
            "awk '!/^{\"step\":[0-9]+,.*}$/ {exit 1} "
            "{split($0, part, /[:,]/); if (part[2] != NR) exit 2} END {if (NR < 5) exit 3}' && "
            "test -z \"$(tail -c 1 \"$RUN/metrics.jsonl\")\"");
    if (job.code != 0) {
        fail_msg("metrics.jsonl is not a whole line a step (%d)\n%s", job.code, job.err);
    }
    assert_false(job_has(&job, "run/model/config.json"));
}

/* Also of `weir agent`: nobody has failed. */
static void check_order(const char *before, const char *more, int signal)
{
    start_long(before, more);
    send_and_end(signal);
    if (job.code != 128 + signal) {
        fail_msg("%s, signal %d: exit code %d\n%s", before, signal, job.code, job.err);
    }
    job_assert_says(&job, "after this step, with a checkpoint");
    assert_null(strstr(job.err, "error:"));
    assert_null(strstr(job.err, "failed"));
    job_assert_nothing_left(&job);
    assert_whole_steps();
}

static void test_an_order_to_stop_ends_the_run_after_the_step_and_says_what_that_means(void **state)
{
    (void)state;
    check_order("exec \"$LAUNCH\"", "--parallel.pp=4", SIGTERM);
    check_order("exec \"$LAUNCH\"", "--parallel.pp=2", SIGINT);
    check_order("exec \"$LAUNCH\"", "--parallel.pp=2", SIGHUP);
    check_order("exec \"$WEIR\"", "", SIGTERM);
    check_order("exec \"$WEIR\"", "", SIGINT);
}

/* What another launcher does: it tells one rank, and the others hear of it in the same step. */
static void test_one_rank_that_is_told_to_stop_stops_all_in_the_same_step(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        job_start(&job,
                  "export WEIR_JOB=alone WORLD_SIZE=2\n"
                  "for rank in 0 1; do RANK=$rank \"$WEIR\" train \"$CONFIG\" --parallel.pp=2 "
                  "--train.run_dir=\"$RUN\" --overwrite --train.steps=1000000 & eval pid$rank=$!; "
                  "done\n"
                  "wait $pid0; a=$?; wait $pid1; echo codes $a $? >&2");
        assert_true(job_await(&job, "step 5/", 20.0));
        assert_true(job_rank(&job, told) > 0);
        assert_int_equal(kill(job_rank(&job, told), SIGTERM), 0);
        job_end(&job, job_age_s(&job) + 20.0);
        job_assert_says(&job, "codes 143 143");
        job_assert_nothing_left(&job);
        assert_whole_steps();
    }
}

static void check_second(const char *launcher, const char *place, const char *more, int signal)
{
    double told_s = 0.0;

    job_start(&job,
              "WEIR_FAULT=stall@%s exec \"%s\" train \"$CONFIG\" --train.run_dir=\"$RUN\" "
              "--overwrite %s",
              place, launcher, more);
    assert_true(job_await(&job, "fault switch: stalling", 20.0));
    assert_int_equal(kill(job.shell, signal), 0);
    assert_true(job_await(&job, "a second", 20.0));
    told_s = job_age_s(&job);
    send_and_end(signal);
    if (job.code != 128 + signal || job.seconds - told_s > AT_ONCE_S) {
        fail_msg("%s, signal %d twice: exit code %d after %.1f s\n%s", launcher, signal, job.code,
                 job.seconds - told_s, job.err);
    }
    job_assert_nothing_left(&job);
}

/* The step that the first one waits for does not end. */
static void test_a_second_signal_ends_a_run_that_hangs_at_once(void **state)
{
    (void)state;
    check_second("$LAUNCH", "1:3:2", "--parallel.pp=3", SIGINT);
    check_second("$LAUNCH", "0:3", "--parallel.pp=2", SIGTERM);
    check_second("$WEIR", "0:3", "", SIGINT);
}

/* A rank that hangs cannot end its step, so its time for a hang ends the job. */
static void test_a_rank_that_hangs_cannot_hold_a_job_that_was_told_to_stop(void **state)
{
    (void)state;
    job_start(&job, "WEIR_FAULT=stall@1:3 exec \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=3 "
                    "--train.run_dir=\"$RUN\" --control.stall_after_s=2");
    assert_true(job_await(&job, "fault switch: stalling", 20.0));
    send_and_end(SIGTERM);
    assert_true(job.seconds < 2.0 + 5.0 + 2.0);
    assert_true(job.code == 2 || job.code == 128 + SIGTERM);
    job_assert_says(&job, "rank 1");
    job_assert_nothing_left(&job);
}

/* Ranks that wait for one that never comes. */
static void test_a_signal_ends_the_start_too(void **state)
{
    static const int orders[] = {SIGTERM, SIGINT};

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        double told_s = 0.0;

        job_start(&job,
                  "RANK=%d WORLD_SIZE=2 WEIR_JOB=alone exec \"$WEIR\" train \"$CONFIG\" "
                  "--parallel.pp=2 --train.run_dir=\"$RUN\" --overwrite",
                  rank);
        assert_true(job_await_blocked(&job, orders[rank], 20.0));
        told_s = job_age_s(&job);
        send_and_end(orders[rank]);
        if (job.code != 128 + orders[rank] || job.seconds - told_s > AT_ONCE_S) {
            fail_msg("rank %d: exit code %d after %.1f s\n%s", rank, job.code, job.seconds - told_s,
                     job.err);
        }
        job_assert_says(&job, "the start is given up");
        job_assert_nothing_left(&job);
    }
}

static void test_a_signal_to_the_launcher_ends_a_start_that_hangs(void **state)
{
    double told_s = 0.0;

    (void)state;
    job_start(&job, "WEIR_FAULT=stall@1:start exec \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=3 "
                    "--train.run_dir=\"$RUN\"");
    assert_true(job_await(&job, "fault switch: stalling", 20.0));
    told_s = job_age_s(&job);
    send_and_end(SIGTERM);
    if (job.code != 128 + SIGTERM || job.seconds - told_s > AT_ONCE_S) {
        fail_msg("exit code %d after %.1f s\n%s", job.code, job.seconds - told_s, job.err);
    }
    job_assert_nothing_left(&job);
}

static void test_killing_the_launcher_leaves_nothing(void **state)
{
    (void)state;
    start_long("exec \"$LAUNCH\"", "--parallel.pp=4");
    send_and_end(SIGKILL);
    assert_int_equal(job.code, 128 + SIGKILL);
    assert_int_equal(job_processes(&job, 5.0), 0);
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_an_order_to_stop_ends_the_run_after_the_step_and_says_what_that_means, make,
            remove_job),
        cmocka_unit_test_setup_teardown(
            test_one_rank_that_is_told_to_stop_stops_all_in_the_same_step, make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_second_signal_ends_a_run_that_hangs_at_once, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(
            test_a_rank_that_hangs_cannot_hold_a_job_that_was_told_to_stop, make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_signal_ends_the_start_too, make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_signal_to_the_launcher_ends_a_start_that_hangs, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_killing_the_launcher_leaves_nothing, make, remove_job),
    };

    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
