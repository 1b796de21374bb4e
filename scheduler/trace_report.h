/*
 * trace_report -- where the time of a run went, in text: the table of trace_summary, the bubble by
 * cause of trace_bubble, the critical path of trace_path, and the clocks of trace_clock where they differ.
 */
#ifndef SCHEDULER_TRACE_REPORT_H
#define SCHEDULER_TRACE_REPORT_H

#include <stdio.h>

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of all steps that `run` holds. STATUS_ERR_IO where `out` cannot be written. */
enum status trace_report_print(const struct trace_run *run, FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_REPORT_H */
