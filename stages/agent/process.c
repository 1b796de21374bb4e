#include "stages/agent/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* From fork to exec; only a file system that hangs takes longer. */
#define START_TIMEOUT_MS 30000

struct pipe_ends {
    int from;
    int to;
};

/* The pipes of a start; `fault` carries errno where exec fails and closes where it succeeds. */
struct start_pipes {
    struct pipe_ends out;
    struct pipe_ends err;
    struct pipe_ends fault;
};

static void close_end(int *end)
{
    if (*end >= 0) {
        (void)close(*end);
        *end = -1;
    }
}

static void close_pipes(struct start_pipes *pipes)
{
    struct pipe_ends *all[] = {&pipes->out, &pipes->err, &pipes->fault};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        close_end(&all[i]->from);
        close_end(&all[i]->to);
    }
}

static bool open_pipe(struct pipe_ends *ends)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) != 0) {
        return false;
    }
    ends->from = pair[0];
    ends->to = pair[1];
    return fcntl(ends->from, F_SETFL, O_NONBLOCK) == 0;
}

static bool open_pipes(const struct process_config *config, struct start_pipes *pipes)
{
    static const struct pipe_ends none = {.from = -1, .to = -1};

    *pipes = (struct start_pipes){.out = none, .err = none, .fault = none};
    return (config->shares_stdout || open_pipe(&pipes->out)) && open_pipe(&pipes->err) &&
           open_pipe(&pipes->fault);
}

static void default_signals(void)
{
    static const int ours[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    struct sigaction action;
    sigset_t none;

    memset(&action, 0, sizeof(action));
    action.sa_handler = SIG_DFL;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        (void)sigaction(ours[i], &action, NULL);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool connect_streams(const struct start_pipes *pipes)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    return nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
           (pipes->out.to < 0 || dup2(pipes->out.to, STDOUT_FILENO) >= 0) &&
           dup2(pipes->err.to, STDERR_FILENO) >= 0;
}

/* Between fork and exec. The agent has one thread, so that setenv() is safe here. */
static _Noreturn void become_program(const struct process_config *config,
                                     const struct start_pipes *pipes, pid_t parent)
{
    bool ready = setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    int cause = 0;
    ssize_t told = 0;

    if (getppid() != parent) {
        _exit(EXIT_FAILURE); /* it died before the death signal was set */
    }
    default_signals();
    ready = ready && connect_streams(pipes);
    for (size_t i = 0; ready && i < config->variable_count; i++) {
        ready = setenv(config->variables[i].name, config->variables[i].value, 1) == 0;
    }
    if (ready) {
        (void)execv(config->program, config->arguments);
    }
    cause = errno;
    told = write(pipes->fault.to, &cause, sizeof(cause));
    (void)told;
    _exit(EXIT_FAILURE);
}

/* 0 once the program runs, else errno of what failed in the child. */
static int wait_for_exec(int fault)
{
    struct pollfd wanted = {.fd = fault, .events = POLLIN};
    int cause = 0;
    int ready = 0;
    ssize_t got = 0;

    do {
        ready = poll(&wanted, 1, START_TIMEOUT_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) {
        return ETIMEDOUT;
    }
    got = read(fault, &cause, sizeof(cause));
    return got == (ssize_t)sizeof(cause) ? cause : 0;
}

enum status process_start(const struct process_config *config, struct process *process_out)
{
    struct start_pipes pipes;
    pid_t parent = getpid();
    pid_t child = 0;
    int cause = 0;

    if (!open_pipes(config, &pipes)) {
        cause = errno;
        close_pipes(&pipes);
        return status_fail(STATUS_ERR_IO, "cannot open pipes to start %s: %s", config->program,
                           strerror(cause));
    }
    child = fork();
    if (child == 0) {
        become_program(config, &pipes, parent);
    }
    if (child < 0) {
        cause = errno;
        close_pipes(&pipes);
        return status_fail(STATUS_ERR_IO, "cannot make a process for %s: %s", config->program,
                           strerror(cause));
    }
    close_end(&pipes.out.to);
    close_end(&pipes.err.to);
    close_end(&pipes.fault.to);
    cause = wait_for_exec(pipes.fault.from);
    close_end(&pipes.fault.from);
    if (cause != 0) {
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
        close_pipes(&pipes);
        return status_fail(STATUS_ERR_IO, "cannot start %s: %s", config->program, strerror(cause));
    }
    *process_out = (struct process){.pid = child, .out = pipes.out.from, .err = pipes.err.from};
    return STATUS_OK;
}

void process_signal(const struct process *process, int signal)
{
    if (process->pid > 0) {
        (void)kill(process->pid, signal);
    }
}

void process_signal_group(const struct process *process, int signal)
{
    if (process->pid > 0) {
        (void)kill(-process->pid, signal);
    }
}

bool process_reap(struct process *process, struct process_end *end_out)
{
    siginfo_t info;
    int wait_status = 0;

    memset(&info, 0, sizeof(info));
    if (process->pid <= 0 ||
        waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return false;
    }
    process_signal_group(process, SIGKILL);
    if (waitpid(process->pid, &wait_status, 0) != process->pid) {
        return false;
    }
    end_out->signalled = WIFSIGNALED(wait_status);
    end_out->code = end_out->signalled ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    process->pid = 0;
    return true;
}

int process_end_code(const struct process_end *end)
{
    return end->signalled ? 128 + end->code : end->code;
}

void process_end_describe(const struct process_end *end, char *text, size_t text_bytes)
{
    if (end->signalled) {
        (void)snprintf(text, text_bytes, "killed by signal %d (%s)", end->code,
                       strsignal(end->code));
    } else {
        (void)snprintf(text, text_bytes, "exit code %d", end->code);
    }
}
