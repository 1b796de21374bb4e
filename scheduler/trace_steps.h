/*
 * trace_steps -- when the pipeline ran in each training step of a trace.
 *
 * The span of a step goes, over all ranks, from the begin of its first compute action to the end of
 * its last. Evaluation does not count.
 */
#ifndef SCHEDULER_TRACE_STEPS_H
#define SCHEDULER_TRACE_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_step {
    int32_t step;
    int64_t begin_ns;
    int64_t end_ns;
};

/* F, I, W or B of training. */
bool trace_span_trains(const struct span *span);

/* Steps with at least one compute action, ascending. The caller owns *steps_out (free). */
enum status trace_steps_find(const struct trace_run *run, struct trace_step **steps_out,
                             size_t *count_out);

/* NULL where the trace has no compute action of it. */
const struct trace_step *trace_steps_at(const struct trace_step *steps, size_t count, int32_t step);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_STEPS_H */
