/* A rank that dies or hangs ends the job by name, within its time, and leaves nothing. */
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

/* A lost rank ends the job within dead_after_s + 5; the first of these is 10 unless given. */
#define DEATH_ENDS_S 15.0

/* A hang ends it within stall_after_s + 5, a frozen rank within dead_after_s + 5: both are given as 2. The
 * last second is the teardown's. */
#define STALL_ENDS_S (2.0 + 5.0 + 1.0)

static struct job job;

/* A job of `ranks` ranks, `width` of them in a stage, which are called `kind`. */
struct layout {
    const char *options;
    int ranks;
    int width;
    const char *kind;
};

static const struct layout three_stages = {"--parallel.pp=3", 3, 1, NULL};
static const struct layout two_replicas = {
    "--parallel.pp=2 --parallel.dp=2 --train.num_microbatches=2 --train.steps=8", 4, 2, "replica"};
static const struct layout two_shards = {"--parallel.pp=2 --parallel.tp=2 --train.steps=8", 4, 2,
                                         "shard"};

/* "rank 3 (stage 1, replica 1)" */
static void name_rank(const struct layout *layout, int rank, char *name, size_t name_bytes)
{
    int stage = rank / layout->width;

    if (layout->kind == NULL) {
        (void)snprintf(name, name_bytes, "rank %d (stage %d) failed", rank, stage);
    } else {
        (void)snprintf(name, name_bytes, "rank %d (stage %d, %s %d) failed", rank, stage,
                       layout->kind, rank % layout->width);
    }
}

static void check_death_in(const struct layout *layout, const char *place, int rank)
{
    char name[64];

    job_run(&job, "WEIR_FAULT=die@%d:%s exec ./train %s --overwrite", rank, place, layout->options);
    job_assert_ended(&job, 128 + SIGKILL, DEATH_ENDS_S);
    name_rank(layout, rank, name, sizeof(name));
    job_assert_says(&job, name);
    job_assert_says(&job, "killed by signal 9");
}

static void check_death(const char *place, int rank)
{
    check_death_in(&three_stages, place, rank);
}

static void test_a_rank_killed_at_the_start_ends_the_job_by_name(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        check_death("start", rank);
    }
}

static void test_a_rank_killed_in_a_step_ends_the_job_by_name(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        check_death("3", rank);
        check_death("3:5", rank);
    }
}

static void test_a_rank_killed_at_the_end_ends_the_job_by_name(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        check_death("end", rank);
    }
}

/* H14: replicas wait for each other in REDUCE, shards in every layer. */
static void test_a_killed_replica_or_shard_ends_the_job_by_name(void **state)
{
    static const struct layout *const layouts[] = {&two_replicas, &two_shards};

    (void)state;
    for (int i = 0; i < 2; i++) {
        check_death_in(layouts[i], "start", 3);
        check_death_in(layouts[i], "5", 3);
    }
}

/* Ranks that somebody else starts have nobody to end them but themselves. */
static void check_death_alone(const struct layout *layout, const char *place, int lost)
{
    char name[16];
    char codes[64] = "codes";

    job_run(&job,
            "export WEIR_JOB=alone WORLD_SIZE=%d WEIR_FAULT=die@%d:%s\n"
            "ranks=$(seq 0 %d)\n"
            "for rank in $ranks; do RANK=$rank ./rank %s --overwrite 2> \"$DIR/err.$rank\" & eval "
            "pid$rank=$!; done\n"
            "codes=codes\n"
            "for rank in $ranks; do eval wait \\$pid$rank; codes=\"$codes $?\"; done\n"
            "for rank in $ranks; do [ $rank = %d ] || cat \"$DIR/err.$rank\" >&2; done\n"
            "echo $codes",
            layout->ranks, lost, place, layout->ranks - 1, layout->options, lost);
    for (int rank = 0; rank < layout->ranks; rank++) {
        size_t used = strlen(codes);

        (void)snprintf(codes + used, sizeof(codes) - used, " %d", lost == rank ? 137 : 2);
    }
    job_assert_ended(&job, 0, DEATH_ENDS_S);
    job_assert_prints(&job, codes);
    (void)snprintf(name, sizeof(name), "rank %d", lost);
    job_assert_says(&job, name);
}

static void test_without_the_launcher_the_other_ranks_end_and_name_the_lost_one(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        check_death_alone(&three_stages, "start", lost);
        check_death_alone(&three_stages, "2:3", lost);
        check_death_alone(&three_stages, "end", lost);
    }
    check_death_alone(&two_replicas, "5", 3);
}

static void check_stall(const struct layout *layout, const char *place, const char *where)
{
    job_start(&job, "WEIR_FAULT=stall@%s exec ./train %s --overwrite --control.stall_after_s=2",
              place, layout->options);
    job_await(&job, "fault switch: stalling");
    job_end(&job);
    job_assert_ended(&job, 2, STALL_ENDS_S);
    job_assert_says(&job, "hangs: no progress for");
    job_assert_says(&job, where);
}

static void test_a_rank_that_hangs_ends_the_job_by_name_and_action(void **state)
{
    (void)state;
    check_stall(&three_stages, "0:2:1", "at stage 0, in step 2, action 1 (");
    check_stall(&three_stages, "1:3", "at stage 1, in step 3, action 0 (");
    check_stall(&three_stages, "2:3:4", "at stage 2, in step 3, action 4 (");
}

/* "rank N (host, process P) …": of whom it is said first. */
static int rank_before(const char *text)
{
    const char *at = strstr(job.err, text);

    while (at != NULL && at > job.err && strncmp(at, "rank ", 5) != 0) {
        at--;
    }
    return at != NULL && at > job.err ? (int)strtol(at + 5, NULL, 10) : -1;
}

/* Its peers wait in the same collective, and none of them is to blame. */
static void test_a_replica_or_shard_that_hangs_ends_the_job_by_name(void **state)
{
    (void)state;
    check_stall(&two_replicas, "3:3", "at stage 1, replica 1, in step 3, action 0 (");
    assert_int_equal(rank_before(" hangs: no progress for"), 3);
    check_stall(&two_shards, "1:3:2", "at stage 0, shard 1, in step 3, action 2 (");
    assert_int_equal(rank_before(" hangs: no progress for"), 1);
}

/* Not even its control thread runs: only the missing beats tell. */
static void test_a_frozen_rank_ends_the_job_by_name(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        job_start(&job, "exec ./train --parallel.pp=2 --overwrite --train.steps=1000000 "
                        "--control.heartbeat_s=0.5 --control.dead_after_s=2");
        job_await(&job, "step 5/");
        job_signal(&job, job_rank(&job, rank), SIGSTOP);
        job_end(&job);
        job_assert_ended(&job, 2, STALL_ENDS_S);
        assert_int_equal(rank_before(" was lost: no sign of life"), rank);
    }
}

static void test_a_poisoned_gradient_skips_one_step_and_the_run_goes_on(void **state)
{
    (void)state;
    job_run(&job, "WEIR_FAULT=poison@1:2 exec ./train --parallel.pp=3");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "step 2 skipped: the gradient of ");
    job_assert_prints(&job, "rank 1");
    job_assert_prints(&job, "skip 1");
    job_assert_nothing_left(&job);
}

static void test_a_hopeless_run_ends_with_its_cause(void **state)
{
    (void)state;
    job_run(
        &job,
        "WEIR_FAULT=poison@0:1 exec ./train --parallel.pp=2 --precision.max_skipped_in_a_row=1");
    job_assert_exit(&job, 2);
    job_assert_says(&job, "precision.max_skipped_in_a_row");
    job_assert_says(&job, "wte.weight");
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_a_rank_killed_at_the_start_ends_the_job_by_name, &job),
        JOB_TEST(test_a_rank_killed_in_a_step_ends_the_job_by_name, &job),
        JOB_TEST(test_a_rank_killed_at_the_end_ends_the_job_by_name, &job),
        JOB_TEST(test_a_killed_replica_or_shard_ends_the_job_by_name, &job),
        JOB_TEST(test_without_the_launcher_the_other_ranks_end_and_name_the_lost_one, &job),
        JOB_TEST(test_a_rank_that_hangs_ends_the_job_by_name_and_action, &job),
        JOB_TEST(test_a_replica_or_shard_that_hangs_ends_the_job_by_name, &job),
        JOB_TEST(test_a_frozen_rank_ends_the_job_by_name, &job),
        JOB_TEST(test_a_poisoned_gradient_skips_one_step_and_the_run_goes_on, &job),
        JOB_TEST(test_a_hopeless_run_ends_with_its_cause, &job),
    };

    return cmocka_run_group_tests_name("failures", tests, NULL, NULL);
}
