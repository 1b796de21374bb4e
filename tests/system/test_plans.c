/* Plans from files in whole jobs: refused before a start where they do not fit, and by name where one
 * rank reads another than rank 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/system/job_assert.h"

static struct job job;

static const char orders_1f1b[] = "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,"
                                  "1B3\\n";
/* Rank 1 does what it did, rank 0 one forward more before its first backward. */
static const char orders_other[] = "0F0,0F1,0F2,0B0,0B1,0F3,0B2,0B3\\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,"
                                   "1B3\\n";

static void write_plan(const char *name, const char *orders)
{
    job_run(&job, "mkdir -p \"$DIR/here\" \"$DIR/there\"; printf '%s' > \"$DIR/%s\"", orders, name);
    job_assert_exit(&job, 0);
}

/* By the launcher, and by every rank that somebody else starts, before it waits for another. */
static void check(const char *options, const char *first, const char *second)
{
    static const char *const starts[] = {
        "exec ./train",
        "RANK=0 WORLD_SIZE=2 exec ./rank",
        "RANK=1 WORLD_SIZE=2 exec ./rank",
    };

    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        job_run(&job, "%s --parallel.pp=2 --parallel.schedule=file:plan.csv %s", starts[i],
                options);
        job_assert_refused(&job, options, first, second);
    }
}

static void test_a_plan_that_does_not_fit_is_refused_by_file_line_and_both_numbers(void **state)
{
    (void)state;
    check("", "plan plan.csv: cannot be read", "No such file");
    write_plan("plan.csv", orders_1f1b);
    job_run(&job,
            "exec \"$WEIR\" plan \"$CONFIG\" --parallel.pp=2 --parallel.schedule=file:plan.csv "
            "--format summary");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "file, pp 2, 4 micro-batches");
    check("--train.num_microbatches=6", "plan plan.csv, line 1: num_microbatches is 4",
          "expected 6");
    check("--parallel.virtual_stages=2", "plan plan.csv, line 2: virtual_stages is 1",
          "expected 2");
    write_plan("plan.csv", "# three\\n0F0,0B0\\n1F0,1B0\\n2F0,2B0\\n");
    check("", "plan plan.csv, line 4: pp, the number of ranks, is 3", "expected 2");
    write_plan("plan.csv", "0F0,0B0,oops\\n1F0,1B0\\n");
    check("", "plan plan.csv, line 1, column 9: \"oops\"", "as in 2F0");
}

static void test_a_plan_that_cannot_run_is_refused_by_file_line_and_action(void **state)
{
    (void)state;
    write_plan("plan.csv", "0F0,0F1,0B1,0B0\\n1F0,1F1,1B0,1B1\\n");
    check("--train.num_microbatches=2", "plan.csv, line 1: rank 0, action", "message 0 at rank 1");
}

/* Both are settled before rank 0 makes the run directory. */
static void test_a_memory_limit_is_checked_for_the_largest_rank_before_a_start(void **state)
{
    (void)state;
    write_plan("plan.csv", orders_1f1b);
    check("--train.memory_limit=64K", "train.memory_limit", "stage 0 holds");
    job_run(
        &job,
        "exec ./train --parallel.pp=2 --parallel.tp=2 --parallel.dp=2 --train.memory_limit=64K");
    job_assert_refused(&job, "tp 2, dp 2", "64.0 KiB allowed", "stage 0, shard 0, replica 0 holds");
}

/* Four ranks by hand, those of `other` in another directory; each says its exit code at the end. */
static void run_by_hand(const char *options, int first_other)
{
    job_run(&job,
            "export WORLD_SIZE=4 WEIR_JOB=by-hand\n"
            "for r in 0 1 2 3; do\n"
            "  (if [ $r -ge %d ]; then cd there; else cd here; fi\n"
            "   RANK=$r ../rank --parallel.pp=2 --parallel.dp=2 --parallel.schedule=file:plan.csv "
            "%s 2> ../rank-$r.err\n"
            "   echo \"rank $r exits with $?\") &\n"
            "done\n"
            "wait; cat rank-?.err >&2",
            first_other, options);
}

static int count(const char *text, const char *what)
{
    int found = 0;

    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
        found++;
    }
    return found;
}

static void assert_all_exit_with(const char *code)
{
    char text[64];

    for (int rank = 0; rank < 4; rank++) {
        (void)snprintf(text, sizeof(text), "rank %d exits with %s\n", rank, code);
        if (strstr(job.out, text) == NULL) {
            fail_msg("expected \"%s\" in:\n%s\n%s", text, job.out, job.err);
        }
    }
}

/* pp 2, dp 2: ranks 2 and 3 are the replicas of the last stage. */
static void test_ranks_that_read_another_plan_are_named_by_all(void **state)
{
    (void)state;
    write_plan("here/plan.csv", orders_1f1b);
    write_plan("there/plan.csv", orders_other);
    run_by_hand("", 3);
    assert_all_exit_with("1");
    assert_int_equal(count(job.err, "rank 3: the plan differs from that of rank 0"), 4);
    assert_int_equal(count(job.err, "the line of pipeline rank 0 has hash "), 4);
    assert_int_equal(count(job.err, "read the same parallel.schedule file:plan.csv"), 4);
    if (job.seconds > 15.0) {
        fail_msg("the ranks took %.1f s", job.seconds);
    }
    job_assert_nothing_left(&job);
    run_by_hand("--overwrite", 2);
    assert_all_exit_with("1");
    assert_int_equal(count(job.err, "ranks 2, 3: the plan differs from that of rank 0"), 4);
    job_assert_nothing_left(&job);
}

static void test_the_same_plan_in_two_directories_is_one_plan(void **state)
{
    (void)state;
    write_plan("here/plan.csv", orders_1f1b);
    write_plan("there/plan.csv", orders_1f1b);
    run_by_hand("", 2);
    assert_all_exit_with("0");
    assert_int_equal(count(job.out, "step 5/5"), 1);
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_a_plan_that_does_not_fit_is_refused_by_file_line_and_both_numbers, &job),
        JOB_TEST(test_a_plan_that_cannot_run_is_refused_by_file_line_and_action, &job),
        JOB_TEST(test_a_memory_limit_is_checked_for_the_largest_rank_before_a_start, &job),
        JOB_TEST(test_ranks_that_read_another_plan_are_named_by_all, &job),
        JOB_TEST(test_the_same_plan_in_two_directories_is_one_plan, &job),
    };

    return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
