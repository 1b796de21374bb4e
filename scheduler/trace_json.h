/*
 * trace_json -- the numbers of a traced run as one JSON object, for scripts.
 *
 *   run, steps      its name; the steps that are counted
 *   span_ms         of a step, from the first action to the last, on the mean; bubble: of all ranks, in [0, 1]
 *   ranks[]         rank, stage, bubble; busy_ms a step; causes: what the bubble is made of, by cause
 *                   (trace_bubble.h), each a share of the span; they add up to the bubble of the rank
 *   explain         schedule, p, m, v, sequence_slices, early_send; F_ms, I_ms, W_ms: mean costs a rank and whole
 *                   micro-batch; a step in ms: ideal_ms (work, if all had the same to do), even_ms (the plan
 *                   simulated with these costs everywhere), uneven_ms (with each stage's own), message_ms (and with
 *                   latency), measured_ms, between_ms; formula: {text, limit, bubble_ms} of the schedule's
 *                   closed form (bubble_formula.h): where it does not hold, limit says what must, else null, and
 *                   bubble_ms is null; all three are where there is none
 *
 * `explain` is there where an explanation is given.
 */
#ifndef SCHEDULER_TRACE_JSON_H
#define SCHEDULER_TRACE_JSON_H

#include <stdio.h>

#include "base/status.h"
#include "scheduler/trace_explain.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One object and a newline. `explanation` may be NULL. STATUS_ERR_IO where `out` fails. */
enum status trace_json_print(const struct trace_run *run,
                             const struct trace_explanation *explanation, FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_JSON_H */
