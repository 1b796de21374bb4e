/*
 * trace_perfetto -- the traces of all ranks as one binary trace of Perfetto.
 *
 * The same tracks, slices, arguments and counters as trace_merge.h writes, a quarter as large and quicker to load.
 * An arrow goes from a message's SEND to the action that reads it. Names are interned. The clock is the monotonic one
 * of the host, counted from the trace's 0, or from its first event where that is earlier.
 *
 * The format is protos/perfetto/trace of Perfetto, whose field numbers are fixed; they stand in trace_packet.c.
 */
#ifndef SCHEDULER_TRACE_PERFETTO_H
#define SCHEDULER_TRACE_PERFETTO_H

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `path` anew; events stand in the order of time. STATUS_ERR_IO where it cannot be written.
 */
enum status trace_perfetto_write(const struct trace_run *run, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_PERFETTO_H */
