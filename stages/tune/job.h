/*
 * job -- one short training job, started and watched by this binary's own `agent` command.
 *
 * A job trains a candidate for a few steps in a run directory of its own below the folder of all
 * jobs, without evaluation, checkpoints or a held-out test, from the configuration's starting
 * weights. What it says goes to <run directory>/job.log. Jobs come one after the other: each has the
 * machine for itself, as the run that is tuned will have it.
 *
 * The agent and its ranks die with this process, whatever ends it (stages/agent/process.h).
 */
#ifndef STAGES_TUNE_JOB_H
#define STAGES_TUNE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/tune/candidate.h"
#include "stages/tune/interrupt.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUNE_JOB_PATH_BYTES 400 /* of a run directory: a configuration takes no longer ones */

/* Where jobs run, one after the other. Zero is "no folder". */
struct tune_jobs {
    const struct tune_base *base;     /* borrows */
    struct tune_interrupt *interrupt; /* borrows */
    const char *program;              /* borrows; the weir binary */
    char folder[TUNE_JOB_PATH_BYTES]; /* "": none */
    int32_t started;                  /* so far */
    bool keep; /* a job failed: the folder stays, for whoever looks for the cause */
};

struct tune_job {
    const struct tune_candidate *candidate;
    int64_t steps;
    bool traced;
    double timeout_s; /* then it is ended */
};

/* Makes the folder, of a new name beside the configuration's run directory:
 * <run directory>-tune-XXXXXX. */
enum status tune_jobs_open(const struct tune_base *base, struct tune_interrupt *interrupt,
                           struct tune_jobs *jobs_out);

/* Runs `job` to its end, and writes the name of its run directory. STATUS_ERR_CANCELLED where a
 * signal came: the job has ended then. Else a job that ended badly is a failure, refused where the
 * job was, which names the job, its first error and its log; the folder is kept then. */
enum status tune_jobs_run(struct tune_jobs *jobs, const struct tune_job *job, char *run_dir,
                          double *seconds_out);

/* Removes what the last job left. */
void tune_jobs_forget(struct tune_jobs *jobs, const char *run_dir);

/* Removes the folder, unless `keep`. Safe twice. */
void tune_jobs_close(struct tune_jobs *jobs);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_JOB_H */
