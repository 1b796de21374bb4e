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

#include "tests/system/job.h"

/* H14: all others are gone by then. */
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

/* The weights of the same steps without an interruption, in "$DIR/whole". */
static void run_unbroken(const char *options)
{
    job_run(&job, 60.0,
            "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$DIR/whole\" --overwrite %s",
            options);
    if (job.code != 0) {
        fail_msg("the unbroken run: exit code %d\n%s", job.code, job.err);
    }
}

static void run_again(const char *options)
{
    job_run(&job, 60.0, "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" %s", options);
}

/* Same losses, norms and learning rates in each step, in a line each, held-out losses after the same
 * steps, and the same weights. */
static void assert_like_unbroken(void)
{
    job_run(&job, 20.0,
            "for run in whole run; do tail -n +2 \"$DIR/$run/metrics.jsonl\" | "
            "grep -o '^{\"step\":[^}]*\"lr\":[^,]*' > \"$DIR/$run.steps\"; done\n"
            "cmp \"$DIR/whole.steps\" \"$DIR/run.steps\" || exit 3\n"
            "for run in whole run; do sed -n "
            "'s/^{\"step\":\\([0-9]*\\),.*\\(\"valid_loss\":[^,}]*\\).*/\\1 \\2/p' "
            "\"$DIR/$run/metrics.jsonl\" > \"$DIR/$run.valid\"; done\n"
            "cmp \"$DIR/whole.valid\" \"$DIR/run.valid\" || exit 5\n"
            "for file in \"$DIR\"/whole/model/*; do "
            "cmp \"$file\" \"$RUN/model/$(basename \"$file\")\" || exit 4; done");
    if (job.code != 0) {
        fail_msg("the resumed run differs (%d): %s%s", job.code, job.out, job.err);
    }
}

static void assert_verified(const char *step)
{
    job_run(&job, 20.0, "exec \"$WEIR\" checkpoint verify \"$RUN\"");
    if (job.code != 0 || strstr(job.out, step) == NULL) {
        fail_msg("expected %s to be whole: exit code %d, %s%s", step, job.code, job.out, job.err);
    }
}

static void assert_exit(int code)
{
    if (job.code != code) {
        fail_msg("exit code %d, expected %d\n%s%s", job.code, code, job.out, job.err);
    }
}

/* H29: TERM and INT to the launcher; another launcher's TERM to one rank is test_signals' affair. */
static void check_stop(int signal, const char *options)
{
    run_unbroken(options);
    job_start(&job, "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" --overwrite %s",
              options);
    if (!job_await(&job, "step 5/", 20.0)) {
        fail_msg("no step 5 in:\n%s%s", job.out, job.err);
    }
    assert_int_equal(kill(job.shell, signal), 0);
    job_end(&job, job_age_s(&job) + ENDS_WITHIN_S);
    assert_exit(128 + signal);
    job_assert_says(&job, "saved ");
    assert_null(strstr(job.out, "valid loss"));
    job_assert_nothing_left(&job);
    assert_false(job_has(&job, "run/model/config.json"));
    assert_verified("is whole");
    run_again(options);
    assert_exit(0);
    assert_non_null(strstr(job.out, "resumed from step "));
    assert_like_unbroken();
}

static void test_a_run_that_is_told_to_stop_saves_and_goes_on_where_it_was(void **state)
{
    (void)state;
    check_stop(SIGTERM, "--parallel.pp=4 --train.steps=300 --train.eval_every=1000");
    check_stop(SIGINT, "--parallel.pp=2 --train.steps=300");
}

#define SAVING                                                                     \
    "--parallel.pp=2 --parallel.dp=2 --train.num_microbatches=2 --train.steps=12 " \
    "--checkpoint.every=5"

/* H14 and H20: a writer dies after 1000 bytes of its file at step 10. The first replicas have that many to
 * write. */
static void check_death_in_save(int rank)
{
    char name[32];

    job_run(&job, 40.0,
            "WEIR_FAULT=die@%d:10:save+1000 exec \"$LAUNCH\" train \"$CONFIG\" "
            "--train.run_dir=\"$RUN\" --overwrite " SAVING,
            rank);
    assert_exit(128 + SIGKILL);
    assert_true(job.seconds < ENDS_WITHIN_S);
    (void)snprintf(name, sizeof(name), "rank %d (stage %d", rank, rank / 2);
    job_assert_says(&job, name);
    job_assert_nothing_left(&job);
    assert_false(job_has(&job, "run/checkpoints/step-00000010"));
    assert_verified("step 5");
    run_again(SAVING);
    assert_exit(0);
    assert_non_null(strstr(job.out, "resumed from step 5"));
    job_assert_says(&job, "warning: ");
    job_assert_says(&job, "from step 6 on it is cut off and run again");
    assert_verified("step 10");
    job_run(&job, 20.0, "ls \"$RUN/checkpoints\"");
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
    job_run(&job, 40.0,
            "WEIR_FAULT=die@0:10:save+1000 \"$WEIR\" train \"$CONFIG\" --train.run_dir=\"$RUN\" "
            "--train.steps=12 --checkpoint.every=5; test -d "
            "\"$RUN/checkpoints/step-00000010.partial\"");
    assert_exit(0);
    assert_verified("step 5");
    job_run(&job, 40.0,
            "exec \"$WEIR\" train \"$CONFIG\" --train.run_dir=\"$RUN\" --train.steps=12 "
            "--checkpoint.every=5");
    assert_exit(0);
    job_assert_says(&job, "step-00000010.partial");
    job_assert_says(&job, "it is not used");
    assert_non_null(strstr(job.out, "resumed from step 5"));
    assert_false(job_has(&job, "run/checkpoints/step-00000010.partial"));
    assert_verified("step 10");
}

static void test_a_full_disk_ends_the_run_and_harms_no_checkpoint(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank += 2) {
        job_run(&job, 40.0,
                "WEIR_FAULT=full@%d:10:save+1000 exec \"$LAUNCH\" train \"$CONFIG\" "
                "--train.run_dir=\"$RUN\" --overwrite " SAVING,
                rank);
        assert_exit(2);
        job_assert_says(&job, "No space left on device");
        job_assert_nothing_left(&job);
        job_run(&job, 20.0, "ls \"$RUN/checkpoints\"");
        assert_string_equal(job.out, "latest\nlock\nstep-00000005\n");
        assert_verified("step 5");
    }
}

static void test_restarts_go_on_from_the_last_checkpoint(void **state)
{
    (void)state;
    run_unbroken(SAVING);
    job_run(&job, 60.0,
            "WEIR_FAULT=die@1:8 exec \"$LAUNCH\" --max-restarts 2 train \"$CONFIG\" "
            "--train.run_dir=\"$RUN\" --overwrite " SAVING);
    assert_exit(0);
    job_assert_says(&job, "restart 1 of 2");
    assert_non_null(strstr(job.out, "resumed from step 5"));
    job_assert_nothing_left(&job);
    assert_like_unbroken();
    job_run(&job, 10.0, "grep -c '^====' \"$RUN/logs/rank-1.log\"");
    assert_string_equal(job.out, "2\n");
}

/* Never to go on from another run is no reason to throw one's own work away. */
static void test_a_restart_goes_on_whatever_was_said_of_an_earlier_run(void **state)
{
    (void)state;
    run_unbroken(SAVING);
    job_run(&job, 60.0,
            "WEIR_FAULT=die@1:8 exec \"$LAUNCH\" --max-restarts 2 train \"$CONFIG\" "
            "--train.run_dir=\"$RUN\" --checkpoint.resume=never " SAVING);
    assert_exit(0);
    assert_non_null(strstr(job.out, "resumed from step 5"));
    assert_like_unbroken();
}

/* There is none yet; and a run that is refused is not tried again. */
static void test_a_restart_before_the_first_checkpoint_begins_again(void **state)
{
    (void)state;
    run_unbroken(SAVING);
    job_run(&job, 60.0,
            "WEIR_FAULT=die@1:3 exec \"$LAUNCH\" --max-restarts=1 train \"$CONFIG\" "
            "--train.run_dir=\"$RUN\" " SAVING);
    assert_exit(0);
    job_assert_says(&job, "restart 1 of 1");
    assert_null(strstr(job.out, "resumed"));
    assert_like_unbroken();
    job_run(&job, 60.0,
            "WEIR_FAULT=full@0:5:save+10 exec \"$LAUNCH\" train \"$CONFIG\" "
            "--train.run_dir=\"$RUN\" --overwrite " SAVING);
    assert_exit(2);
    assert_null(strstr(job.err, "restart"));
    run_again(SAVING);
    assert_exit(1);
    job_assert_says(&job, "no checkpoint to go on from");
}

/* 6 steps, then 6 more of the same schedule. */
static void test_a_finished_run_goes_on_to_more_steps(void **state)
{
    static const char more[] = "--parallel.pp=2 --train.steps=12 --checkpoint.every=6";

    (void)state;
    run_unbroken(more);
    run_again("--parallel.pp=2 --train.steps=6 --optimizer.decay_steps=12 --checkpoint.every=6");
    assert_exit(0);
    run_again("--parallel.pp=2 --train.steps=6 --optimizer.decay_steps=12 --checkpoint.every=6");
    assert_exit(0);
    assert_non_null(strstr(job.out, "is finished"));
    run_again(more);
    assert_exit(0);
    assert_non_null(strstr(job.out, "resumed from step 6"));
    job_assert_says(&job, "train.steps: 6 → 12");
    assert_like_unbroken();
}

/* What every rank has read and none could use is refused late, by the rank whose file it is. */
static void test_a_refused_resume_leaves_a_finished_run_as_it_was(void **state)
{
    (void)state;
    job_run(&job, 40.0,
            "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" --parallel.pp=2 "
            "--train.steps=6 --optimizer.decay_steps=12 --checkpoint.every=6 --trace.enabled=true");
    assert_exit(0);
    job_run(&job, 20.0,
            "dd if=/dev/zero of=\"$RUN/checkpoints/step-00000006/shard-pp1-tp0-dp0.safetensors\" "
            "bs=1 seek=5000 count=64 conv=notrunc 2> /dev/null; cp -a \"$RUN\" \"$DIR/before\"");
    run_again("--parallel.pp=2 --train.steps=12 --optimizer.decay_steps=12 --checkpoint.every=6 "
              "--trace.enabled=true");
    assert_exit(1);
    job_assert_says(&job, "expected the XXH3 sum");
    job_run(&job, 20.0, "diff -r -x logs -x lock \"$DIR/before\" \"$RUN\"");
    if (job.code != 0) {
        fail_msg("the finished run has changed:\n%s", job.out);
    }
}

/* Its checkpoints change while it lives, so none is looked at: this one could not be used. */
static void test_a_second_start_is_refused_for_the_run_that_is_alive(void **state)
{
    static const char *const launchers[] = {"$LAUNCH", "$WEIR"};

    (void)state;
    job_run(&job, 20.0,
            "mkdir -p \"$RUN/checkpoints/step-00000005\" && "
            "echo > \"$RUN/checkpoints/step-00000005/manifest.json\"");
    for (int i = 0; i < 2; i++) {
        job_run(&job, 20.0,
                "exec 9> \"$RUN/lock\"; flock -n 9 || exit 9; "
                "exec \"%s\" train \"$CONFIG\" --train.run_dir=\"$RUN\"",
                launchers[i]);
        assert_exit(1);
        job_assert_says(&job, "another run is alive");
        assert_null(strstr(job.err, "manifest.json"));
    }
}

/* Two before the checkpoint and two after it are four in a row. */
static void test_skipped_steps_are_counted_over_the_checkpoint(void **state)
{
    static const char skips[] = "--optimizer.decay_steps=12 --checkpoint.every=2 "
                                "--precision.max_skipped_in_a_row=4";

    (void)state;
    for (int steps = 2; steps <= 10; steps += 8) {
        job_run(&job, 40.0,
                "WEIR_FAULT=overflow@1:any exec \"$LAUNCH\" train \"$CONFIG\" "
                "--train.run_dir=\"$RUN\" --parallel.pp=2 --train.steps=%d %s",
                steps, skips);
        assert_exit(steps == 2 ? 0 : 2);
    }
    assert_non_null(strstr(job.out, "resumed from step 2"));
    job_assert_says(&job, "step 4: 4 steps skipped in a row");
}

static void check_refused(const char *option, const char *first, const char *second)
{
    job_run(&job, 20.0,
            "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" --parallel.pp=2 "
            "--train.steps=12 --checkpoint.every=5 %s",
            option);
    assert_exit(1);
    job_assert_says(&job, first);
    job_assert_says(&job, second);
    assert_null(strstr(job.err, "[rank ")); /* no process was started */
}

static void test_what_a_run_may_not_change_is_refused_before_it_starts(void **state)
{
    (void)state;
    job_run(&job, 40.0,
            "WEIR_FAULT=die@0:8 \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" "
            "--parallel.pp=2 --train.steps=12 --checkpoint.every=5");
    assert_exit(128 + SIGKILL);
    check_refused("--model.hidden_size=64", "model.hidden_size 32 → 64", "step-00000005");
    check_refused("--parallel.pp=1", "parallel.pp 2 → 1", "layout");
    check_refused("--train.seed=7", "train.seed 1234 → 7", "checkpoint.allow_change");
    check_refused("--checkpoint.resume=never", "checkpoint.resume is never", "--overwrite");
    check_refused("--checkpoint.dir=elsewhere --checkpoint.resume=must",
                  "checkpoint.resume is must", "elsewhere");
    job_run(&job, 20.0,
            "dd if=/dev/zero of=\"$RUN/checkpoints/step-00000005/shard-pp1-tp0-dp0.safetensors\" "
            "bs=1 seek=5000 count=64 conv=notrunc 2> /dev/null; "
            "exec \"$WEIR\" checkpoint verify \"$RUN\"");
    assert_exit(1);
    job_assert_says(&job, "shard-pp1-tp0-dp0.safetensors");
    job_assert_says(&job, "expected the XXH3 sum");
    run_again("--parallel.pp=2 --train.steps=12 --checkpoint.every=5");
    assert_exit(1);
    job_assert_says(&job, "shard-pp1-tp0-dp0.safetensors");
}

static void test_a_checkpoint_can_be_looked_at(void **state)
{
    (void)state;
    run_again("--parallel.pp=2 --parallel.tp=2 --train.steps=4 --checkpoint.every=2");
    assert_exit(0);
    job_run(&job, 20.0, "exec \"$WEIR\" checkpoint inspect \"$RUN/checkpoints\"");
    assert_exit(0);
    assert_non_null(strstr(job.out, "step         4: 4 updates, 0 skipped"));
    assert_non_null(strstr(job.out, "pp 2, tp 2, dp 1"));
    /* V 256, C 32, L 4, T 16: 256·32 + 16·32 + 4·(12·32² + 13·32) + 2·32 */
    assert_non_null(strstr(job.out, "59584 in 52 tensors"));
    assert_non_null(strstr(job.out, "h.3.attn.c_attn.weight"));
    job_run(&job, 20.0, "exec \"$WEIR\" checkpoint verify \"$RUN/checkpoints/step-00000002\"");
    assert_exit(0);
    job_run(&job, 20.0, "exec \"$WEIR\" checkpoint verify \"$DIR\"");
    assert_exit(1);
    job_assert_says(&job, "there is no checkpoint");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_run_that_is_told_to_stop_saves_and_goes_on_where_it_was, make, remove_job),
        cmocka_unit_test_setup_teardown(
            test_a_death_while_saving_leaves_the_last_checkpoint_to_go_on_from, make, remove_job),
        cmocka_unit_test_setup_teardown(test_half_a_checkpoint_is_named_and_not_used, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_a_full_disk_ends_the_run_and_harms_no_checkpoint, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_restarts_go_on_from_the_last_checkpoint, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_a_restart_goes_on_whatever_was_said_of_an_earlier_run,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_restart_before_the_first_checkpoint_begins_again,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_finished_run_goes_on_to_more_steps, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_a_second_start_is_refused_for_the_run_that_is_alive,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(test_skipped_steps_are_counted_over_the_checkpoint, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_a_refused_resume_leaves_a_finished_run_as_it_was, make,
                                        remove_job),
        cmocka_unit_test_setup_teardown(test_what_a_run_may_not_change_is_refused_before_it_starts,
                                        make, remove_job),
        cmocka_unit_test_setup_teardown(test_a_checkpoint_can_be_looked_at, make, remove_job),
    };

    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
