/*
 * trace_merge -- the traces of all ranks in one Chrome trace file.
 *
 * A JSON object that Perfetto and chrome://tracing load: a process a rank, a thread a track, an
 * arrow from each message's SEND to its RECV. Slices that would overlap on a track without nesting
 * go to a further track of the same name.
 */
#ifndef SCHEDULER_TRACE_MERGE_H
#define SCHEDULER_TRACE_MERGE_H

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `path` anew; events stand in the order of time. STATUS_ERR_IO where it cannot be written.
 */
enum status trace_merge_write(const struct trace_run *run, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_MERGE_H */
