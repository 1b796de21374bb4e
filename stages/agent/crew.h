/*
 * crew -- the processes of one job on this host, from start to the last end.
 *
 * Starts N copies of a program with the environment of torchrun (RANK, LOCAL_RANK, WORLD_SIZE,
 * LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT,
 * OMP_NUM_THREADS=1) and WEIR_JOB, and watches over them until all have ended:
 *
 *   output    rank 0's stdout goes to `out` as it is, everything else to `err`, lines whole and
 *             with the prefix `[rank N] ` where there is more than one process; all of it is
 *             appended to log_dir/rank-N.log as well
 *   failure   the first process that ends badly: TERM to the others, after failure_grace_ns KILL
 *   signals   TERM, INT and HUP (this one unless it was ignored, as under nohup) go to all
 *             processes, HUP as TERM; once the first has ended, the others have grace_ns; a second
 *             signal, or one after a failure, is KILL to all
 *   end       process groups are killed when their leaders have ended; when this process is
 *             killed, the kernel and the guard (stages/agent/guard.h) kill the rest
 *
 * One thread, one crew at a time: signals are read from a descriptor while it runs, and their
 * handling is put back after. Knows nothing of pipelines or configurations.
 */
#ifndef STAGES_AGENT_CREW_H
#define STAGES_AGENT_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/agent/log_tail.h"
#include "stages/agent/process.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CREW_PROCESSES_MOST 1024

/* All pointers borrow until crew_destroy(). */
struct crew_config {
    const char *program;    /* a path */
    char *const *arguments; /* argv of each process, ends with NULL */
    int32_t processes;      /* N, 1 … CREW_PROCESSES_MOST */
    const char *log_dir;    /* exists */
    bool truncate_logs;     /* begin them anew; else append after a line that names the attempt */
    const char *job;        /* WEIR_JOB */
    int32_t restarts; /* TORCHELASTIC_RESTART_COUNT: how often the job has been started before */
    const char *master_addr;
    int32_t master_port;
    int64_t grace_ns;         /* from TERM to KILL after a stop signal */
    int64_t failure_grace_ns; /* the same after a failure: the others have lost the job anyway */
    int out;                  /* where rank 0's stdout goes */
    int err;                  /* where all else goes */
    bool keeps_stdout; /* rank 0 writes to our own stdout itself: a terminal, with its progress
                          bar. The log then has its stderr only */
};

struct crew_outcome {
    int32_t rank;           /* the first failure, -1: none */
    struct process_end end; /* of that rank */
    int signal;             /* the first one that told us to stop, 0: none */
};

struct crew;

enum status crew_create(const struct crew_config *config, struct crew **crew_out);

/* Starts the processes and returns when all have ended and are reaped. A failing process is no
 * failure of this function: it stands in the outcome. STATUS_ERR_IO where a process or a log
 * cannot be started or opened; nothing runs then. Once a crew. */
enum status crew_run(struct crew *crew, struct crew_outcome *outcome_out);

/* The last lines of a rank's stderr, without prefix; lends until crew_destroy(). */
const struct log_tail *crew_tail(const struct crew *crew, int32_t rank);

/* What the agent ends with: the failed rank's code or 128 + its signal, else 128 + the signal that
 * stopped the job, else 0. */
int crew_outcome_code(const struct crew_outcome *outcome);

/* NULL is fine; nulls the caller's pointer. */
void crew_destroy(struct crew **crew);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_AGENT_CREW_H */
