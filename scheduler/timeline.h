/*
 * timeline -- the picture of a run: what each stage did, when, and who waited for whom.
 *
 * An SVG, 1200 pixels wide, a row a stage: bars of F, I, W, B, optimizer and the rest coloured by
 * kind, with the micro-batch's number where it fits and paler for later chunks of a rank; waits as pale gaps; embedding sync as a thin
 * bar below its row; messages as thin arrows from the end of what made them to their use; the
 * bubble of each stage at the right; the critical path framed. Evaluation is one bar.
 *
 * Of several replicas and TP shards the first is drawn; they run the same plan.
 */
#ifndef SCHEDULER_TIMELINE_H
#define SCHEDULER_TIMELINE_H

#include <stdio.h>

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct timeline_look {
    const char *title; /* borrows; any text; NULL takes the run's name */
    const char *unit;  /* borrows; NULL for a run in real time. Else the run is a simulated plan
                          (plan_trace.h), and this is what its costs are in, as "units of the costs" */
    double unit_ns;    /* nanoseconds of the run that are one such unit */
};

/* As timeline_write(), to a file that is open; STATUS_ERR_IO, not yet reported, where that fails. */
enum status timeline_print(const struct trace_run *run, const struct timeline_look *look,
                           FILE *out);

/* Draws all that `run` holds (trace_run_keep() chooses the steps before) to `path`, written anew.
 * `title` is any text; NULL takes the run's name. STATUS_ERR_REFUSED where there is nothing to
 * draw, STATUS_ERR_IO where the file cannot be written. */
enum status timeline_write(const struct trace_run *run, const char *title, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TIMELINE_H */
