#include "stages/agent/crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "stages/agent/blame.h"
#include "stages/agent/crew_member.h"
#include "stages/agent/guard.h"

/* How long a poll may sleep, should the news of an end get lost. */
#define LOOK_AGAIN_MS 1000

#define STREAMS 2 /* of a member */

struct crew {
    struct crew_config config;
    struct crew_member *members; /* owns */
    struct pollfd *polls;        /* owns; [0] signals, then STREAMS a member */
    struct blame_case *cases;    /* owns; one a member */
    struct sink out;
    struct sink err;
    struct guard guard;
    int signals;           /* a signalfd; -1: none */
    sigset_t old_mask;     /* of before crew_run() */
    struct sigaction pipe; /* SIGPIPE's handling of before */
    int32_t alive;
    int32_t ended;
    int stop_signal; /* the first that came from outside, 0: none */
    bool failing;    /* somebody failed; the others have been told to stop */
    bool killed;     /* everybody has been killed by us */
    int64_t kill_ns; /* when that is due; CLOCK_NEVER: not */
};

enum status crew_create(const struct crew_config *config, struct crew **crew_out)
{
    struct crew *crew = calloc(1, sizeof(*crew));
    size_t count = (size_t)config->processes;

    ENSURE(config->processes >= 1 && config->processes <= CREW_PROCESSES_MOST, "%d processes",
           config->processes);
    if (crew != NULL) {
        crew->members = calloc(count, sizeof(*crew->members));
        crew->polls = calloc(1 + STREAMS * count, sizeof(*crew->polls));
        crew->cases = calloc(count, sizeof(*crew->cases));
    }
    if (crew == NULL || crew->members == NULL || crew->polls == NULL || crew->cases == NULL) {
        crew_destroy(&crew);
        return status_fail(STATUS_ERR_NO_MEMORY, "no memory to watch %zu processes", count);
    }
    crew->config = *config;
    crew->out.fd = config->out;
    crew->err.fd = config->err;
    crew->err.shares_line = config->keeps_stdout && isatty(config->err) == 1;
    crew->guard.line = -1;
    crew->signals = -1;
    crew->kill_ns = CLOCK_NEVER;
    for (int32_t rank = 0; rank < config->processes; rank++) {
        crew_member_init(&crew->members[rank], rank);
    }
    *crew_out = crew;
    return STATUS_OK;
}

static void tell_all(struct crew *crew, int signal)
{
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        process_signal(&crew->members[rank].process, signal);
        crew->members[rank].told |= crew->members[rank].process.pid > 0;
    }
}

static void kill_all(struct crew *crew)
{
    crew->killed = true;
    crew->kill_ns = CLOCK_NEVER;
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        process_signal_group(&crew->members[rank].process, SIGKILL);
        crew->members[rank].told |= crew->members[rank].process.pid > 0;
    }
}

/* What a process is told when a signal comes for the job. */
static int told_signal(const struct crew *crew)
{
    return crew->stop_signal == SIGINT ? SIGINT : SIGTERM;
}

static void take_signal(struct crew *crew, int signal)
{
    if (crew->stop_signal != 0 || crew->failing) {
        log_info("signal %d (%s): the job is killed", signal, strsignal(signal));
        crew->stop_signal = crew->stop_signal != 0 ? crew->stop_signal : signal;
        kill_all(crew);
        return;
    }
    crew->stop_signal = signal;
    log_info("signal %d (%s): every rank ends after the step it is in, with a checkpoint; a second "
             "signal kills the job at once",
             signal, strsignal(signal));
    tell_all(crew, told_signal(crew));
}

static void take_signals(struct crew *crew)
{
    struct signalfd_siginfo info;

    while (read(crew->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGCHLD) {
            take_signal(crew, (int)info.ssi_signo);
        }
    }
}

/* Whether a bad end is the answer to what the process was told. */
static bool answers_us(const struct crew *crew, const struct crew_member *member)
{
    int code = process_end_code(&member->end);

    if (!member->told) {
        return false;
    }
    return (crew->killed && code == 128 + SIGKILL) || code == 128 + SIGTERM ||
           code == 128 + told_signal(crew);
}

static int64_t grace_of(const struct crew *crew)
{
    return crew->stop_signal != 0 ? crew->config.grace_ns : crew->config.failure_grace_ns;
}

static void take_end(struct crew *crew, struct crew_member *member)
{
    member->order = crew->ended;
    crew->ended++;
    crew->alive--;
    member->failed = process_end_code(&member->end) != 0 && !answers_us(crew, member);
    if (member->failed && !crew->failing) {
        char how[64];

        crew->failing = true;
        process_end_describe(&member->end, how, sizeof(how));
        if (crew->alive > 0) {
            log_info("rank %d has ended (%s); the others are told to stop", member->rank, how);
        }
        tell_all(crew, SIGTERM);
    }
    /* After the first end the others have nobody to work with any more. */
    if ((crew->failing || crew->stop_signal != 0) && !crew->killed &&
        crew->kill_ns == CLOCK_NEVER) {
        crew->kill_ns = clock_now_ns() + grace_of(crew);
    }
}

static void reap_ended(struct crew *crew)
{
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        struct crew_member *member = &crew->members[rank];
        pid_t group = member->process.pid;

        if (crew_member_reap(member)) {
            guard_remove(&crew->guard, group);
            take_end(crew, member);
        }
    }
}

static void wait_for_events(struct crew *crew)
{
    nfds_t count = 1 + STREAMS * (nfds_t)crew->config.processes;
    int64_t left_ms = LOOK_AGAIN_MS;

    crew->polls[0] = (struct pollfd){.fd = crew->signals, .events = POLLIN};
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        struct pollfd *polls = &crew->polls[1 + STREAMS * rank];

        polls[0] = (struct pollfd){.fd = crew->members[rank].out.in, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = crew->members[rank].err.in, .events = POLLIN};
    }
    if (crew->kill_ns != CLOCK_NEVER) {
        left_ms = (crew->kill_ns - clock_now_ns()) / CLOCK_MS + 1;
        left_ms = left_ms < 0 ? 0 : left_ms;
        left_ms = left_ms > LOOK_AGAIN_MS ? LOOK_AGAIN_MS : left_ms;
    }
    if (poll(crew->polls, count, (int)left_ms) < 0) {
        memset(crew->polls, 0, count * sizeof(*crew->polls)); /* interrupted: nothing is ready */
    }
}

static void move_output(struct crew *crew)
{
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        const struct pollfd *polls = &crew->polls[1 + STREAMS * rank];

        if (polls[0].revents != 0) {
            log_pump_read(&crew->members[rank].out);
        }
        if (polls[1].revents != 0) {
            log_pump_read(&crew->members[rank].err);
        }
    }
}

static void kill_when_due(struct crew *crew)
{
    if (crew->kill_ns == CLOCK_NEVER || clock_now_ns() < crew->kill_ns) {
        return;
    }
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        if (crew->members[rank].process.pid > 0) {
            log_warn("rank %d has not ended %g s after it was told to stop: killed", rank,
                     (double)grace_of(crew) / (double)CLOCK_SECOND);
        }
    }
    kill_all(crew);
}

static void watch(struct crew *crew)
{
    while (crew->alive > 0) {
        wait_for_events(crew);
        move_output(crew);
        /* Ends first: a signal that comes with the last end has nobody left to stop. */
        reap_ended(crew);
        if (crew->alive > 0) {
            take_signals(crew);
            kill_when_due(crew);
        }
    }
}

static enum status open_signals(struct crew *crew)
{
    struct sigaction ignore;
    struct sigaction hangup;
    sigset_t wanted;

    memset(&ignore, 0, sizeof(ignore));
    ignore.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &ignore, &crew->pipe);
    (void)sigemptyset(&wanted);
    (void)sigaddset(&wanted, SIGCHLD);
    (void)sigaddset(&wanted, SIGTERM);
    (void)sigaddset(&wanted, SIGINT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
        (void)sigaddset(&wanted, SIGHUP);
    }
    (void)sigprocmask(SIG_BLOCK, &wanted, &crew->old_mask);
    crew->signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (crew->signals < 0) {
        (void)sigprocmask(SIG_SETMASK, &crew->old_mask, NULL);
        (void)sigaction(SIGPIPE, &crew->pipe, NULL);
        return status_fail(STATUS_ERR_IO, "cannot open a descriptor for signals: %s",
                           strerror(errno));
    }
    return STATUS_OK;
}

static void close_signals(struct crew *crew)
{
    (void)close(crew->signals);
    crew->signals = -1;
    (void)sigprocmask(SIG_SETMASK, &crew->old_mask, NULL);
    (void)sigaction(SIGPIPE, &crew->pipe, NULL);
}

static enum status start_all(struct crew *crew)
{
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        struct crew_member *member = &crew->members[rank];

        TRY(crew_member_start(member, &crew->config, &crew->out, &crew->err));
        guard_add(&crew->guard, member->process.pid);
        crew->alive++;
    }
    return STATUS_OK;
}

static void judge(struct crew *crew, struct crew_outcome *outcome)
{
    for (int32_t rank = 0; rank < crew->config.processes; rank++) {
        const struct crew_member *member = &crew->members[rank];

        crew->cases[rank] = (struct blame_case){
            .failed = member->failed,
            .end = member->end,
            .ended_ns = member->ended_ns,
            .order = member->order,
            .first_error_ns = member->err.first_error_ns,
        };
    }
    *outcome = (struct crew_outcome){
        .rank = blame_first(crew->cases, crew->config.processes),
        .signal = crew->stop_signal,
    };
    if (outcome->rank >= 0) {
        outcome->end = crew->members[outcome->rank].end;
    }
}

enum status crew_run(struct crew *crew, struct crew_outcome *outcome_out)
{
    enum status status = STATUS_OK;

    TRY(open_signals(crew));
    status = guard_start(&crew->guard);
    if (status >= 0) {
        status = start_all(crew);
        if (status < 0) {
            kill_all(crew);
        }
        watch(crew);
        guard_stop(&crew->guard);
    }
    close_signals(crew);
    judge(crew, outcome_out);
    return status;
}

const struct log_tail *crew_tail(const struct crew *crew, int32_t rank)
{
    ENSURE(rank >= 0 && rank < crew->config.processes, "rank %d of %d", rank,
           crew->config.processes);
    return &crew->members[rank].tail;
}

int crew_outcome_code(const struct crew_outcome *outcome)
{
    if (outcome->rank >= 0) {
        return process_end_code(&outcome->end);
    }
    return outcome->signal != 0 ? 128 + outcome->signal : 0;
}

void crew_destroy(struct crew **crew)
{
    if (*crew == NULL) {
        return;
    }
    for (int32_t rank = 0; (*crew)->members != NULL && rank < (*crew)->config.processes; rank++) {
        crew_member_release(&(*crew)->members[rank]);
    }
    free((*crew)->members);
    free((*crew)->polls);
    free((*crew)->cases);
    free(*crew);
    *crew = NULL;
}
