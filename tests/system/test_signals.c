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

#include "tests/system/job_assert.h"

/* An order that is obeyed at once, on a machine that has other things to do too. */
#define AT_ONCE_S 5.0

static struct job job;

/* A run that would go on for hours, in its fifth step. */
static void start_long(const char *who, const char *more)
{
    job_start(&job, "exec %s --overwrite --train.steps=1000000 %s", who, more);
    job_await(&job, "step 5/");
}

static void send_and_end(int signal)
{
    job_signal(&job, job.shell, signal);
    job_end(&job);
}

/* Steps 1, 2, 3, … each in a whole line, here and in metrics.jsonl, and no weights of a run that
 * did not finish. */
static void assert_whole_steps(void)
{
    job_run(&job,
            "tail -n +2 \"$RUN/metrics.jsonl\" | awk '!/^{\"step\":[0-9]+,.*}$/ {exit 1} "
            "{split($0, part, /[:,]/); if (part[2] != NR) exit 2} END {if (NR < 5) exit 3}' && "
            "test -z \"$(tail -c 1 \"$RUN/metrics.jsonl\")\"");
    if (job.code != 0) {
        fail_msg("metrics.jsonl is not a whole line a step (%d)\n%s", job.code, job.err);
    }
    assert_false(job_has(&job, "run/model/config.json"));
}

/* Also of `weir agent`: nobody has failed. */
static void check_order(const char *who, const char *more, int signal)
{
    start_long(who, more);
    send_and_end(signal);
    job_assert_exit(&job, 128 + signal);
    job_assert_says(&job, "after this step, with a checkpoint");
    job_assert_never_says(&job, "error:");
    job_assert_never_says(&job, "failed");
    job_assert_nothing_left(&job);
    assert_whole_steps();
}

static void test_an_order_to_stop_ends_the_run_after_the_step_and_says_what_that_means(void **state)
{
    (void)state;
    check_order("./train", "--parallel.pp=4", SIGTERM);
    check_order("./train", "--parallel.pp=2", SIGINT);
    check_order("./train", "--parallel.pp=2", SIGHUP);
    check_order("./rank", "", SIGTERM);
    check_order("./rank", "", SIGINT);
}

/* What another launcher does: it tells one rank, and the others hear of it in the same step. */
static void test_one_rank_that_is_told_to_stop_stops_all_in_the_same_step(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        job_start(&job, "export WEIR_JOB=alone WORLD_SIZE=2\n"
                        "for rank in 0 1; do RANK=$rank ./rank --parallel.pp=2 --overwrite "
                        "--train.steps=1000000 & eval pid$rank=$!; done\n"
                        "wait $pid0; a=$?; wait $pid1; echo codes $a $? >&2");
        job_await(&job, "step 5/");
        job_signal(&job, job_rank(&job, told), SIGTERM);
        job_end(&job);
        job_assert_says(&job, "codes 143 143");
        job_assert_nothing_left(&job);
        assert_whole_steps();
    }
}

static void check_second(const char *who, const char *place, const char *more, int signal)
{
    job_start(&job, "WEIR_FAULT=stall@%s exec %s --overwrite %s", place, who, more);
    job_await(&job, "fault switch: stalling");
    job_signal(&job, job.shell, signal);
    job_await(&job, "a second");
    send_and_end(signal);
    job_assert_ended(&job, 128 + signal, AT_ONCE_S);
}

/* The step that the first one waits for does not end. */
static void test_a_second_signal_ends_a_run_that_hangs_at_once(void **state)
{
    (void)state;
    check_second("./train", "1:3:2", "--parallel.pp=3", SIGINT);
    check_second("./train", "0:3", "--parallel.pp=2", SIGTERM);
    check_second("./rank", "0:3", "", SIGINT);
}

/* A rank that hangs cannot end its step, so its time for a hang ends the job. */
static void test_a_rank_that_hangs_cannot_hold_a_job_that_was_told_to_stop(void **state)
{
    (void)state;
    job_start(&job, "WEIR_FAULT=stall@1:3 exec ./train --parallel.pp=3 --control.stall_after_s=2");
    job_await(&job, "fault switch: stalling");
    send_and_end(SIGTERM);
    /* stall_after_s + 5, and a second. */
    job_assert_ended(&job, job.code == 2 ? 2 : 128 + SIGTERM, 2.0 + 5.0 + 1.0);
    job_assert_says(&job, "rank 1");
}

/* Ranks that wait for one that never comes. */
static void test_a_signal_ends_the_start_too(void **state)
{
    static const int orders[] = {SIGTERM, SIGINT};

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        job_start(&job,
                  "RANK=%d WORLD_SIZE=2 WEIR_JOB=alone exec ./rank --parallel.pp=2 --overwrite",
                  rank);
        job_await_blocked(&job, orders[rank]);
        send_and_end(orders[rank]);
        job_assert_ended(&job, 128 + orders[rank], AT_ONCE_S);
        job_assert_says(&job, "the start is given up");
    }
}

static void test_a_signal_to_the_launcher_ends_a_start_that_hangs(void **state)
{
    (void)state;
    job_start(&job, "WEIR_FAULT=stall@1:start exec ./train --parallel.pp=3");
    job_await(&job, "fault switch: stalling");
    send_and_end(SIGTERM);
    job_assert_ended(&job, 128 + SIGTERM, AT_ONCE_S);
}

static void test_killing_the_launcher_leaves_nothing(void **state)
{
    (void)state;
    start_long("./train", "--parallel.pp=4");
    send_and_end(SIGKILL);
    job_assert_exit(&job, 128 + SIGKILL);
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_an_order_to_stop_ends_the_run_after_the_step_and_says_what_that_means, &job),
        JOB_TEST(test_one_rank_that_is_told_to_stop_stops_all_in_the_same_step, &job),
        JOB_TEST(test_a_second_signal_ends_a_run_that_hangs_at_once, &job),
        JOB_TEST(test_a_rank_that_hangs_cannot_hold_a_job_that_was_told_to_stop, &job),
        JOB_TEST(test_a_signal_ends_the_start_too, &job),
        JOB_TEST(test_a_signal_to_the_launcher_ends_a_start_that_hangs, &job),
        JOB_TEST(test_killing_the_launcher_leaves_nothing, &job),
    };

    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
