/*
 * costs -- what the actions of a run took, as a table by kind and virtual stage.
 *
 * Measured from a trace (costs_measure()), kept as costs.json in the run directory (costs_file.h), and
 * turned into what the simulator takes (costs_model()), so that another plan of the same stages can be
 * timed before it runs. Times are milliseconds.
 *
 * A step is its plan, from the begin of the first compute action to the end of the last over all ranks,
 * and a rest: the update, the STEP round trip, data, whatever lies before the first action and behind
 * the last. A message costs its sender the copy and arrives a latency later: a + b·bytes with a the
 * latency and b the copy a byte. Between the end of what a compute action waits for and its begin lies
 * the overhead of an action. A run records a B as its I and its W.
 */
#ifndef SCHEDULER_COSTS_H
#define SCHEDULER_COSTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kind, key in the file */
#define COST_TABLE(X) \
    X(F, "F")         \
    X(I, "I")         \
    X(W, "W")

enum cost_kind {
#define X(kind, key) COST_##kind,
    COST_TABLE(X)
#undef X
    COST_KINDS
};

/* What is measured once for a whole run; member, key in the file. */
#define COST_SINGLE_TABLE(X)                                                              \
    X(send, "send")           /* copy of a message, time of its sender */                 \
    X(action, "action")       /* between what a compute action waits for and its begin */ \
    X(gather, "gather")       /* a GATHER */                                              \
    X(span, "span")           /* of a step: first begin to last end of all ranks */       \
    X(rest, "rest")           /* of a step: what it takes beside its span */              \
    X(optimizer, "optimizer") /* of a rank and step */                                    \
    X(round, "round")         /* of a rank and step: the STEP round trip */               \
    X(reduce, "reduce")       /* of a rank and step: REDUCE */                            \
    X(step, "step")           /* of a step, as the run counted it */

/* Of all samples; all 0 where there are none. */
struct cost_stat {
    int64_t count;
    double median;
    double p90;
    double mean;
    double
        typical; /* mean of those up to twice the median: what a rank that was held up now and then
                       takes on most steps */
};

/* The plan that the costs are of. */
struct costs_plan {
    char schedule[64];
    int32_t ranks;
    int32_t microbatches;
    int32_t virtual_stages; /* a rank */
};

struct costs {
    struct costs_plan plan;
    int32_t stages;                        /* virtual stages of the run, p·v */
    struct cost_stat *compute[COST_KINDS]; /* owns; [virtual stage] */
    struct cost_stat
        *latency[LANE_DIRECTIONS]; /* owns; [virtual stage that receives]: from the end of
                                                   a copy to its use, of messages that were waited for */
    double *busy;                  /* owns; [rank]: compute of a step, mean */
    double message_bytes;          /* mean of the messages; 0 where there are none */
#define X(member, key) struct cost_stat member;
    COST_SINGLE_TABLE(X)
#undef X
};

/* How long a step took, from wherever it is known. */
struct costs_step {
    int64_t step;
    double ms;
};

/* An empty table; the plan's ranks and virtual stages say how large. The caller releases it. */
enum status costs_init(struct costs *costs, const struct costs_plan *plan);

/* Of all steps that `run` holds: the caller forgets those that do not count (trace_run_keep()).
 * `steps` may be empty: then `step` is, and the rest of a step reaches to the next one. Of many
 * samples a bounded number is kept. STATUS_ERR_REFUSED where a virtual stage of `plan` has no F, or,
 * where another has, no I or W. The caller releases *costs_out. */
enum status costs_measure(const struct trace_run *run, const struct costs_plan *plan,
                          const struct costs_step *steps, size_t step_count,
                          struct costs *costs_out);

/* Statistics of `count` samples, which are sorted. */
struct cost_stat cost_stat_of(double *samples, size_t count);

/* The typical costs as the simulator takes them, in milliseconds. STATUS_ERR_REFUSED where `plan` has
 * other virtual stages. The caller releases them (plan_costs_release()). */
enum status costs_model(const struct costs *costs, const struct plan *plan,
                        struct plan_costs *model_out);

/* Whether the costs were measured on this very plan, as far as a shape tells. */
bool costs_are_of(const struct costs *costs, const struct plan *plan);

/* Safe on zeroed costs, and twice. */
void costs_release(struct costs *costs);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_COSTS_H */
