/*
 * trace_summary -- where the time of a run went: busy, bubble and waits by rank.
 *
 * busy = the F, I, W and B spans of training. The span of a step runs, over all ranks, from the
 * begin of its first compute action to the end of its last; the bubble is
 * 1 - sum of busy / (ranks · span), the number of the step line. Evaluation does not count.
 * Recompute and waits inside an operation are part of its span, so they count as busy. A rank's
 * chunks are summed up. REDUCE is communication: not busy, and behind the span. The memory is what
 * was taken of the planned buffers at most (trace_memory.h).
 */
#ifndef SCHEDULER_TRACE_SUMMARY_H
#define SCHEDULER_TRACE_SUMMARY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/trace.h"
#include "scheduler/trace_memory.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_summary_rank {
    int32_t rank;
    int32_t pipeline_rank;
    double kind_ns[TRACE_KINDS];       /* time in each kind of span, all steps together */
    double busy_ns;                    /* F + I + W + B */
    double bubble;                     /* 1 - busy / span */
    int64_t taken[TRACE_MEMORY_KINDS]; /* bytes, each at its peak; 0 where the trace has no sizes */
    int64_t taken_together;            /* at the peak of their sum */
    double *wait_ns; /* owns; [stages + 1]: who was waited for; the last is nobody in
                                    particular */
};

struct trace_summary {
    struct trace_summary_rank *ranks; /* owns; as in the run */
    size_t count;
    int32_t stages;
    int32_t steps;    /* training steps with at least one compute span */
    double span_ns;   /* sum of the spans of the steps */
    double bubble;    /* in [0, 1]; 0 where there is no span */
    size_t slowest;   /* index of the rank with the most busy time */
    uint64_t dropped; /* spans that are not in the files */
};

/* Sums over all spans that `run` holds; trace_run_keep() chooses the steps before. The caller
 * releases *summary_out. */
enum status trace_summary_make(const struct trace_run *run, struct trace_summary *summary_out);

/* A table for people, milliseconds a step. STATUS_ERR_IO where `out` cannot be written. */
enum status trace_summary_print(const struct trace_summary *summary, FILE *out);

/* Safe on a zeroed summary, and twice. */
void trace_summary_release(struct trace_summary *summary);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_SUMMARY_H */
