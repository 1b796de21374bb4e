/*
 * process -- one child process: its start, its pipes, its end.
 *
 * A child leads a process group of its own, is killed by the kernel when the process that started
 * it dies, reads /dev/null and starts with default signal handling. Knows nothing of ranks or of
 * what runs in it.
 *
 * The thread that calls process_start() must live as long as the children: their death signal is
 * tied to it.
 */
#ifndef STAGES_AGENT_PROCESS_H
#define STAGES_AGENT_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct process_variable {
    const char *name;
    const char *value;
};

/* All pointers borrow during process_start(). */
struct process_config {
    const char *program;                      /* a path, not searched for */
    char *const *arguments;                   /* argv, ends with NULL */
    const struct process_variable *variables; /* added to our environment */
    size_t variable_count;
    bool shares_stdout; /* writes to our stdout itself; else to a pipe */
};

struct process {
    pid_t pid; /* and its process group; 0: none, or reaped */
    int out;   /* read end of its stdout, does not block; -1: none. The caller closes it */
    int err;   /* the same of stderr */
};

/* How a process ended. */
struct process_end {
    bool signalled; /* killed by a signal */
    int code;       /* the signal, else the exit code */
};

/* Returns when the program runs. STATUS_ERR_IO names program and cause where it could not be
 * started; nothing is left then. */
enum status process_start(const struct process_config *config, struct process *process_out);

/* To the process alone; to it and all in its group. Nothing where it has been reaped. */
void process_signal(const struct process *process, int signal);
void process_signal_group(const struct process *process, int signal);

/* Whether it has ended; does not block. Kills what is left of its group before it reaps it, so
 * that no grandchild stays and the group's number cannot belong to somebody else. */
bool process_reap(struct process *process, struct process_end *end_out);

/* The exit code that stands for this end: the code, or 128 + signal. */
int process_end_code(const struct process_end *end);

/* "exit code 2", "killed by signal 9 (Killed)". */
void process_end_describe(const struct process_end *end, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_PROCESS_H */
