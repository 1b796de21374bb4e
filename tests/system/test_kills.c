/* A run that is killed at any moment, saves included: its checkpoint is whole, and it goes on to the same
 * weights. */
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
#include "tests/system/job.h"

#define KILLS 30

/* From the first step of an attempt, or, one time in five, from its start, to its kill. */
#define DELAY_MOST_MS 250

/* What they come to even where the machine has much else to do. */
#define STEPS_LEAST 5

/* More than so many attempts can come to; each step is saved, so that most kills strike a save. */
#define RUN "--parallel.pp=2 --train.steps=300 --train.log_every=100 --checkpoint.every=1"

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

/* The same moments in every run of the test, as far as a machine can. */
static uint32_t draw(uint32_t *word, uint32_t below)
{
    *word = *word * 1664525U + 1013904223U;
    return (*word >> 8) % below;
}

static void start(void)
{
    job_start(&job, "exec \"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" " RUN);
}

/* Kills the launcher (2), or a rank; where it is not there yet, the launcher. */
static void kill_one(uint32_t which)
{
    pid_t victim = which < 2 ? job_rank(&job, (int)which) : job.shell;

    (void)kill(victim > 0 ? victim : job.shell, SIGKILL);
    job_end(&job, job_age_s(&job) + 30.0);
    if (job.code == -1 || job_processes(&job, 10.0) != 0) {
        fail_msg("a killed job did not end\n%s", job.err);
    }
}

static void assert_whole(int kills)
{
    job_run(&job, 20.0, "exec \"$WEIR\" checkpoint verify \"$RUN\"");
    if (job.code != 0) {
        fail_msg("after kill %d the checkpoint is not whole: %s", kills, job.err);
    }
}

static long steps_saved(void)
{
    const char *at = NULL;

    job_run(&job, 20.0, "cat \"$RUN/checkpoints/latest\"");
    at = strstr(job.out, "step-");
    return at != NULL ? strtol(at + 5, NULL, 10) : 0;
}

static void
test_a_run_killed_at_thirty_moments_comes_to_the_weights_of_an_unbroken_one(void **state)
{
    uint32_t word = 2024;

    (void)state;
    start();
    assert_true(job_await(&job, "saved ", 20.0));
    kill_one(2);
    for (int kills = 1; kills < KILLS; kills++) {
        assert_whole(kills);
        start();
        if (draw(&word, 5) > 0 && !job_await(&job, "resumed from step", 20.0)) {
            fail_msg("kill %d: not resumed: %s%s", kills, job.out, job.err);
        }
        clock_sleep_ns(draw(&word, DELAY_MOST_MS) * CLOCK_MS);
        kill_one(draw(&word, 3));
    }
    assert_whole(KILLS);
    /* Or the kills have struck nothing but starts. */
    assert_true(steps_saved() >= STEPS_LEAST);
    job_run(&job, 100.0,
            "\"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$RUN\" " RUN
            " --checkpoint.every=0 && "
            "\"$LAUNCH\" train \"$CONFIG\" --train.run_dir=\"$DIR/whole\" " RUN
            " --checkpoint.every=0 && "
            "for file in \"$DIR\"/whole/model/*; do "
            "cmp \"$file\" \"$RUN/model/$(basename \"$file\")\" || exit 4; done");
    if (job.code != 0) {
        fail_msg("%d\n%s%s", job.code, job.out, job.err);
    }
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_run_killed_at_thirty_moments_comes_to_the_weights_of_an_unbroken_one, make,
            remove_job),
    };

    return cmocka_run_group_tests_name("kills", tests, NULL, NULL);
}
