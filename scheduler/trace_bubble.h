/*
 * trace_bubble -- why the ranks of a traced run stood still while the pipeline ran.
 *
 * Within the span of a step (trace_steps.h) each moment of a rank that is not compute has one cause;
 * the causes add up to what the bubble is made of. What lies behind the last compute action of the
 * last rank, and the optimizer mostly, is no part of it.
 */
#ifndef SCHEDULER_TRACE_BUBBLE_H
#define SCHEDULER_TRACE_BUBBLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* id, text. */
#define TRACE_BUBBLE_TABLE(X)                                                                 \
    X(WARM_UP, "warm-up")   /* before the rank's first compute action */                      \
    X(MESSAGE, "message")   /* waits for a message of a neighbour */                          \
    X(BUFFER, "buffer")     /* waits until a neighbour gives a landing buffer back */         \
    X(COPY, "copy")         /* a message is copied to its landing buffer */                   \
    X(TRANSFER, "transfer") /* REDUCE, GATHER, SYNC */                                        \
    X(UPDATE, "update")     /* the optimizer's part before the last rank has ended, data */   \
    X(DRAIN, "drain")       /* behind the rank's last compute action, the wait in STEP too */ \
    X(HOST, "host")         /* between two actions with nothing waited for */

enum trace_bubble_cause {
#define X(id, text) TRACE_BUBBLE_##id,
    TRACE_BUBBLE_TABLE(X)
#undef X
    TRACE_BUBBLE_CAUSES
};

struct trace_bubble_rank {
    int32_t rank;
    int32_t pipeline_rank;
    double busy_ns; /* F, I, W or B, all steps together */
    double cause_ns[TRACE_BUBBLE_CAUSES];
    double *message_ns; /* owns; [stages]: MESSAGE by who was waited for */
    double *buffer_ns;  /* owns; [stages]: BUFFER likewise */
};

struct trace_bubble {
    struct trace_bubble_rank *ranks; /* owns; as in the run */
    size_t count;
    int32_t stages;
    int32_t steps;
    double span_ns; /* sum of the spans of the steps: busy and causes of each rank add up to it */
};

/* "warm-up"; a static string. */
const char *trace_bubble_text(enum trace_bubble_cause cause);

/* Of all steps that `run` holds. The caller releases *bubble_out. */
enum status trace_bubble_make(const struct trace_run *run, struct trace_bubble *bubble_out);

/* Safe on a zeroed one, and twice. */
void trace_bubble_release(struct trace_bubble *bubble);

/* A table for people, percent of the span. STATUS_ERR_IO where `out` cannot be written. */
enum status trace_bubble_print(const struct trace_bubble *bubble, FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_BUBBLE_H */
