/*
 * Ranks as processes, one of which is killed: at the start, between rounds, inside a round. All
 * others must end soon, with its name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collectives/control.h"
#include "control_rig.h"

enum {
    WORLD = 4,
    KILLS_AFTER = 30 /* rounds */
};

/* All others end so soon, well before a minute's silence tells; and a silence that does tell, which on a
 * busy machine no living rank keeps. */
#define ENDS_WITHIN_S  30.0
#define FROZEN_AFTER_S 2.0

/* Where the rank to be killed is when it is. */
enum moment {
    AT_START,       /* it has come, others have not */
    BETWEEN_ROUNDS, /* its main thread works, the others wait in the next round */
    IN_ROUND,       /* it waits in a round that another does not join */
    FROZEN          /* it is stopped, not killed: only its silence tells */
};

/* Shared between the processes. */
struct stage {
    struct control_rig rig;
    enum moment moment;
    int32_t victim;
    int ready; /* the victim is where it is to be killed */
};

static struct stage *stage;

static void stand_still(void)
{
    __atomic_store_n(&stage->ready, 1, __ATOMIC_RELEASE);
    for (;;) {
        (void)pause();
    }
}

static enum status run_until_killed(struct rig_rank *self)
{
    /* The last rank that is not the victim keeps the others waiting in a round. */
    int32_t keeper = stage->victim == WORLD - 1 ? WORLD - 2 : WORLD - 1;
    bool is_victim = self->rank == stage->victim;

    for (uint64_t number = 1; number <= KILLS_AFTER; number++) {
        TRY(rig_barrier(self, number));
    }
    if (is_victim && stage->moment != IN_ROUND) {
        stand_still();
    }
    if (is_victim) {
        __atomic_store_n(&stage->ready, 1, __ATOMIC_RELEASE);
    }
    if (stage->moment == IN_ROUND && self->rank == keeper) {
        while (!cancel_requested(&self->cancel)) {
            clock_sleep_ns(CLOCK_MS);
        }
    }
    return rig_barrier(self, KILLS_AFTER + 1);
}

/* The body of a process: open, rounds, close; what happened goes to the shared stage. */
static void be_rank(struct rig_rank *self)
{
    self->config.cancel = &self->cancel;
    if (stage->moment == AT_START && self->rank == WORLD - 1 && stage->victim != WORLD - 1) {
        _exit(0); /* never comes, so the others wait in control_open() */
    }
    self->opened = control_open(&self->config, &self->control);
    (void)snprintf(self->opened_text, sizeof(self->opened_text), "%s", status_last()->message);
    if (self->opened == STATUS_OK) {
        self->ended = run_until_killed(self);
        (void)snprintf(self->cause, sizeof(self->cause), "%s",
                       control_abort_cause(self->control, &self->cause_rank));
        self->closed = control_close(&self->control);
    } else {
        memcpy(self->cause, self->opened_text, sizeof(self->cause));
        self->cause[sizeof(self->cause) - 1] = '\0';
    }
    _exit(0);
}

/* Whether the process ends within the time that a job may take to notice. */
static bool ends_soon(pid_t process)
{
    int64_t deadline_ns = clock_deadline(ENDS_WITHIN_S);

    while (waitpid(process, NULL, WNOHANG) == 0) {
        if (clock_now_ns() > deadline_ns) {
            (void)kill(process, SIGKILL);
            (void)waitpid(process, NULL, 0);
            return false;
        }
        clock_sleep_ns(CLOCK_MS);
    }
    return true;
}

/* At the start nobody says when a rank has been heard, so the test waits for rank 0's socket and
 * then a moment: a victim that was slow is killed before its HELLO, and is then missed. */
static void await_moment(void)
{
    char path[96];
    int64_t deadline_ns = clock_deadline(ENDS_WITHIN_S);

    if (stage->moment != AT_START) {
        assert_true(rig_await(&stage->ready, 1));
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/control", stage->rig.directory);
    while (access(path, F_OK) != 0 && clock_now_ns() < deadline_ns) {
        clock_sleep_ns(CLOCK_MS);
    }
    clock_sleep_ns(300 * CLOCK_MS);
}

static void kill_and_expect_its_name(enum moment moment, int32_t victim)
{
    pid_t processes[WORLD];
    char name[32];

    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stage != MAP_FAILED);
    rig_init(&stage->rig, WORLD);
    stage->moment = moment;
    stage->victim = victim;
    for (int32_t rank = 0; rank < WORLD; rank++) {
        stage->rig.ranks[rank].config.dead_after_s = moment == FROZEN ? FROZEN_AFTER_S : 60.0;
        stage->rig.ranks[rank].config.start_timeout_s = 10.0;
        processes[rank] = fork();
        assert_true(processes[rank] >= 0);
        if (processes[rank] == 0) {
            be_rank(&stage->rig.ranks[rank]);
        }
    }
    await_moment();
    assert_int_equal(kill(processes[victim], moment == FROZEN ? SIGSTOP : SIGKILL), 0);
    (void)snprintf(name, sizeof(name), "rank %d", (int)victim);
    bool all_end = true;

    for (int32_t rank = 0; rank < WORLD; rank++) {
        all_end = (rank == victim || ends_soon(processes[rank])) && all_end;
    }
    (void)kill(processes[victim], SIGKILL);
    (void)waitpid(processes[victim], NULL, 0);
    assert_true(all_end);
    for (int32_t rank = 0; rank < WORLD; rank++) {
        const struct rig_rank *self = &stage->rig.ranks[rank];
        bool never_came = moment == AT_START && rank == WORLD - 1;

        if (rank == victim || never_came) {
            continue;
        }
        bool lost = strstr(self->cause, name) != NULL && strstr(self->cause, "was lost") != NULL;
        bool missed = moment == AT_START && (strstr(self->cause, "did not come") != NULL ||
                                             strstr(self->cause, "did not answer") != NULL);

        if (!lost && !missed) {
            fail_msg("rank %d: open %d, body %d, cause '%s'; expected %s to be lost", (int)rank,
                     (int)self->opened, (int)self->ended, self->cause, name);
        }
    }
    rig_release(&stage->rig);
    (void)munmap(stage, sizeof(*stage));
}

static void test_a_rank_killed_at_the_start_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(AT_START, 1);
}

static void test_rank_0_killed_at_the_start_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(AT_START, 0);
}

static void test_a_rank_killed_between_rounds_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(BETWEEN_ROUNDS, 2);
}

static void test_rank_0_killed_between_rounds_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(BETWEEN_ROUNDS, 0);
}

static void test_a_rank_killed_in_a_round_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(IN_ROUND, 3);
}

static void test_rank_0_killed_in_a_round_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(IN_ROUND, 0);
}

static void test_a_rank_that_falls_silent_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(FROZEN, 1);
}

static void test_rank_0_that_falls_silent_is_named(void **state)
{
    (void)state;
    kill_and_expect_its_name(FROZEN, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_killed_at_the_start_is_named),
        cmocka_unit_test(test_rank_0_killed_at_the_start_is_named),
        cmocka_unit_test(test_a_rank_killed_between_rounds_is_named),
        cmocka_unit_test(test_rank_0_killed_between_rounds_is_named),
        cmocka_unit_test(test_a_rank_killed_in_a_round_is_named),
        cmocka_unit_test(test_rank_0_killed_in_a_round_is_named),
        cmocka_unit_test(test_a_rank_that_falls_silent_is_named),
        cmocka_unit_test(test_rank_0_that_falls_silent_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
