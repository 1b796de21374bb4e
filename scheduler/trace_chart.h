/*
 * trace_chart -- a run as a picture in characters, a row a stage, time to the right.
 *
 * As plan_chart.h draws plans: `F3` is the forward of micro-batch 3, as wide as it took; dots are idle
 * time; of several chunks a rank, every second one has small letters. A column shows what took most of its
 * time. O is the optimizer, S the STEP round trip, R, G and E are reduction, gathering and the embedding sync.
 *
 * Of several replicas and TP shards the first is drawn.
 */
#ifndef SCHEDULER_TRACE_CHART_H
#define SCHEDULER_TRACE_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Draws all that `run` holds in at most `columns` characters a row; `colours` with a terminal's. Nothing
 * where the run or the room is too small. STATUS_ERR_IO where `out` fails. */
enum status trace_chart_print(const struct trace_run *run, int32_t columns, bool colours,
                              FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_CHART_H */
