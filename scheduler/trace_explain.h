/*
 * trace_explain -- why a run took longer than its plan, in a few sentences with numbers.
 *
 * The plan is simulated with what the actions of the run took on the mean: first as if all stages were
 * alike and messages took no time, then with each stage's own costs, then with the latency of messages.
 * What each adds is its share of the bubble; what is left between the last simulation and what was measured
 * is jitter (an action that takes longer than others of its kind), copies, and the host. What the schedule itself
 * adds stands beside its closed form (bubble_formula.h), or beside the reason why there is none.
 */
#ifndef SCHEDULER_TRACE_EXPLAIN_H
#define SCHEDULER_TRACE_EXPLAIN_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Times in nanoseconds, a step. */
struct trace_explanation {
    struct plan_shape shape;
    int32_t steps;
    double measured_ns;     /* mean span of a step (trace_steps.h) */
    double measured_bubble; /* of the run, in [0, 1] */
    double F;               /* mean costs of a whole micro-batch on a rank, over all stages */
    double I;
    double W;
    double ideal_ns;   /* what a rank would compute if all had the same to do */
    double even_ns;    /* the plan with the same costs everywhere and no latency */
    double uneven_ns;  /* with each stage's own */
    double message_ns; /* and with latency */
    double
        latency_ns; /* median of messages that were waited for: from the begin of its copy to its use */
    double copy_ns;        /* mean copy of a message */
    int32_t slowest;       /* stage with the most to compute */
    double slowest_excess; /* of it over the mean of the stages; 0.1 = 10 % more */
    double jitter;         /* largest p90 / median of a kind of action on a virtual stage */
    uint32_t jitter_kind;  /* enum trace_kind */
    int32_t jitter_stage;  /* virtual */
    double
        between_ns; /* mean time from the end of a span to the begin of the next step's; 0 where the
                               run has no two steps in a row */
};

/* `lowered` is the plan that was run. STATUS_ERR_REFUSED where the run lacks a kind of action that the plan
 * has, or has a virtual stage that the plan has not. */
enum status trace_explain_make(const struct trace_run *run, const struct plan *lowered,
                               struct trace_explanation *explanation_out);

/* STATUS_ERR_IO where `out` fails. */
enum status trace_explain_print(const struct trace_explanation *explanation, FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_EXPLAIN_H */
