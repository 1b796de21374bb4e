/*
 * timeline -- the picture of a run: what each stage did, when, and who waited for whom.
 *
 * An SVG, 1200 pixels wide, a row a stage: bars of F, I, W, B, optimizer and the rest coloured by
 * kind, with the micro-batch's number where it fits and paler for later chunks of a rank; waits as pale gaps; embedding sync as a thin
 * bar below its row; messages as thin arrows from the end of what made them to their use; the
 * bubble of each stage at the right. Evaluation is one bar.
 *
 * Of several replicas and TP shards the first is drawn; they run the same plan.
 */
#ifndef SCHEDULER_TIMELINE_H
#define SCHEDULER_TIMELINE_H

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Draws all that `run` holds (trace_run_keep() chooses the steps before) to `path`, written anew.
 * `title` is any text; NULL takes the run's name. STATUS_ERR_REFUSED where there is nothing to
 * draw, STATUS_ERR_IO where the file cannot be written. */
enum status timeline_write(const struct trace_run *run, const char *title, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TIMELINE_H */
