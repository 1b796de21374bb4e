/* Whole runs of the real binary: the same numbers whatever the processes, and what a run leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "stages/checkpoint/safetensors.h"
#include "tests/system/job_assert.h"

static struct job job;

static void train(const char *run, const char *more)
{
    job_run(&job, "RUN=\"$DIR/%s\" exec ./train %s", run, more);
    if (job.code != 0) {
        fail_msg("%s %s: exit code %d\n%s", run, more, job.code, job.err);
    }
}

/* The same without the launcher. */
static void train_alone(const char *run, const char *more)
{
    job_run(&job, "RUN=\"$DIR/%s\" exec env -u RANK -u WORLD_SIZE ./rank %s", run, more);
    if (job.code != 0) {
        fail_msg("%s %s: exit code %d\n%s", run, more, job.code, job.err);
    }
}

/* Losses, norms and learning rates of two runs, as they were written. */
static void assert_same_metrics(const char *a, const char *b)
{
    job_run(
        &job,
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
    train_alone("one", "");
    train("launched", "");
    train("two", "--parallel.pp=2");
    train("four", "--parallel.pp=4 --parallel.schedule=gpipe --parallel.early_send=false");
    assert_same_metrics("one", "launched");
    assert_same_metrics("one", "two");
    assert_same_metrics("one", "four");
    assert_same_weights("one", "two", 2);
    assert_same_weights("one", "four", 4);
}

/* H11: fewer micro-batches than stages, one, and as many. */
static void test_every_number_of_micro_batches_runs(void **state)
{
    static const char *const schedules[] = {"1f1b", "gpipe"};
    char more[128];

    (void)state;
    for (int m = 1; m <= 5; m++) {
        (void)snprintf(more, sizeof(more), "--train.num_microbatches=%d --overwrite", m);
        train_alone("one", more);
        for (int i = 0; i < 2; i++) {
            (void)snprintf(more, sizeof(more),
                           "--train.num_microbatches=%d --parallel.pp=4 --parallel.schedule=%s "
                           "--overwrite",
                           m, schedules[i]);
            train("four", more);
            assert_same_metrics("one", "four");
            assert_same_weights("one", "four", 4);
        }
    }
}

/* H16: every layer is somewhere, and once. */
static void test_layers_that_do_not_divide_over_the_stages_are_all_trained(void **state)
{
    (void)state;
    train_alone("one", "--model.num_layers=5");
    train("even", "--model.num_layers=5 --parallel.pp=3");
    train("listed", "--model.num_layers=5 --parallel.pp=3 --parallel.layers_per_stage='[0, 4, 1]'");
    train("more", "--model.num_layers=5 --parallel.pp=6");
    assert_same_metrics("one", "even");
    assert_same_weights("one", "even", 3);
    assert_same_metrics("one", "listed");
    assert_same_weights("one", "listed", 3);
    assert_same_metrics("one", "more");
    assert_same_weights("one", "more", 6);
}

static void test_trace_and_evaluation_change_no_number(void **state)
{
    (void)state;
    train("plain", "--parallel.pp=3");
    train("traced", "--parallel.pp=3 --trace.enabled=true");
    train("evaluated", "--parallel.pp=3 --train.eval_every=1 --trace.enabled=true");
    assert_same_metrics("plain", "traced");
    assert_same_metrics("plain", "evaluated");
    assert_true(job_has(&job, "traced/trace/rank-2.json"));
    assert_false(job_has(&job, "plain/trace/rank-0.json"));
    job_run(&job, "exec \"$WEIR\" trace \"$DIR/traced\"");
    job_assert_exit(&job, 0);
    assert_true(job_has(&job, "traced/timeline.svg"));
    assert_true(job_has(&job, "traced/trace/trace.json"));
    assert_true(job_has(&job, "traced/timeline.html"));
    job_assert_prints(&job, "critical path, ");
    job_run(&job, "exec \"$WEIR\" trace \"$DIR/traced\" --explain");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "(p-1)(F+I) = 2 x ");
    /* Five evaluations, each a span of every rank; of their actions none. */
    job_run(&job, "cat \"$DIR\"/evaluated/trace/rank-*.json | grep -c '\"cat\":\"evaluate\"'");
    job_assert_prints(&job, "15");
    job_run(&job, "cat \"$DIR\"/evaluated/trace/rank-*.json | grep -c '\"evaluation\":1'");
    job_assert_prints(&job, "0");
}

/* The fault switch puts a rank on another host: an hour ahead, and faster. */
static void test_a_rank_with_another_clock_is_told_in_the_time_of_rank_0(void **state)
{
    (void)state;
    train("plain", "--parallel.pp=3 --trace.enabled=true");
    job_run(&job, "WEIR_FAULT=skew@2:any:clock+3600000000000 RUN=\"$DIR/skewed\" exec ./train "
                  "--parallel.pp=3 --trace.enabled=true");
    job_assert_exit(&job, 0);
    assert_same_metrics("plain", "skewed");
    job_run(&job, "! grep -q weir_clock \"$DIR\"/plain/trace/rank-*.json");
    job_assert_exit(&job, 0);
    job_run(&job, "test $(cat \"$DIR\"/skewed/trace/rank-*.json | grep -c weir_clock) = 2 && "
                  "test $(grep -c weir_clock \"$DIR/skewed/trace/rank-2.json\") = 2");
    job_assert_exit(&job, 0);
    job_run(&job, "exec \"$WEIR\" trace \"$DIR/skewed\"");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "clocks: rank 2 +360000");
    job_assert_prints(&job, "; no message arrives before it was sent");
    job_run(&job, "grep -q 'clocks: rank 2 +360000' \"$DIR/skewed/timeline.html\"");
    job_assert_exit(&job, 0);
    job_run(&job, "! \"$WEIR\" trace \"$DIR/plain\" --text --summary | grep clocks:");
    job_assert_exit(&job, 0);
    /* A time that somebody has changed by two seconds, which is longer than all steps: the four gradients of the
     * last step leave rank 2 so much after they have come, but for the time that the quickest of them took. */
    job_run(&job,
            "sed -i 's/\"moved_ns\":-3600/\"moved_ns\":-3602/' \"$DIR/skewed/trace/rank-2.json\" &&"
            " exec \"$WEIR\" trace \"$DIR/skewed\" --text");
    job_assert_exit(&job, 0);
    job_assert_prints(&job,
                      "; 4 of 8 messages arrive before they were sent, the worst, from rank 2 to "
                      "rank 1, by 19");
}

static void test_a_finished_run_says_so_and_overwrite_starts_again(void **state)
{
    (void)state;
    train("run", "--parallel.pp=2");
    job_run(&job, "exec ./train --parallel.pp=2");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "is finished");
    job_assert_never_says(&job, "step 1/5");
    train("run", "--parallel.pp=2 --overwrite");
    job_assert_prints(&job, "step 5/5");
}

static void test_an_unfinished_run_is_refused_with_the_way_out(void **state)
{
    (void)state;
    job_run(&job, "WEIR_FAULT=die@0:3 ./train --parallel.pp=2");
    job_assert_exit(&job, 128 + SIGKILL);
    job_run(&job, "exec ./train --parallel.pp=2");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "--train.run_dir");
    job_assert_says(&job, "--overwrite");
}

static void test_two_jobs_at_once_do_not_mix(void **state)
{
    (void)state;
    job_run(
        &job,
        "for run in a b; do RUN=\"$DIR/$run\" ./train --parallel.pp=2 > \"$DIR/$run.out\" 2>&1 & "
        "eval $run=$!; done\n"
        "wait $a || exit 1; wait $b || exit 2");
    job_assert_exit(&job, 0);
    assert_same_metrics("a", "b");
    assert_int_equal(job_names(&job), 0);
}

/* Neither may the second job start there, nor may it touch what the first one writes. */
static void test_a_live_run_keeps_its_directory(void **state)
{
    (void)state;
    job_start(&job, "./train --parallel.pp=2 --train.steps=1000000 & live=$!\n"
                    "while [ ! -e \"$DIR/go\" ]; do sleep 0.05; done\n"
                    "for file in logs/rank-0.log metrics.jsonl; do "
                    "cp \"$RUN/$file\" \"$DIR/$(basename $file)\"; done\n"
                    "for more in --train.seed=1 --overwrite; do "
                    "./train --parallel.pp=2 $more > \"$DIR/second\" 2>&1; "
                    "echo second $? >> \"$DIR/codes\"; "
                    "cat \"$DIR/second\" >> \"$DIR/said\"; done\n"
                    "kill $live; wait $live; echo live $? >> \"$DIR/codes\"\n"
                    "for file in logs/rank-0.log metrics.jsonl; do "
                    "early=\"$DIR/$(basename $file)\"; "
                    "cmp -n $(wc -c < \"$early\") \"$early\" \"$RUN/$file\" && "
                    "echo kept >> \"$DIR/codes\"; done");
    job_await(&job, "step 5/");
    assert_int_equal(job_touch(&job, "go"), 0);
    job_end(&job);
    job_run(&job, "cat \"$DIR/codes\"; cat \"$DIR/said\" >&2");
    assert_string_equal(job.out, "second 1\nsecond 1\nlive 143\nkept\nkept\n");
    job_assert_says(&job, "another run is alive");
    job_assert_never_says(&job, "rank 0");
    job_assert_nothing_left(&job);
}

/* H19: ranks of two jobs whose launchers gave both the same address and port. */
static void test_a_second_job_at_the_same_address_is_refused_and_the_first_goes_on(void **state)
{
    (void)state;
    job_start(
        &job,
        "export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2\n"
        "for rank in 0 1; do RANK=$rank ./rank --parallel.pp=2 --train.steps=1000000 & "
        "eval pid$rank=$!; done\n"
        "while [ ! -e \"$DIR/go\" ]; do sleep 0.05; done\n"
        "RANK=0 RUN=\"$DIR/b\" ./rank --parallel.pp=2 2> \"$DIR/second\"; echo second $? >&2\n"
        "kill $pid1; wait $pid0; echo live $? >&2; cat \"$DIR/second\" >&2");
    job_await(&job, "step 5/");
    assert_int_equal(job_touch(&job, "go"), 0);
    job_end(&job);
    job_assert_says(&job, "second 1\n");
    job_assert_says(&job, "live 143\n");
    job_assert_says(&job, "belongs to a job that is running");
    job_assert_nothing_left(&job);
}

/* H30: a mount namespace of its own, where /dev/shm has 1 MiB and messages need more. */
static void test_a_small_dev_shm_does_not_matter_and_stays_empty(void **state)
{
    static const char wide[] =
        "--parallel.pp=2 --model.hidden_size=256 --train.micro_batch_size=32 --train.steps=2";

    (void)state;
    job_run(&job, "unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm'");
    if (job.code != 0) {
        skip();
    }
    job_run(&job,
            "exec unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm; "
            "RUN=\"$DIR/a\" ./train %s || exit; "
            "WEIR_FAULT=die@1:2 RUN=\"$DIR/b\" ./train %s; "
            "test $? = 137 && test -z \"$(ls -A /dev/shm)\"'",
            wide, wide);
    job_assert_exit(&job, 0);
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_stage_processes_train_the_bits_of_one_process, &job),
        JOB_TEST(test_every_number_of_micro_batches_runs, &job),
        JOB_TEST(test_layers_that_do_not_divide_over_the_stages_are_all_trained, &job),
        JOB_TEST(test_trace_and_evaluation_change_no_number, &job),
        JOB_TEST(test_a_rank_with_another_clock_is_told_in_the_time_of_rank_0, &job),
        JOB_TEST(test_a_finished_run_says_so_and_overwrite_starts_again, &job),
        JOB_TEST(test_an_unfinished_run_is_refused_with_the_way_out, &job),
        JOB_TEST(test_two_jobs_at_once_do_not_mix, &job),
        JOB_TEST(test_a_live_run_keeps_its_directory, &job),
        JOB_TEST(test_a_second_job_at_the_same_address_is_refused_and_the_first_goes_on, &job),
        JOB_TEST(test_a_small_dev_shm_does_not_matter_and_stays_empty, &job),
    };

    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
