/* Runs that are stopped, killed or cut off while they save, and go on: to the same weights. */
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

/* H14: all others are gone by then. */
#define ENDS_WITHIN_S 15.0

static struct job job;

/* The weights of the same steps without an interruption, in "$DIR/whole". */
static void run_unbroken(const char *options)
{
    job_run(&job, "RUN=\"$DIR/whole\" exec ./train --overwrite %s", options);
    job_assert_exit(&job, 0);
}

static void run_again(const char *options)
{
    job_run(&job, "exec ./train %s", options);
}

/* Same losses, norms and learning rates in each step, in a line each, held-out losses after the same
 * steps, and the same weights. */
static void assert_like_unbroken(void)
{
    job_run(&job,
            "for run in whole run; do tail -n +2 \"$DIR/$run/metrics.jsonl\" | "
            "grep -o '^{\"step\":[^}]*\"lr\":[^,]*' > \"$DIR/$run.steps\"; done\n"
            "cmp \"$DIR/whole.steps\" \"$DIR/run.steps\" || exit 3\n"
            "for run in whole run; do sed -n "
            "'s/^{\"step\":\\([0-9]*\\),.*\\(\"valid_loss\":[^,}]*\\).*/\\1 \\2/p' "
            "\"$DIR/$run/metrics.jsonl\" > \"$DIR/$run.valid\"; done\n"
            "cmp \"$DIR/whole.valid\" \"$DIR/run.valid\" || exit 5\n"
            "cd whole/model; for file in *; do cmp $file ../../run/model/$file || exit 4; done");
    if (job.code != 0) {
        fail_msg("the resumed run differs (%d): %s%s", job.code, job.out, job.err);
    }
}

static void assert_verified(const char *step)
{
    job_run(&job, "exec \"$WEIR\" checkpoint verify \"$RUN\"");
    if (job.code != 0 || strstr(job.out, step) == NULL) {
        fail_msg("expected %s to be whole: exit code %d, %s%s", step, job.code, job.out, job.err);
    }
}

/* The step of the checkpoint that the last command says it has saved. */
static long saved_step(void)
{
    const char *at = strstr(job.err, "/checkpoints/step-");

    job_assert_says(&job, "saved ");
    return at != NULL ? strtol(at + strlen("/checkpoints/step-"), NULL, 10) : 0;
}

/* H29: TERM and INT to the launcher; another launcher's TERM to one rank is test_signals' affair. However
 * late the order comes, the run has steps left; it goes on for 20 more. */
static void check_stop(int signal, const char *layout)
{
    static const char rest[] = "--optimizer.decay_steps=100 --train.eval_every=1000000";
    char more[256];

    job_start(&job, "exec ./train --overwrite %s %s --train.steps=1000000", layout, rest);
    job_await(&job, "step 5/");
    job_signal(&job, job.shell, signal);
    job_end(&job);
    job_assert_exit(&job, 128 + signal);
    job_assert_never_says(&job, "valid loss");
    job_assert_nothing_left(&job);
    assert_false(job_has(&job, "run/model/config.json"));
    (void)snprintf(more, sizeof(more), "%s %s --train.steps=%ld", layout, rest, saved_step() + 20);
    assert_verified("is whole");
    run_again(more);
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "resumed from step ");
    run_unbroken(more);
    assert_like_unbroken();
}

static void test_a_run_that_is_told_to_stop_saves_and_goes_on_where_it_was(void **state)
{
    (void)state;
    check_stop(SIGTERM, "--parallel.pp=4");
    check_stop(SIGINT, "--parallel.pp=2");
}

#define SAVING                                                                     \
    "--parallel.pp=2 --parallel.dp=2 --train.num_microbatches=2 --train.steps=12 " \
    "--checkpoint.every=5"

/* H14 and H20: a writer dies after 1000 bytes of its file at step 10. The first replicas have that many to
 * write. */
static void check_death_in_save(int rank)
{
    char name[32];

    job_run(&job, "WEIR_FAULT=die@%d:10:save+1000 exec ./train --overwrite " SAVING, rank);
    job_assert_ended(&job, 128 + SIGKILL, ENDS_WITHIN_S);
    (void)snprintf(name, sizeof(name), "rank %d (stage %d", rank, rank / 2);
    job_assert_says(&job, name);
    assert_false(job_has(&job, "run/checkpoints/step-00000010"));
    assert_verified("step 5");
    run_again(SAVING);
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "resumed from step 5");
    job_assert_says(&job, "warning: ");
    job_assert_says(&job, "from step 6 on it is cut off and run again");
    assert_verified("step 10");
    job_run(&job, "ls \"$RUN/checkpoints\"");
    assert_string_equal(job.out, "latest\nlock\nstep-00000005\nstep-00000010\n");
    assert_like_unbroken();
}

static void test_a_death_while_saving_leaves_the_last_checkpoint_to_go_on_from(void **state)
{
    (void)state;
    run_unbroken(SAVING);
    check_death_in_save(2);
    check_death_in_save(0);
}

/* Nobody was left to remove it. */
static void test_half_a_checkpoint_is_named_and_not_used(void **state)
{
    (void)state;
    job_run(&job,
            "WEIR_FAULT=die@0:10:save+1000 ./rank --train.steps=12 --checkpoint.every=5; test -d "
            "\"$RUN/checkpoints/step-00000010.partial\"");
    job_assert_exit(&job, 0);
    assert_verified("step 5");
    job_run(&job, "exec ./rank --train.steps=12 --checkpoint.every=5");
    job_assert_exit(&job, 0);
    job_assert_says(&job, "step-00000010.partial");
    job_assert_says(&job, "it is not used");
    job_assert_prints(&job, "resumed from step 5");
    assert_false(job_has(&job, "run/checkpoints/step-00000010.partial"));
    assert_verified("step 10");
}

static void test_a_full_disk_ends_the_run_and_harms_no_checkpoint(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank += 2) {
        job_run(&job, "WEIR_FAULT=full@%d:10:save+1000 exec ./train --overwrite " SAVING, rank);
        job_assert_exit(&job, 2);
        job_assert_says(&job, "No space left on device");
        job_assert_nothing_left(&job);
        job_run(&job, "ls \"$RUN/checkpoints\"");
        assert_string_equal(job.out, "latest\nlock\nstep-00000005\n");
        assert_verified("step 5");
    }
}

static void test_restarts_go_on_from_the_last_checkpoint(void **state)
{
    (void)state;
    run_unbroken(SAVING);
    job_run(&job, "WEIR_FAULT=die@1:8 exec \"$LAUNCH\" --max-restarts 2 train \"$CONFIG\" "
                  "--train.run_dir=\"$RUN\" --overwrite " SAVING);
    job_assert_exit(&job, 0);
    job_assert_says(&job, "restart 1 of 2");
    job_assert_prints(&job, "resumed from step 5");
    job_assert_nothing_left(&job);
    assert_like_unbroken();
    job_run(&job, "grep -c '^====' \"$RUN/logs/rank-1.log\"");
    assert_string_equal(job.out, "2\n");
}

/* Never to go on from another run is no reason to throw one's own work away. */
static void test_a_restart_goes_on_whatever_was_said_of_an_earlier_run(void **state)
{
    (void)state;
    run_unbroken(SAVING);
    job_run(&job, "WEIR_FAULT=die@1:8 exec \"$LAUNCH\" --max-restarts 2 train \"$CONFIG\" "
                  "--train.run_dir=\"$RUN\" --checkpoint.resume=never " SAVING);
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "resumed from step 5");
    assert_like_unbroken();
}

/* There is none yet; and a run that is refused is not tried again. */
static void test_a_restart_before_the_first_checkpoint_begins_again(void **state)
{
    (void)state;
    run_unbroken(SAVING);
    job_run(&job, "WEIR_FAULT=die@1:3 exec \"$LAUNCH\" --max-restarts=1 train \"$CONFIG\" "
                  "--train.run_dir=\"$RUN\" " SAVING);
    job_assert_exit(&job, 0);
    job_assert_says(&job, "restart 1 of 1");
    job_assert_never_says(&job, "resumed");
    assert_like_unbroken();
    job_run(&job, "WEIR_FAULT=full@0:5:save+10 exec ./train --overwrite " SAVING);
    job_assert_exit(&job, 2);
    job_assert_never_says(&job, "restart");
    run_again(SAVING);
    job_assert_exit(&job, 1);
    job_assert_says(&job, "no checkpoint to go on from");
}

/* 6 steps, then 6 more of the same schedule. */
static void test_a_finished_run_goes_on_to_more_steps(void **state)
{
    static const char more[] = "--parallel.pp=2 --train.steps=12 --checkpoint.every=6";

    (void)state;
    run_unbroken(more);
    run_again("--parallel.pp=2 --train.steps=6 --optimizer.decay_steps=12 --checkpoint.every=6");
    job_assert_exit(&job, 0);
    run_again("--parallel.pp=2 --train.steps=6 --optimizer.decay_steps=12 --checkpoint.every=6");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "is finished");
    run_again(more);
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "resumed from step 6");
    job_assert_says(&job, "train.steps: 6 → 12");
    assert_like_unbroken();
}

/* What every rank has read and none could use is refused late, by the rank whose file it is. */
static void test_a_refused_resume_leaves_a_finished_run_as_it_was(void **state)
{
    (void)state;
    job_run(&job, "exec ./train --parallel.pp=2 --train.steps=6 --optimizer.decay_steps=12 "
                  "--checkpoint.every=6 --trace.enabled=true");
    job_assert_exit(&job, 0);
    job_run(&job,
            "dd if=/dev/zero of=\"$RUN/checkpoints/step-00000006/shard-pp1-tp0-dp0.safetensors\" "
            "bs=1 seek=5000 count=64 conv=notrunc 2> /dev/null; cp -a \"$RUN\" \"$DIR/before\"");
    run_again("--parallel.pp=2 --train.steps=12 --optimizer.decay_steps=12 --checkpoint.every=6 "
              "--trace.enabled=true");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "expected the XXH3 sum");
    job_run(&job, "diff -r -x logs -x lock \"$DIR/before\" \"$RUN\"");
    if (job.code != 0) {
        fail_msg("the finished run has changed:\n%s", job.out);
    }
}

/* The third rank's, which no rank but it sums: it refuses, and every rank ends with the file's name. */
static void test_a_damaged_file_is_named_by_every_rank(void **state)
{
    static const char two_by_two[] = "--parallel.pp=2 --parallel.dp=2 --train.num_microbatches=2 "
                                     "--optimizer.decay_steps=12 --checkpoint.every=6";
    static const char file[] = "shard-pp1-tp0-dp0.safetensors: the checkpoint is damaged";

    (void)state;
    job_run(&job, "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" --train.steps=6 %s",
            two_by_two);
    job_assert_exit(&job, 0);
    job_run(&job,
            "dd if=/dev/zero of=\"$RUN/checkpoints/step-00000006/shard-pp1-tp0-dp0.safetensors\" "
            "bs=1 seek=5000 count=64 conv=notrunc 2> /dev/null");
    job_run(&job, "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" --train.steps=12 %s",
            two_by_two);
    job_assert_exit(&job, 1);
    job_assert_says(&job, file);
    job_assert_says(&job, "rank 2 (stage 1, replica 0) failed");
    /* Where no launcher ends the others. */
    job_run(&job,
            "export WEIR_JOB=alone WORLD_SIZE=4\n"
            "for rank in 0 1 2 3; do RANK=$rank \"$WEIR\" train \"$CONFIG\" %s --train.steps=12 "
            "--train.run_dir=\"$RUN\" 2> \"$DIR/said.$rank\" & eval pid$rank=$!; done\n"
            "codes=codes\n"
            "for rank in 0 1 2 3; do eval wait \\$pid$rank; codes=\"$codes $?\"; done\n"
            "cat \"$DIR\"/said.* >&2; grep -l '%s' \"$DIR\"/said.* | wc -l; echo $codes",
            two_by_two, file);
    if (strcmp(job.out, "4\ncodes 2 2 1 2\n") != 0) {
        fail_msg("expected all four to name the file, got \"%s\"\n%s", job.out, job.err);
    }
}

/* Its checkpoints change while it lives, so none is looked at: this one could not be used. */
static void test_a_second_start_is_refused_for_the_run_that_is_alive(void **state)
{
    static const char *const starts[] = {"./train", "./rank"};

    (void)state;
    job_run(&job, "mkdir -p \"$RUN/checkpoints/step-00000005\" && echo > "
                  "\"$RUN/checkpoints/step-00000005/manifest.json\"");
    for (int i = 0; i < 2; i++) {
        job_run(&job, "exec 9> \"$RUN/lock\"; flock -n 9 || exit 9; exec %s", starts[i]);
        job_assert_exit(&job, 1);
        job_assert_says(&job, "another run is alive");
        job_assert_never_says(&job, "manifest.json");
    }
}

/* Two before the checkpoint and two after it are four in a row. */
static void test_skipped_steps_are_counted_over_the_checkpoint(void **state)
{
    static const char skips[] = "--optimizer.decay_steps=12 --checkpoint.every=2 "
                                "--precision.max_skipped_in_a_row=4";

    (void)state;
    for (int steps = 2; steps <= 10; steps += 8) {
        job_run(&job, "WEIR_FAULT=overflow@1:any exec ./train --parallel.pp=2 --train.steps=%d %s",
                steps, skips);
        job_assert_exit(&job, steps == 2 ? 0 : 2);
    }
    job_assert_prints(&job, "resumed from step 2");
    job_assert_says(&job, "step 4: 4 steps skipped in a row");
}

static void check_refused(const char *option, const char *first, const char *second)
{
    job_run(&job, "exec ./train --parallel.pp=2 --train.steps=12 --checkpoint.every=5 %s", option);
    job_assert_exit(&job, 1);
    job_assert_says(&job, first);
    job_assert_says(&job, second);
    job_assert_never_says(&job, "[rank "); /* no process was started */
}

static void test_what_a_run_may_not_change_is_refused_before_it_starts(void **state)
{
    (void)state;
    job_run(&job,
            "WEIR_FAULT=die@0:8 ./train --parallel.pp=2 --train.steps=12 --checkpoint.every=5");
    job_assert_exit(&job, 128 + SIGKILL);
    check_refused("--model.hidden_size=64", "model.hidden_size 32 → 64", "step-00000005");
    check_refused("--parallel.pp=1", "parallel.pp 2 → 1", "layout");
    check_refused("--train.seed=7", "train.seed 1234 → 7", "checkpoint.allow_change");
    check_refused("--checkpoint.resume=never", "checkpoint.resume is never", "--overwrite");
    check_refused("--checkpoint.dir=elsewhere --checkpoint.resume=must",
                  "checkpoint.resume is must", "elsewhere");
    job_run(
        &job,
        "dd if=/dev/zero of=\"$RUN/checkpoints/step-00000005/shard-pp1-tp0-dp0.safetensors\" bs=1 "
        "seek=5000 count=64 conv=notrunc 2> /dev/null; exec \"$WEIR\" checkpoint verify \"$RUN\"");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "shard-pp1-tp0-dp0.safetensors");
    job_assert_says(&job, "expected the XXH3 sum");
    run_again("--parallel.pp=2 --train.steps=12 --checkpoint.every=5");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "shard-pp1-tp0-dp0.safetensors");
}

/* The same name and the same number of bytes: the launcher sees it before it starts a process, and a stage
 * process that nobody has looked for sees it too. */
static void test_a_changed_text_is_refused_unless_it_is_asked_for(void **state)
{
    static const char *const starts[] = {"\"$LAUNCH\"", "\"$WEIR\""};

    (void)state;
    run_again("--train.steps=4 --optimizer.decay_steps=12 --checkpoint.every=4");
    job_assert_exit(&job, 0);
    job_run(&job, "printf '#' | dd of=\"$TEXT\" bs=1 seek=2000 conv=notrunc 2> /dev/null; "
                  "wc -c < \"$TEXT\"");
    assert_string_equal(job.out, "4000\n");
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        job_run(&job,
                "exec %s train \"$CONFIG\" --train.run_dir=\"$RUN\" --train.steps=8 "
                "--optimizer.decay_steps=12 --checkpoint.every=4",
                starts[i]);
        job_assert_exit(&job, 1);
        job_assert_says(&job, "step-00000004 cannot be resumed with another training set");
        job_assert_says(&job, "text.txt: 4000 bytes, XXH3 ");
        job_assert_says(&job, " → 4000 bytes, XXH3 ");
        job_assert_says(&job, "name data.train in checkpoint.allow_change");
        job_assert_never_says(&job, "[rank "); /* the launcher started none */
        job_assert_nothing_left(&job);
    }
    run_again("--train.steps=8 --optimizer.decay_steps=12 --checkpoint.every=4 "
              "--checkpoint.allow_change=[data]");
    job_assert_exit(&job, 0);
    job_assert_says(&job, "resumed with another content of data.train, ");
    job_assert_prints(&job, "resumed from step 4");
    job_run(&job, "exec \"$WEIR\" checkpoint inspect \"$RUN\"");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "of a file of 4000 bytes, XXH3 ");
}

/* With a held-out file of its own nothing is cut from the text: the same file, and another training set. */
static void test_another_part_of_the_same_text_is_refused(void **state)
{
    static const char goes_on[] = "--train.steps=8 --train.eval_every=4 --checkpoint.every=4 "
                                  "--data.valid=\"$DIR/valid.txt\"";

    (void)state;
    run_again(
        "--train.steps=4 --train.eval_every=4 --optimizer.decay_steps=8 --checkpoint.every=4");
    job_assert_exit(&job, 0);
    job_run(&job,
            "cp \"$TEXT\" \"$DIR/valid.txt\"; exec ./train --optimizer.decay_steps=8 "
            "--checkpoint.allow_change=[data.valid] %s",
            goes_on);
    job_assert_exit(&job, 1);
    job_assert_says(&job, "sequences now, and had ");
    job_assert_says(&job, "name data.train or data.split in checkpoint.allow_change");
    job_run(&job,
            "exec ./train --optimizer.decay_steps=8 "
            "--checkpoint.allow_change=[data.valid,data.split] %s",
            goes_on);
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "resumed from step 4");
}

static void test_a_checkpoint_can_be_looked_at(void **state)
{
    (void)state;
    run_again("--parallel.pp=2 --parallel.tp=2 --train.steps=4 --checkpoint.every=2");
    job_assert_exit(&job, 0);
    job_run(&job, "exec \"$WEIR\" checkpoint inspect \"$RUN/checkpoints\"");
    job_assert_exit(&job, 0);
    job_assert_prints(&job, "step         4: 4 updates, 0 skipped");
    job_assert_prints(&job, "pp 2, tp 2, dp 1");
    /* V 256, C 32, L 4, T 16: 256·32 + 16·32 + 4·(12·32² + 13·32) + 2·32 */
    job_assert_prints(&job, "59584 in 52 tensors");
    job_assert_prints(&job, "h.3.attn.c_attn.weight");
    job_run(&job, "exec \"$WEIR\" checkpoint verify \"$RUN/checkpoints/step-00000002\"");
    job_assert_exit(&job, 0);
    job_run(&job, "exec \"$WEIR\" checkpoint verify \"$DIR\"");
    job_assert_exit(&job, 1);
    job_assert_says(&job, "there is no checkpoint");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_a_run_that_is_told_to_stop_saves_and_goes_on_where_it_was, &job),
        JOB_TEST(test_a_death_while_saving_leaves_the_last_checkpoint_to_go_on_from, &job),
        JOB_TEST(test_half_a_checkpoint_is_named_and_not_used, &job),
        JOB_TEST(test_a_full_disk_ends_the_run_and_harms_no_checkpoint, &job),
        JOB_TEST(test_restarts_go_on_from_the_last_checkpoint, &job),
        JOB_TEST(test_a_restart_goes_on_whatever_was_said_of_an_earlier_run, &job),
        JOB_TEST(test_a_restart_before_the_first_checkpoint_begins_again, &job),
        JOB_TEST(test_a_finished_run_goes_on_to_more_steps, &job),
        JOB_TEST(test_a_second_start_is_refused_for_the_run_that_is_alive, &job),
        JOB_TEST(test_skipped_steps_are_counted_over_the_checkpoint, &job),
        JOB_TEST(test_a_refused_resume_leaves_a_finished_run_as_it_was, &job),
        JOB_TEST(test_a_damaged_file_is_named_by_every_rank, &job),
        JOB_TEST(test_what_a_run_may_not_change_is_refused_before_it_starts, &job),
        JOB_TEST(test_a_changed_text_is_refused_unless_it_is_asked_for, &job),
        JOB_TEST(test_another_part_of_the_same_text_is_refused, &job),
        JOB_TEST(test_a_checkpoint_can_be_looked_at, &job),
    };

    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
