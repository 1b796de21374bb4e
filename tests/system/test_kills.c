/* A run that is killed at any moment, saves included: its checkpoint is whole, and it goes on to the same
 * weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/system/job_assert.h"

/* In all; two of three are aimed at a save, and so many of them must have struck one. */
#define KILLS         30
#define STRIKES_LEAST 15

/* A kill that is not aimed comes so long after a run has gone on, at most. */
#define DELAY_MOST_MS 250

/* Saves that one aimed kill may come too late for. */
#define TRIES 100

/* Each step is saved, and however many the attempts come to, there are more. */
#define ENDLESS                                                          \
    "--parallel.pp=2 --optimizer.decay_steps=100 --train.log_every=100 " \
    "--checkpoint.every=1 --train.steps=1000000"

static struct job job;

/* The same moments in every run of the test, as far as a machine can. */
static uint32_t draw(uint32_t *word, uint32_t below)
{
    *word = *word * 1664525U + 1013904223U;
    return (*word >> 8) % below;
}

static void start(void)
{
    job_start(&job, "exec ./train " ENDLESS);
}

/* A rank, or (2) the launcher; where the rank is not there yet, the launcher too. */
static pid_t find_victim(uint32_t which)
{
    pid_t rank = which < 2 ? job_rank(&job, (int)which) : 0;

    return rank > 0 ? rank : job.shell;
}

static void assert_gone(void)
{
    job_end(&job);
    if (job.code == -1 || job_processes(&job, 10.0) != 0) {
        fail_msg("a killed job did not end\n%s", job.err);
    }
}

static void assert_whole(int kills)
{
    job_run(&job, "exec \"$WEIR\" checkpoint verify \"$RUN\"");
    if (job.code != 0) {
        fail_msg("after kill %d the checkpoint is not whole: %s", kills, job.err);
    }
}

/* The step whose checkpoint is being written, or was when all died; 0 where there is none. */
static long step_in_saving(void)
{
    char path[128];
    long step = 0;
    DIR *directory = NULL;
    const struct dirent *entry = NULL;

    (void)snprintf(path, sizeof(path), "%s/run/checkpoints", job.directory);
    directory = opendir(path);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (strncmp(entry->d_name, "step-", 5) == 0 && strstr(entry->d_name, ".partial") != NULL) {
            step = strtol(entry->d_name + 5, NULL, 10);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return step;
}

/* Waits until the checkpoint of a step after `step` is being written: which it is. */
static long await_save_after(long step)
{
    int64_t deadline_ns = clock_now_ns() + (int64_t)(JOB_DEADLINE_S * 1e9);
    long now = step_in_saving();

    while (now <= step) {
        if (clock_now_ns() > deadline_ns) {
            fail_msg("no checkpoint after that of step %ld is begun", step);
        }
        clock_sleep_ns(CLOCK_MS / 20);
        now = step_in_saving();
    }
    return now;
}

/* How long the save of `step` goes on from now. */
static int64_t watch_save_ns(long step)
{
    int64_t begin_ns = clock_now_ns();

    while (step_in_saving() == step &&
           clock_now_ns() - begin_ns < (int64_t)(JOB_DEADLINE_S * 1e9)) {
        clock_sleep_ns(CLOCK_MS / 20);
    }
    return clock_now_ns() - begin_ns;
}

/* Kills `victim` at some moment of a save after that of step `left`, or, where each save was over before
 * its moment came, after one. Whether the save was under way just before and just after the kill. */
static int kill_in_save(pid_t victim, long left, uint32_t *word)
{
    long step = await_save_after(left);
    int64_t lasts_ns = watch_save_ns(step);
    int under_way = 0;

    for (int try = 0; try < TRIES && !under_way; try++) {
        step = await_save_after(step);
        clock_sleep_ns(lasts_ns * (int64_t)draw(word, 1000) / 1000);
        under_way = step_in_saving() == step;
    }
    (void)kill(victim, SIGKILL);
    return under_way && step_in_saving() == step;
}

/* One attempt and its end; whether its kill has struck a save. */
static int run_and_kill(int kills, uint32_t *word)
{
    int aimed = kills % 3 != 0;
    int struck = 0;
    long left = step_in_saving();

    start();
    if (aimed || draw(word, 3) > 0) {
        job_await(&job, "resumed from step");
    }
    if (aimed) {
        struck = kill_in_save(find_victim(draw(word, 3)), left, word);
    } else {
        clock_sleep_ns(draw(word, DELAY_MOST_MS) * CLOCK_MS);
        (void)kill(find_victim(draw(word, 3)), SIGKILL);
    }
    assert_gone();
    return struck;
}

static long steps_saved(void)
{
    const char *at = NULL;

    job_run(&job, "cat \"$RUN/checkpoints/latest\"");
    at = strstr(job.out, "step-");
    return at != NULL ? strtol(at + 5, NULL, 10) : 0;
}

static void
test_a_run_killed_at_thirty_moments_comes_to_the_weights_of_an_unbroken_one(void **state)
{
    uint32_t word = 2024;
    int strikes = 0;

    (void)state;
    start();
    job_await(&job, "saved ");
    (void)kill(job.shell, SIGKILL);
    assert_gone();
    for (int kills = 1; kills < KILLS; kills++) {
        assert_whole(kills);
        strikes += run_and_kill(kills, &word);
    }
    assert_whole(KILLS);
    if (strikes < STRIKES_LEAST) {
        fail_msg("%d kills have struck a save, expected at least %d", strikes, STRIKES_LEAST);
    }
    job_run(&job,
            "for run in run whole; do RUN=\"$DIR/$run\" ./train " ENDLESS
            " --checkpoint.every=0 --train.steps=%ld || exit; done; "
            "cd whole/model; for file in *; do cmp $file ../../run/model/$file || exit 4; done",
            steps_saved() + 20);
    job_assert_exit(&job, 0);
    job_assert_nothing_left(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB_TEST(test_a_run_killed_at_thirty_moments_comes_to_the_weights_of_an_unbroken_one, &job),
    };

    return cmocka_run_group_tests_name("kills", tests, NULL, NULL);
}
