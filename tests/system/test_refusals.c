/* What cannot work is refused before anything starts: which key or file, the value, what is legal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/system/job.h"

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

/* Refused by the launcher with exit code 1, both texts in the message, and nothing made. */
static void check(const char *options, const char *first, const char *second)
{
    job_run(&job, 20.0, "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" %s", options);
    if (job.code != 1 || strstr(job.err, first) == NULL || strstr(job.err, second) == NULL) {
        fail_msg("%s: exit code %d, expected 1 with \"%s\" and \"%s\" in:\n%s", options, job.code,
                 first, second, job.err);
    }
    assert_false(job_has(&job, "run"));
    assert_int_equal(job_processes(&job, 0.0), 0);
}

static void test_keys_and_values_are_refused_by_name(void **state)
{
    (void)state;
    check("--parallel.pipe=2", "parallel.pipe", "parallel.pp");
    check("--model.num_heads=5", "model.num_heads", "32");
    check("--model.max_positions=8", "max_positions", "seq_len");
    check("--train.steps=many", "train.steps", "many");
    check("--parallel.schedule=zigzag", "zigzag", "1f1b");
    check("--train.global_batch_size=10", "global_batch_size", "8");
    check("--parallel.layers_per_stage='[1, 2]' --parallel.pp=2", "layers_per_stage", "4");
    check("--precision.dtype=fp16", "precision.dtype", "fp32");
    check("--parallel.tp=2", "parallel.tp", "1");
    check("--model.tied_embeddings=false", "model.tied_embeddings", "true");
}

static void test_data_that_cannot_be_trained_on_is_refused_by_file(void **state)
{
    (void)state;
    check("--data.train=missing.txt", "missing.txt", "data.train");
    job_run(&job, 5.0, ": > \"$DIR/empty.txt\"; printf abc > \"$DIR/short.txt\"");
    check("--data.train=empty.txt", "empty.txt", "empty");
    check("--data.train=short.txt", "short.txt", "17");
    check("--train.eval_every=1 --data.valid=missing.txt", "missing.txt", "data.valid");
}

static void test_a_world_that_is_not_the_configurations_is_refused_with_both_numbers(void **state)
{
    (void)state;
    job_run(&job, 20.0,
            "exec \"$LAUNCH\" --nproc-per-node 3 train \"$CONFIG\" --parallel.pp=2 "
            "--train.run_dir=\"$RUN\"");
    assert_int_equal(job.code, 1);
    assert_non_null(strstr(job.err, "--nproc-per-node 3"));
    assert_non_null(strstr(job.err, "2 ranks"));
    job_run(&job, 20.0,
            "RANK=0 WORLD_SIZE=3 exec \"$WEIR\" train \"$CONFIG\" --parallel.pp=2 "
            "--train.run_dir=\"$RUN\"");
    assert_int_equal(job.code, 1);
    assert_non_null(strstr(job.err, "3"));
    assert_non_null(strstr(job.err, "pp"));
}

static void test_commands_and_files_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    job_run(&job, 20.0, "exec \"$WEIR\" trian \"$CONFIG\"");
    assert_int_equal(job.code, 1);
    assert_non_null(strstr(job.err, "train"));
    job_run(&job, 20.0, "exec \"$LAUNCH\" train nowhere.yaml");
    assert_int_equal(job.code, 1);
    assert_non_null(strstr(job.err, "nowhere.yaml"));
    job_run(&job, 20.0, "exec \"$WEIR\" trace \"$DIR\"");
    assert_int_equal(job.code, 1);
    assert_non_null(strstr(job.err, "trace"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys_and_values_are_refused_by_name, make, remove_job),
        cmocka_unit_test_setup_teardown(test_data_that_cannot_be_trained_on_is_refused_by_file,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(
            test_a_world_that_is_not_the_configurations_is_refused_with_both_numbers, make,
            remove_job),
        cmocka_unit_test_setup_teardown(test_commands_and_files_that_do_not_exist_are_refused, make,
                                        remove_job),
    };

    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
