#include "crew_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "stages/agent/crew.h"

/* Generous: only a broken test waits as long. */
#define PATIENCE_S 60

/* More ranks than any test has. */
#define RANKS_MOST 8

bool crew_rig_adopt(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

static void print_failure(const struct crew *crew, int32_t rank, int err)
{
    const struct log_tail *tail = crew_tail(crew, rank);

    (void)dprintf(err, "first: rank %d\n", rank);
    for (size_t i = 0; i < log_tail_count(tail); i++) {
        (void)dprintf(err, "tail: %s\n", log_tail_line(tail, i));
    }
}

static _Noreturn void be_agent(const struct crew_rig *rig, const struct crew_rig_setup *setup,
                               int out, int err)
{
    char *arguments[] = {(char[]){"sh"}, (char[]){"-c"}, strdup(setup->script), NULL};
    struct crew_config config = {
        .program = "/bin/sh",
        .arguments = arguments,
        .processes = setup->processes,
        .log_dir = rig->dir,
        .truncate_logs = setup->truncate_logs,
        .job = "job-of-the-test",
        .master_addr = "127.0.0.1",
        .master_port = 29500,
        .grace_ns = (int64_t)(setup->grace_s * 1e9),
        .failure_grace_ns = (int64_t)(setup->grace_s * 1e9),
        .out = out,
        .err = err,
        .keeps_stdout = setup->keeps_stdout,
    };
    struct crew *crew = NULL;
    struct crew_outcome outcome = {.rank = -1};
    int code = CREW_RIG_REFUSED;

    /* A test that fails leaves no agent behind either. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setup->ignores_hup) {
        (void)signal(SIGHUP, SIG_IGN);
    }
    if (setup->keeps_stdout) {
        (void)dup2(out, STDOUT_FILENO);
    }
    if (chdir(rig->dir) == 0 && crew_create(&config, &crew) >= 0 && crew_run(crew, &outcome) >= 0) {
        code = crew_outcome_code(&outcome);
        if (outcome.rank >= 0) {
            print_failure(crew, outcome.rank, err);
        }
    }
    crew_destroy(&crew);
    free(arguments[2]);
    _exit(code);
}

void crew_rig_start_again(struct crew_rig *rig, const struct crew_rig_setup *setup)
{
    int out[2];
    int err[2];

    assert_true(setup->processes <= RANKS_MOST);
    rig->out_text[0] = '\0';
    rig->err_text[0] = '\0';
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    rig->pid = fork();
    assert_true(rig->pid >= 0);
    if (rig->pid == 0) {
        (void)close(out[0]);
        (void)close(err[0]);
        be_agent(rig, setup, out[1], err[1]);
    }
    (void)close(out[1]);
    (void)close(err[1]);
    rig->out = out[0];
    rig->err = err[0];
    if (setup->leaves_stderr) {
        (void)close(rig->err);
        rig->err = -1;
    }
}

void crew_rig_start_as(struct crew_rig *rig, const struct crew_rig_setup *setup)
{
    (void)snprintf(rig->dir, sizeof(rig->dir), "/tmp/test-crew-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    crew_rig_start_again(rig, setup);
}

void crew_rig_start(struct crew_rig *rig, const char *script, int32_t processes, double grace_s)
{
    const struct crew_rig_setup setup = {
        .script = script, .processes = processes, .grace_s = grace_s};

    crew_rig_start_as(rig, &setup);
}

/* False at the end of the stream. */
static bool read_some(int fd, char *text)
{
    size_t used = strlen(text);
    ssize_t got = 0;

    assert_true(used < CREW_RIG_TEXT_BYTES - 1);
    got = read(fd, text + used, CREW_RIG_TEXT_BYTES - 1 - used);
    if (got > 0) {
        text[used + (size_t)got] = '\0';
    }
    return got > 0;
}

int crew_rig_count(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

void crew_rig_wait_for(struct crew_rig *rig, const char *part, int count)
{
    int64_t deadline = clock_deadline(PATIENCE_S);

    while (crew_rig_count(rig->err_text, part) < count) {
        struct pollfd wanted = {.fd = rig->err, .events = POLLIN};

        assert_true(clock_now_ns() < deadline);
        if (poll(&wanted, 1, 1000) > 0) {
            assert_true(read_some(rig->err, rig->err_text));
        }
    }
}

int crew_rig_finish(struct crew_rig *rig)
{
    int wait_status = 0;

    while (rig->out >= 0 || rig->err >= 0) {
        struct pollfd wanted[] = {{.fd = rig->out, .events = POLLIN},
                                  {.fd = rig->err, .events = POLLIN}};

        assert_true(poll(wanted, 2, PATIENCE_S * 1000) > 0);
        if (wanted[0].revents != 0 && !read_some(rig->out, rig->out_text)) {
            (void)close(rig->out);
            rig->out = -1;
        }
        if (wanted[1].revents != 0 && !read_some(rig->err, rig->err_text)) {
            (void)close(rig->err);
            rig->err = -1;
        }
    }
    assert_int_equal(waitpid(rig->pid, &wait_status, 0), rig->pid);
    return WIFSIGNALED(wait_status) ? CREW_RIG_SIGNALLED + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

static void log_path(const struct crew_rig *rig, int rank, char path[128])
{
    (void)snprintf(path, 128, "%s/rank-%d.log", rig->dir, rank);
}

void crew_rig_read_log(const struct crew_rig *rig, int rank, char *text)
{
    char path[128];
    FILE *file = NULL;
    size_t got = 0;

    log_path(rig, rank, path);
    file = fopen(path, "r");
    assert_non_null(file);
    got = fread(text, 1, CREW_RIG_TEXT_BYTES - 1, file);
    text[got] = '\0';
    (void)fclose(file);
}

void crew_rig_nothing_is_left(void)
{
    int64_t deadline = clock_deadline(PATIENCE_S);

    while (waitpid(-1, NULL, WNOHANG) >= 0) {
        assert_true(clock_now_ns() < deadline);
        (void)usleep(1000);
    }
    assert_int_equal(errno, ECHILD);
}

void crew_rig_remove(const struct crew_rig *rig)
{
    char path[128];

    crew_rig_nothing_is_left();
    for (int rank = 0; rank < RANKS_MOST; rank++) {
        log_path(rig, rank, path);
        (void)remove(path);
    }
    assert_int_equal(rmdir(rig->dir), 0);
}
