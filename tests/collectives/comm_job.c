#include "comm_job.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

#define TIME_LIMIT_S 60 /* a child that hangs is ended by its alarm */

void job_init(struct job *job, int32_t world)
{
    memset(job, 0, sizeof(*job));
    rig_init(&job->rig, world, true);
    job->cancel =
        mmap(NULL, sizeof(*job->cancel), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(job->cancel, MAP_FAILED);
}

void job_start(struct job *job, child_fn work, uint32_t messages, size_t bytes)
{
    for (int32_t rank = 0; rank < job->rig.world; rank++) {
        int order[2];
        int report[2];

        assert_int_equal(pipe2(order, O_CLOEXEC), 0);
        assert_int_equal(pipe2(report, O_CLOEXEC), 0);
        job->children[rank] = fork();
        assert_true(job->children[rank] >= 0);
        if (job->children[rank] == 0) {
            struct child child = {.job = job,
                                  .self = &job->rig.ranks[rank],
                                  .order = order[0],
                                  .report = report[1],
                                  .messages = messages,
                                  .bytes = bytes};

            (void)alarm(TIME_LIMIT_S);
            (void)close(order[1]);
            (void)close(report[0]);
            _exit(work(&child));
        }
        (void)close(order[0]);
        (void)close(report[1]);
        job->orders[rank] = order[1];
        job->reports[rank] = report[0];
    }
}

int job_end_of(struct job *job, int32_t rank)
{
    int how = 0;
    pid_t pid;

    do {
        pid = waitpid(job->children[rank], &how, 0);
    } while (pid < 0 && errno == EINTR);
    assert_int_equal(pid, job->children[rank]);
    return how;
}

void job_assert_good_end(int how)
{
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), JOB_GOOD);
}

void job_release(struct job *job)
{
    for (int32_t rank = 0; rank < job->rig.world; rank++) {
        (void)close(job->orders[rank]);
        (void)close(job->reports[rank]);
    }
    assert_int_equal(munmap(job->cancel, sizeof(*job->cancel)), 0);
    rig_release(&job->rig);
}

void job_report_middle(const struct child *child)
{
    (void)!write(child->report, "m", 1);
}

void job_await_middle(const struct job *job, int32_t rank)
{
    char byte = '\0';

    assert_int_equal(read(job->reports[rank], &byte, 1), 1);
    assert_int_equal(byte, 'm');
}

/* What a process has done to wait so far, and whether it sleeps now. */
struct sleeper {
    bool asleep;
    long waits;
};

static struct sleeper look_at(pid_t process)
{
    static const char waits[] = "voluntary_ctxt_switches:";
    struct sleeper seen = {.waits = -1};
    char path[64];
    char line[128];
    FILE *file = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)process);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        seen.asleep = seen.asleep || strncmp(line, "State:\tS", 8) == 0;
        if (strncmp(line, waits, strlen(waits)) == 0) {
            seen.waits = strtol(line + strlen(waits), NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return seen;
}

void job_await_asleep(const struct job *job, int32_t a, int32_t b)
{
    const int64_t deadline_ns = clock_deadline(60.0);
    bool both = false;

    while (!both) {
        struct sleeper before = look_at(job->children[a]);
        struct sleeper other = look_at(job->children[b]);
        struct sleeper after = look_at(job->children[a]);

        /* The same sleep before and after that of the other: it has lasted. */
        both = before.asleep && other.asleep && after.asleep && before.waits == after.waits;
        assert_true(clock_now_ns() < deadline_ns);
    }
}

void job_assert_killed(int how)
{
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGKILL);
}
