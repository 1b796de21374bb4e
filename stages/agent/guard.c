#include "stages/agent/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collectives/job_directory.h"

#define GONE_WITHIN_NS (2 * CLOCK_SECOND)

struct watch {
    pid_t groups[GUARD_GROUPS_MOST]; /* 0: free */
};

static void watch_note(struct watch *watch, pid_t word)
{
    pid_t wanted = word > 0 ? 0 : -word;

    for (size_t i = 0; i < GUARD_GROUPS_MOST; i++) {
        if (watch->groups[i] == wanted) {
            watch->groups[i] = word > 0 ? word : 0;
            return;
        }
    }
}

static void watch_kill(const struct watch *watch)
{
    for (size_t i = 0; i < GUARD_GROUPS_MOST; i++) {
        if (watch->groups[i] > 0) {
            (void)kill(-watch->groups[i], SIGKILL);
        }
    }
}

/* Until the killed ones are gone they still hold the lock of their job's directory. */
static void watch_wait(const struct watch *watch)
{
    int64_t deadline_ns = clock_now_ns() + GONE_WITHIN_NS;
    bool alive = true;

    while (alive && clock_now_ns() < deadline_ns) {
        alive = false;
        for (size_t i = 0; i < GUARD_GROUPS_MOST; i++) {
            alive = alive || (watch->groups[i] > 0 && kill(-watch->groups[i], 0) == 0);
        }
        if (alive) {
            clock_sleep_ns(CLOCK_MS);
        }
    }
}

/* A word on the pipe is a group that was started, or the negative of one that ended. Words are
 * shorter than PIPE_BUF, so that they come whole. */
static bool read_word(int line, pid_t *word)
{
    ssize_t got = 0;

    do {
        got = read(line, word, sizeof(*word));
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(*word);
}

static _Noreturn void stand_guard(int line)
{
    struct watch watch;
    pid_t word = 0;
    sigset_t all;

    memset(&watch, 0, sizeof(watch));
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "weir guard");
    /* The console belongs to the agent alone: a reader of it sees the end when the agent ends. */
    (void)close(STDIN_FILENO);
    (void)close(STDOUT_FILENO);
    (void)close(STDERR_FILENO);
    while (read_word(line, &word)) {
        watch_note(&watch, word);
    }
    watch_kill(&watch);
    watch_wait(&watch);
    job_directory_sweep();
    _exit(EXIT_SUCCESS);
}

enum status guard_start(struct guard *guard_out)
{
    int ends[2];
    pid_t child = 0;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return status_fail(STATUS_ERR_IO, "cannot open the guard's pipe: %s", strerror(errno));
    }
    child = fork();
    if (child == 0) {
        (void)close(ends[1]);
        stand_guard(ends[0]);
    }
    (void)close(ends[0]);
    if (child < 0) {
        (void)close(ends[1]);
        return status_fail(STATUS_ERR_IO, "cannot make the guard's process: %s", strerror(errno));
    }
    *guard_out = (struct guard){.pid = child, .line = ends[1]};
    return STATUS_OK;
}

static void tell(const struct guard *guard, pid_t word)
{
    /* A guard that was killed itself costs nothing but its help; SIGPIPE is the caller's to
     * ignore. */
    ssize_t told = write(guard->line, &word, sizeof(word));

    (void)told;
}

void guard_add(const struct guard *guard, pid_t group)
{
    tell(guard, group);
}

void guard_remove(const struct guard *guard, pid_t group)
{
    tell(guard, -group);
}

void guard_stop(struct guard *guard)
{
    if (guard->pid > 0) {
        (void)close(guard->line);
        (void)waitpid(guard->pid, NULL, 0);
    }
    *guard = (struct guard){.pid = 0, .line = -1};
}
