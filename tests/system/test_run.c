/* Whole runs of the real binary: the same numbers whatever the processes, and what a run leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/checkpoint/safetensors.h"
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

static void train(const char *run, const char *more)
{
    job_run(&job, 60.0, "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$DIR/%s\" %s", run,
            more);
    if (job.code != 0) {
        fail_msg("%s %s: exit code %d\n%s", run, more, job.code, job.err);
    }
}

/* Losses, norms and learning rates of two runs, as they were written. */
static void assert_same_metrics(const char *a, const char *b)
{
    job_run(
        &job, 10.0,
        "for run in %s %s; do sed -n 's/.*\\(\"step\".*\"lr\":[^,]*\\).*/\\1/p' "
        "\"$DIR/$run/metrics.jsonl\" > \"$DIR/$run.numbers\"; done\n"
        "test $(wc -l < \"$DIR/%s.numbers\") = 5 && cmp \"$DIR/%s.numbers\" \"$DIR/%s.numbers\"",
        a, b, a, a, b);
    if (job.code != 0) {
        fail_msg("%s and %s have different numbers\n%s%s", a, b, job.out, job.err);
    }
}

static const struct safetensors_entry *find_weight(struct safetensors **files, int count,
                                                   const char *name)
{
    for (int i = 0; i < count; i++) {
        const struct safetensors_entry *entry = safetensors_find(files[i], name);

        if (entry != NULL) {
            return entry;
        }
    }
    return NULL;
}

/* Every tensor of the one-process run is in one shard of the other, bit for bit. */
static void assert_same_weights(const char *alone, const char *sharded, int stages)
{
    struct safetensors *one = NULL;
    struct safetensors *shards[8] = {NULL};
    char path[256];
    size_t total = 0;

    (void)snprintf(path, sizeof(path), "%s/%s/model/model.safetensors", job.directory, alone);
    assert_int_equal(safetensors_open(path, &one), STATUS_OK);
    for (int i = 0; i < stages; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s/model/model-%05d-of-%05d.safetensors",
                       job.directory, sharded, i + 1, stages);
        assert_int_equal(safetensors_open(path, &shards[i]), STATUS_OK);
        total += safetensors_count(shards[i]);
    }
    assert_int_equal(total, safetensors_count(one));
    for (size_t i = 0; i < safetensors_count(one); i++) {
        const struct safetensors_entry *entry = safetensors_at(one, i);
        const struct safetensors_entry *other = find_weight(shards, stages, entry->name);

        assert_non_null(other);
        assert_int_equal(entry->bytes, other->bytes);
        assert_memory_equal(entry->data, other->data, entry->bytes);
    }
    for (int i = 0; i < stages; i++) {
        safetensors_close(&shards[i]);
    }
    safetensors_close(&one);
}

static void test_stage_processes_train_the_bits_of_one_process(void **state)
{
    (void)state;
    train("one", "");
    train("two", "--parallel.pp=2");
    train("four", "--parallel.pp=4 --parallel.schedule=gpipe --parallel.early_send=false");
    assert_same_metrics("one", "two");
    assert_same_metrics("one", "four");
    assert_same_weights("one", "two", 2);
    assert_same_weights("one", "four", 4);
}

static void test_trace_and_evaluation_change_no_number(void **state)
{
    (void)state;
    train("plain", "--parallel.pp=3");
    train("traced", "--parallel.pp=3 --trace.enabled=true");
    train("evaluated", "--parallel.pp=3 --train.eval_every=1");
    assert_same_metrics("plain", "traced");
    assert_same_metrics("plain", "evaluated");
    assert_true(job_has(&job, "traced/trace/rank-2.json"));
    assert_false(job_has(&job, "plain/trace/rank-0.json"));
    job_run(&job, 20.0, "exec \"$WEIR\" trace \"$DIR/traced\"");
    assert_int_equal(job.code, 0);
    assert_true(job_has(&job, "traced/timeline.svg"));
    assert_true(job_has(&job, "traced/trace/trace.json"));
}

/* H32: one whole line a step, with the loss, whatever the number of stages. */
static void test_the_console_has_one_whole_line_a_step(void **state)
{
    const char *line = NULL;
    int steps = 0;

    (void)state;
    job_run(&job, 60.0,
            "exec \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=4 "
            "--train.run_dir=\"$RUN\" 2>&1");
    assert_int_equal(job.code, 0);
    for (line = job.out; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        double loss = 0.0;

        line += *line == '\n';
        if (strncmp(line, "step ", 5) == 0) {
            steps++;
            assert_int_equal(strtol(line + 5, NULL, 10), steps);
            assert_non_null(strstr(line, " | loss "));
            loss = strtod(strstr(line, " | loss ") + 8, NULL);
            assert_true(loss > 1.0 && loss < 7.0);
        } else if (*line != '\0') {
            /* Everything else is a rank's own talk, prefixed and whole. */
            assert_int_equal(strncmp(line, "[rank ", 6), 0);
        }
    }
    assert_int_equal(steps, 5);
}

static void test_a_finished_run_says_so_and_overwrite_starts_again(void **state)
{
    (void)state;
    train("run", "--parallel.pp=2");
    job_run(&job, 20.0,
            "exec \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=2 "
            "--train.run_dir=\"$RUN\"");
    assert_int_equal(job.code, 0);
    assert_non_null(strstr(job.out, "is finished"));
    assert_null(strstr(job.out, "step 1/5"));
    train("run", "--parallel.pp=2 --overwrite");
    assert_non_null(strstr(job.out, "step 5/5"));
}

static void test_an_unfinished_run_is_refused_with_the_way_out(void **state)
{
    (void)state;
    job_run(&job, 30.0,
            "WEIR_FAULT=die@0:3 \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=2 "
            "--train.run_dir=\"$RUN\"");
    assert_int_equal(job.code, 128 + SIGKILL);
    job_run(&job, 20.0,
            "exec \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=2 "
            "--train.run_dir=\"$RUN\"");
    assert_int_equal(job.code, 1);
    assert_non_null(strstr(job.err, "--train.run_dir"));
    assert_non_null(strstr(job.err, "--overwrite"));
}

static void test_two_jobs_at_once_do_not_mix(void **state)
{
    (void)state;
    job_run(
        &job, 60.0,
        "\"$LAUNCH\" train \"$CONFIG\" --parallel.pp=2 --train.run_dir=\"$DIR/a\" > \"$DIR/a.out\" "
        "2>&1 & a=$!\n"
        "\"$LAUNCH\" train \"$CONFIG\" --parallel.pp=2 --train.run_dir=\"$DIR/b\" > \"$DIR/b.out\" "
        "2>&1 & b=$!\n"
        "wait $a || exit 1; wait $b || exit 2");
    assert_int_equal(job.code, 0);
    assert_same_metrics("a", "b");
    assert_int_equal(job_names(&job), 0);
}

static void test_term_ends_the_run_after_the_step_and_says_what_that_means(void **state)
{
    (void)state;
    job_start(&job, "exec \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=2 --train.run_dir=\"$RUN\" "
                    "--train.steps=1000000");
    assert_true(job_await(&job, "step 20/", 20.0));
    assert_int_equal(kill(job.shell, SIGTERM), 0);
    job_end(&job, 40.0);
    assert_int_equal(job.code, 128 + SIGTERM);
    assert_non_null(strstr(job.err, "cannot be resumed"));
    assert_false(job_has(&job, "run/model/config.json"));
    assert_int_equal(job_processes(&job, 3.0), 0);
    assert_int_equal(job_names(&job), 0);
}

static void test_killing_the_launcher_leaves_nothing(void **state)
{
    (void)state;
    job_start(&job, "exec \"$LAUNCH\" train \"$CONFIG\" --parallel.pp=2 --train.run_dir=\"$RUN\" "
                    "--train.steps=1000000");
    assert_true(job_await(&job, "step 5/", 20.0));
    assert_int_equal(kill(job.shell, SIGKILL), 0);
    job_end(&job, 20.0);
    assert_int_equal(job_processes(&job, 10.0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stage_processes_train_the_bits_of_one_process, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_trace_and_evaluation_change_no_number, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_the_console_has_one_whole_line_a_step, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_a_finished_run_says_so_and_overwrite_starts_again,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(test_an_unfinished_run_is_refused_with_the_way_out, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_two_jobs_at_once_do_not_mix, make, remove_job),
        cmocka_unit_test_setup_teardown(
            test_term_ends_the_run_after_the_step_and_says_what_that_means, make, remove_job),
        cmocka_unit_test_setup_teardown(test_killing_the_launcher_leaves_nothing, make, remove_job),
    };

    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
