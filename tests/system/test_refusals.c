/* What cannot work is refused before anything starts: which key or file, the value, what is legal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/system/job_assert.h"

static struct job job;

/* Refused by the launcher: exit code 1, both texts in the message, no rank that said anything, and
 * nothing made, logs and job directory included. */
static void check(const char *options, const char *first, const char *second)
{
    job_run(&job, "exec ./train %s", options);
    job_assert_refused(&job, options, first, second);
    if (strstr(job.err, "rank 0") != NULL) {
        fail_msg("%s: a process was started:\n%s", options, job.err);
    }
}

static void check_launcher(const char *options, const char *first, const char *second)
{
    job_run(&job, "exec \"$LAUNCH\" %s train \"$CONFIG\" --parallel.pp=2 --train.run_dir=\"$RUN\"",
            options);
    job_assert_refused(&job, options, first, second);
}

/* One stage process, as another launcher would start it. */
static void check_rank(const char *environment, const char *first, const char *second)
{
    job_run(&job, "%s exec ./rank --parallel.pp=2 ", environment);
    job_assert_refused(&job, environment, first, second);
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
    check("--precision.dtype=fp8", "precision.dtype", "fp32");
    check("--parallel.tp=3", "parallel.tp", "1, 2");
    check("--parallel.virtual_stages=2", "parallel.virtual_stages", "interleaved_1f1b");
    check("--parallel.dp=64 --parallel.pp=32", "2048 ranks", "1024");
    check("--model.tied_embeddings=maybe", "model.tied_embeddings", "true or false");
    check("--model.vocab_size=64", "model.vocab_size", "256");
    check("--parallel.pp=0", "parallel.pp", "1024");
    check("--parallel.layers_per_stage='[1, 2, 1]' --parallel.pp=2", "layers_per_stage",
          "2 counts");
    check("--optimizer.lr=nan", "optimizer.lr", "nan");
    check("--control.dead_after_s=1", "control.dead_after_s", "heartbeat_s");
    check("--bare", "--bare", "unknown key");
    check("--train.run_dir=text.txt", "text.txt", "directory");
#ifndef WEIR_CUDA
    check("--parallel.device=cuda", "parallel.device", "CPUs only");
#endif
}

static void test_data_that_cannot_be_trained_on_is_refused_by_file(void **state)
{
    (void)state;
    check("--data.train=missing.txt", "missing.txt", "data.train");
    job_run(&job, ": > \"$DIR/empty.txt\"; printf abc > \"$DIR/short.txt\"");
    check("--data.train=empty.txt", "empty.txt", "empty");
    check("--data.train=short.txt", "short.txt", "17");
    check("--train.eval_every=1 --data.valid=missing.txt", "missing.txt", "data.valid");
}

/* Little-endian u64 length, header, seventeen tokens: sixteen 5s and a 300. */
static void test_ids_out_of_range_are_refused_by_place(void **state)
{
    (void)state;
    job_run(
        &job,
        "{ printf '\\100\\000\\000\\000\\000\\000\\000\\000'\n"
        "printf '%%-64s' "
        "'{\"tokens\":{\"dtype\":\"I32\",\"shape\":[1,17],\"data_offsets\":[0,68]}}'\n"
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do printf '\\005\\000\\000\\000'; done\n"
        "printf '\\054\\001\\000\\000'; } > \"$DIR/ids.safetensors\"");
    job_assert_exit(&job, 0);
    check("--data.train=ids.safetensors", "sample 0, position 16", "found 300");
    check("--data.train=ids.safetensors", "ids.safetensors", "[0, 256)");
    check("--data.train=ids.safetensors --model.seq_len=8", "ids.safetensors", "9");
}

static void test_weights_that_cannot_be_imported_are_refused_by_file(void **state)
{
    (void)state;
    check("--checkpoint.import=missing.safetensors", "checkpoint.import", "missing.safetensors");
    check("--checkpoint.import=config.yaml", "config.yaml", "header");
    job_run(&job, "RUN=\"$DIR/begin\" exec ./rank");
    job_assert_exit(&job, 0);
    check("--checkpoint.import=begin/model/model.safetensors --checkpoint.import_prefix=x.",
          "x.wte.weight", "checkpoint.import_prefix");
    check("--checkpoint.import=begin/model/model.safetensors --model.num_layers=5 --parallel.pp=5",
          "begin/model/model.safetensors", "h.4.");
    check("--checkpoint.import=begin/model/model.safetensors --model.hidden_size=64", "wte.weight",
          "64");
}

static void test_a_world_that_is_not_the_configurations_is_refused_with_both_numbers(void **state)
{
    (void)state;
    check_launcher("--nproc-per-node 3", "--nproc-per-node 3", "2 ranks");
    job_run(&job,
            "exec \"$LAUNCH\" --nproc-per-node=4 train \"$CONFIG\" --parallel.pp=2 --parallel.tp=2 "
            "--parallel.dp=2 --train.run_dir=\"$RUN\"");
    job_assert_refused(&job, "--nproc-per-node=4", "--nproc-per-node 4",
                       "8 ranks (pp 2 \302\267 tp 2 \302\267 dp 2)");
    /* Rank 1 has nobody to wait for: it refuses by itself. */
    check_rank("RANK=0 WORLD_SIZE=3", "pp 2", "the job has 3");
    check_rank("RANK=1 WORLD_SIZE=3", "pp 2", "the job has 3");
    check_rank("", "pp 2", "the job has 1");
    check_rank("RANK=2 WORLD_SIZE=2", "rank 2", "world of 2");
    check_rank("RANK=first WORLD_SIZE=2", "RANK", "first");
    check_rank("WORLD_SIZE=2", "WORLD_SIZE is \"2\"", "RANK is not set");
    check_rank("RANK=0", "RANK is \"0\"", "WORLD_SIZE is not set");
    job_run(&job,
            "RANK=0 WORLD_SIZE=4 exec ./rank --parallel.pp=2 --parallel.tp=2 --parallel.dp=2");
    job_assert_refused(&job, "WORLD_SIZE=4", "pp 2 x tp 2 x dp 2 makes 8 ranks", "the job has 4");
}

static void test_options_that_the_launcher_cannot_follow_are_refused_by_name(void **state)
{
    (void)state;
    check_launcher("--nproc-per-node=many", "--nproc-per-node", "many");
    check_launcher("--nproc-per-node=0", "--nproc-per-node", "1024");
    check_launcher("--nnodes=2", "--nnodes", "2");
    check_launcher("--max-restarts=-1", "--max-restarts", "-1");
    check_launcher("--master-port=99999999", "--master-port", "65535");
    check_launcher("--bogus", "--bogus", "--help");
}

static void test_a_temporary_directory_that_cannot_be_used_is_refused_by_name(void **state)
{
    (void)state;
    job_run(&job, "TMPDIR=/nowhere RANK=0 WORLD_SIZE=2 exec ./rank --parallel.pp=2");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "TMPDIR");
    job_assert_says(&job, "/nowhere");
}

static void test_commands_and_files_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    job_run(&job, "exec \"$WEIR\" trian \"$CONFIG\"");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "train");
    job_run(&job, "exec \"$LAUNCH\" train nowhere.yaml");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "nowhere.yaml");
    job_run(&job, "exec \"$WEIR\" trace \"$DIR\"");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "trace");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_keys_and_values_are_refused_by_name, &job),
        JOB_TEST(test_data_that_cannot_be_trained_on_is_refused_by_file, &job),
        JOB_TEST(test_ids_out_of_range_are_refused_by_place, &job),
        JOB_TEST(test_weights_that_cannot_be_imported_are_refused_by_file, &job),
        JOB_TEST(test_options_that_the_launcher_cannot_follow_are_refused_by_name, &job),
        JOB_TEST(test_a_temporary_directory_that_cannot_be_used_is_refused_by_name, &job),
        JOB_TEST(test_a_world_that_is_not_the_configurations_is_refused_with_both_numbers, &job),
        JOB_TEST(test_commands_and_files_that_do_not_exist_are_refused, &job),
    };

    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
