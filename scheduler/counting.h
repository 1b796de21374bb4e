/*
 * counting -- how much a compute-only line becomes: actions and buffers.
 *
 * The first pass of plan_lower(), which needs the landing buffers of all chunks before it can number
 * a message, and room for whole lines before it writes the first action. Buffers are counted as they
 * are taken and given back along the line (scheduler/plan.h); what is counted of a line that has an I
 * before its F means nothing, and lowering refuses the line.
 */
#ifndef SCHEDULER_COUNTING_H
#define SCHEDULER_COUNTING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/line_source.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `stage_of` is [rank · v + chunk]; `wanted` is [rank], the lines to count, or NULL for all. Checks each line as plan_check_line() does, writes the buffers of
 * its chunks into `lowered`, and how many actions it becomes at most into most_out[rank].
 * STATUS_ERR_REFUSED names rank, index and action. */
enum status counting_run(struct line_source *lines, const int32_t *stage_of, const bool *wanted,
                         struct plan *lowered, int32_t *most_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_COUNTING_H */
