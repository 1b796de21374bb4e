/*
 * run_trace -- the trace of one rank while it trains: its file, its clock, which steps are kept.
 *
 * A rank on another host than rank 0 has a clock of its own: it measures that before the first step and after
 * the last (collectives/control.h), and its file says both. Where trace.enabled is false all of this only
 * forgets spans.
 */
#ifndef STAGES_RUN_TRACE_H
#define STAGES_RUN_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/trace.h"
#include "stages/config.h"
#include "stages/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero is one that is not open, and may be closed. */
struct run_trace {
    const struct config *config; /* borrows until close */
    struct engine *engine;       /* likewise */
    struct trace_writer *writer; /* owns; NULL where trace.enabled is false */
    bool clock_differs;          /* from rank 0's */
};

/* Before the first step, all ranks alike: the clock is measured with rank 0's help. */
enum status run_trace_open(struct run_trace *trace, const struct config *config,
                           struct engine *engine);

/* Takes what the engine did in `step`. */
enum status run_trace_keep(struct run_trace *trace, int64_t step);

/* An evaluation after `step`, which began at `begin_ns`: its own actions are no part of the trace; that it took
 * place, and how long, is. */
enum status run_trace_keep_evaluation(struct run_trace *trace, int64_t step, int64_t begin_ns);

/* After the last step: the clock once more. Where rank 0 does not answer in time a warning, for the run itself
 * is well. */
enum status run_trace_end(struct run_trace *trace);

/* After a failure, too. */
enum status run_trace_close(struct run_trace *trace);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_RUN_TRACE_H */
