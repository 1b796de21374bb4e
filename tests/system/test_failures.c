/* A rank that dies or hangs ends the job by name, within its time, and leaves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/system/job.h"

#define ENDS_WITHIN_S 15.0

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

static void assert_nothing_is_left(void)
{
    assert_int_equal(job_processes(&job, 3.0), 0);
    assert_int_equal(job_names(&job), 0);
}

static void assert_says(const char *text)
{
    if (strstr(job.err, text) == NULL) {
        fail_msg("expected \"%s\" in:\n%s", text, job.err);
    }
}

static void check_death(const char *place, int rank)
{
    char name[32];

    job_run(&job, 40.0,
            "WEIR_FAULT=die@%d:%s exec \"$LAUNCH\" train \"$CONFIG\" "
            "--parallel.pp=3 --train.run_dir=\"$RUN\" --overwrite",
            rank, place);
    if (job.code != 128 + SIGKILL || job.seconds > ENDS_WITHIN_S) {
        fail_msg("die@%d:%s: exit code %d after %.1f s\n%s", rank, place, job.code, job.seconds,
                 job.err);
    }
    (void)snprintf(name, sizeof(name), "rank %d (stage %d) failed", rank, rank);
    assert_says(name);
    assert_says("killed by signal 9");
    assert_nothing_is_left();
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

/* Ranks that somebody else starts have nobody to end them but themselves. */
static void test_without_the_launcher_the_other_ranks_end_and_name_the_lost_one(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        job_run(&job, 40.0,
                "export WEIR_JOB=alone WORLD_SIZE=3 WEIR_FAULT=die@%d:2:3\n"
                "for rank in 0 1 2; do RANK=$rank \"$WEIR\" train \"$CONFIG\" --parallel.pp=3 "
                "--train.run_dir=\"$RUN\" --overwrite 2> \"$DIR/err.$rank\" & eval pid$rank=$!; "
                "done\n"
                "wait $pid0; a=$?; wait $pid1; b=$?; wait $pid2; c=$?\n"
                "for rank in 0 1 2; do [ $rank = %d ] || cat \"$DIR/err.$rank\" >&2; done\n"
                "echo codes $a $b $c",
                lost, lost);
        char name[16];
        char codes[64];

        assert_true(job.code == 0 && job.seconds <= ENDS_WITHIN_S);
        (void)snprintf(codes, sizeof(codes), "codes %d %d %d", lost == 0 ? 137 : 2,
                       lost == 1 ? 137 : 2, lost == 2 ? 137 : 2);
        if (strstr(job.out, codes) == NULL) {
            fail_msg("expected \"%s\", got \"%s\"\n%s", codes, job.out, job.err);
        }
        (void)snprintf(name, sizeof(name), "rank %d", lost);
        assert_says(name);
        assert_nothing_is_left();
    }
}

static void test_a_rank_that_hangs_ends_the_job_by_name_and_action(void **state)
{
    (void)state;
    job_run(&job, 40.0,
            "WEIR_FAULT=stall@1:3:4 exec \"$LAUNCH\" train \"$CONFIG\" "
            "--parallel.pp=3 --train.run_dir=\"$RUN\" --control.stall_after_s=2");
    assert_true(job.code == 2);
    assert_true(job.seconds < 2.0 + 5.0 + 5.0);
    assert_says("rank 1");
    assert_says("step 3");
    assert_says("action 4");
    assert_nothing_is_left();
}

static void test_a_poisoned_gradient_skips_one_step_and_the_run_goes_on(void **state)
{
    (void)state;
    job_run(&job, 40.0,
            "WEIR_FAULT=poison@1:2:3 exec \"$LAUNCH\" train \"$CONFIG\" "
            "--parallel.pp=3 --train.run_dir=\"$RUN\"");
    assert_int_equal(job.code, 0);
    assert_non_null(strstr(job.out, "step 2 skipped: the gradient of "));
    assert_non_null(strstr(job.out, "rank 1"));
    assert_non_null(strstr(job.out, "skip 1"));
    assert_nothing_is_left();
}

static void test_a_hopeless_run_ends_with_its_cause(void **state)
{
    (void)state;
    job_run(&job, 40.0,
            "WEIR_FAULT=poison@0:1 exec \"$LAUNCH\" train \"$CONFIG\" "
            "--parallel.pp=2 --train.run_dir=\"$RUN\" "
            "--precision.max_skipped_in_a_row=1");
    assert_int_equal(job.code, 2);
    assert_says("precision.max_skipped_in_a_row");
    assert_says("wte.weight");
    assert_nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_rank_killed_at_the_start_ends_the_job_by_name, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_a_rank_killed_in_a_step_ends_the_job_by_name, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_a_rank_killed_at_the_end_ends_the_job_by_name, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(
            test_without_the_launcher_the_other_ranks_end_and_name_the_lost_one, make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_rank_that_hangs_ends_the_job_by_name_and_action,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_poisoned_gradient_skips_one_step_and_the_run_goes_on,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_hopeless_run_ends_with_its_cause, make, remove_job),
    };

    return cmocka_run_group_tests_name("failures", tests, NULL, NULL);
}
