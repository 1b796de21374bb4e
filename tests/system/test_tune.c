/* `weir tune` as a user runs it: jobs, table, the winner's file, and what it leaves where it cannot go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/system/job_assert.h"

static struct job job;

/* Two stages, 8 sequences a step; --search keeps the number of jobs small. */
#define TUNE "\"$WEIR\" tune \"$CONFIG\" --parallel.pp=2 --train.run_dir=\"$RUNS/small\" --steps 4 "

/* No folder of jobs is left beside the run directory, and no process. */
static void assert_no_jobs_left(void)
{
    job_assert_nothing_left(&job);
    job_run(&job, "ls -d \"$RUNS\"/small-tune-* 2>/dev/null");
    assert_string_equal(job.out, "");
}

static void test_the_winner_is_written_and_trains(void **state)
{
    (void)state;
    job_run(&job, "exec " TUNE "--search micro_batch_size --verify 1");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "measured predicted");
    job_assert_prints(&job, "(as configured)");
    job_assert_prints(&job, "4 candidates");
    job_assert_prints(&job, "fastest: pp 2, tp 1, dp 1, 1f1b, ");
    job_assert_says(&job, "4 candidates are legal, 0 do not fit into memory, 4 are compared");
    job_assert_says(&job, "job 1 measured costs in ");
    job_assert_says(&job, " predicted");
    job_assert_never_says(&job, "error:");
    assert_no_jobs_left();
    /* It keeps the batch, and says what it changed. */
    job_run(&job, "cat \"$RUNS/small-tuned.yaml\"");
    job_assert_prints(&job, "# What differs:");
    job_assert_prints(&job, "  global_batch_size: 8\n");
    job_assert_prints(&job, "small-tuned\"");
    job_run(&job, "exec \"$LAUNCH\" train \"$RUNS/small-tuned.yaml\"");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "step 5/5");
    assert_true(job_has(&job, "runs/small-tuned/model/config.json"));
    assert_false(job_has(&job, "runs/small"));
}

/* Of 2 stages with 8 sequences: 8 at once do not fit, fewer do. */
static void test_the_choice_runs_under_its_memory_limit(void **state)
{
    (void)state;
    job_run(&job,
            "exec " TUNE "--search micro_batch_size --verify 1 --memory-limit 900K --out here.yaml "
            "--train.micro_batch_size=1 --train.num_microbatches=8");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "need more than 900.0 KiB a rank (train.memory_limit)");
    job_assert_never_says(&job, ", 0 do not fit into memory");
    assert_no_jobs_left();
    job_run(&job, "grep memory_limit here.yaml; exec \"$LAUNCH\" train here.yaml --train.steps=10");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "  memory_limit: 921600\n");
    job_assert_prints(&job, "step 10/10");
}

static void test_where_nothing_fits_need_and_limit_are_named_and_no_job_runs(void **state)
{
    (void)state;
    job_run(&job, "exec " TUNE "--memory-limit 64K");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "candidates fits into memory: a rank may have 64.0 KiB");
    job_assert_says(&job, "and the smallest candidate needs ");
    job_assert_never_says(&job, "job 1");
    assert_no_jobs_left();
}

static void test_a_job_that_fails_ends_it_with_that_cause_and_its_log(void **state)
{
    (void)state;
    job_run(&job, "WEIR_FAULT=die@1:3 exec " TUNE "--search micro_batch_size");
    job_assert_exit(&job, 2);
    job_assert_says(&job, "weir tune: job 1 (pp 2, tp 1, dp 1, ");
    job_assert_says(&job, "rank 1 ");
    job_assert_says(&job, "job-001.log");
    job_assert_never_says(&job, "job 2");
    job_assert_nothing_left(&job);
    assert_false(job_has(&job, "runs/small-tuned.yaml"));
    job_run(&job, "grep -c 'rank 1' \"$RUNS\"/small-tune-*/job-001.log");
    job_assert_exit(&job, 0);
}

/* Action 100 of rank 0 takes 50 ms longer, which only lines of 64 micro-batches have: the jobs that measure are
 * none of them. */
static void test_costs_that_a_run_does_not_bear_out_are_measured_again(void **state)
{
    const char *at = NULL;
    int measured = 0;

    (void)state;
    job_run(&job, "WEIR_FAULT=slow@0:any:100 exec " TUNE "--search schedule --verify 2 "
                  "--train.micro_batch_size=1 --train.num_microbatches=64");
    job_assert_exit(&job, 0);
    job_assert_says(&job, ", 1f1b, 64 x 1, ");
    job_assert_says(&job, " were predicted: its costs are measured again");
    /* Once, whatever comes of it. */
    for (at = job.err; (at = strstr(at, " measured costs in ")) != NULL; at++) {
        measured++;
    }
    assert_int_equal(measured, 2);
    assert_no_jobs_left();
}

static void test_what_no_job_could_do_is_refused_before_the_first(void **state)
{
    static const struct {
        const char *options;
        const char *says;
    } cases[] = {
        {"--data.train=nothing.txt", "cannot read nothing.txt"},
        {"--search shedule", "there is no key \"shedule\"; did you mean schedule?"},
        {"--verify many", "--verify is \"many\", expected a whole number from 0 to 100"},
        {"--steps 3", "--steps is \"3\", expected a whole number from 4 to"},
        {"--time-limit 0", "--time-limit is \"0\", expected seconds above 0"},
        {"--memory-limit much", "train.memory_limit: "},
        {"--out nowhere/x.yaml", "--out: cannot write nowhere/x.yaml"},
        {"--parallel.tp=3", "parallel.tp: expected a divisor"},
        {"--fast", "option \"--fast\" is not known"},
        {"more.yaml", "\"more.yaml\" is one CONFIG too many"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        job_run(&job, "exec " TUNE "%s", cases[i].options);
        job_assert_exit(&job, 1);
        job_assert_says(&job, cases[i].says);
        assert_false(job_has(&job, "runs"));
    }
    job_run(&job, "exec \"$WEIR\" tune");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "which CONFIG?");
    job_run(&job, "exec \"$WEIR\" tune --help");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "layers_per_stage");
}

/* Up to its first job's ranks. */
static void start_long(void)
{
    int64_t deadline_ns = clock_deadline(JOB_DEADLINE_S);

    job_start(&job, "exec " TUNE "--search micro_batch_size --train.num_microbatches=64");
    job_await(&job, "candidates are legal");
    while (job_rank(&job, 1) == 0 && clock_now_ns() < deadline_ns) {
        clock_sleep_ns(5 * CLOCK_MS);
    }
    assert_true(job_rank(&job, 1) > 0);
}

static void check_signal(int signal)
{
    start_long();
    job_signal(&job, job.shell, signal);
    job_end(&job);
    job_assert_exit(&job, 128 + signal);
    job_assert_says(&job, ": no winner is written");
    job_assert_never_says(&job, "error:");
    assert_no_jobs_left();
    assert_false(job_has(&job, "runs/small-tuned.yaml"));
}

static void test_a_signal_ends_the_running_job_and_leaves_nothing(void **state)
{
    (void)state;
    check_signal(SIGINT);
    check_signal(SIGTERM);
}

/* A job that cannot end in time is ended; where it was the first, there is nothing to tell. */
static void test_a_job_that_takes_too_long_is_ended_and_says_what_gives_more(void **state)
{
    (void)state;
    job_run(&job, "WEIR_FAULT=stall@1:3 exec " TUNE "--search micro_batch_size --time-limit 3");
    job_assert_exit(&job, 2);
    job_assert_says(&job, "weir tune: job 1 (pp 2, tp 1, dp 1, ");
    job_assert_says(&job, "when the time was up; give more with --time-limit");
    assert_no_jobs_left();
}

/* The kernel and the agent's guard see to it. */
static void test_when_it_is_killed_its_job_goes_too(void **state)
{
    (void)state;
    start_long();
    job_signal(&job, job.shell, SIGKILL);
    job_end(&job);
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_the_winner_is_written_and_trains, &job),
        JOB_TEST(test_the_choice_runs_under_its_memory_limit, &job),
        JOB_TEST(test_where_nothing_fits_need_and_limit_are_named_and_no_job_runs, &job),
        JOB_TEST(test_a_job_that_fails_ends_it_with_that_cause_and_its_log, &job),
        JOB_TEST(test_costs_that_a_run_does_not_bear_out_are_measured_again, &job),
        JOB_TEST(test_what_no_job_could_do_is_refused_before_the_first, &job),
        JOB_TEST(test_a_signal_ends_the_running_job_and_leaves_nothing, &job),
        JOB_TEST(test_a_job_that_takes_too_long_is_ended_and_says_what_gives_more, &job),
        JOB_TEST(test_when_it_is_killed_its_job_goes_too, &job),
    };

    return cmocka_run_group_tests_name("tune", tests, NULL, NULL);
}
