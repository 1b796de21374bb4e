/*
 * ideal_bubble -- what the plan itself leaves idle at a step's mean costs: `bubble_ideal` of a step line.
 *
 * A simulation of the whole plan, on rank 0, between two steps. It takes about 100 ns an action, and so
 * much less than a step where plans are small; a plan of more than IDEAL_BUBBLE_ACTIONS is simulated in every
 * n-th step only, n = its actions / IDEAL_BUBBLE_ACTIONS, rounded up, so that no step has more than about
 * 10 ms of it on average. In between the number is that of the last simulation: it depends on what
 * actions cost in proportion to each other, which hardly changes from step to step.
 */
#ifndef STAGES_IDEAL_BUBBLE_H
#define STAGES_IDEAL_BUBBLE_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

#define IDEAL_BUBBLE_ACTIONS ((int64_t)1 << 17)

/* Begins zeroed. */
struct ideal_bubble {
    double share;        /* of the last simulation */
    int64_t asked;       /* steps that had costs */
    int64_t simulations; /* how often the plan was simulated */
};

/* How many steps one simulation of `lowered` is for, 1 or more. */
int64_t ideal_bubble_steps(const struct plan *lowered);

/* The next step's share, 0 to 1, at its costs or those of a step before. */
enum status ideal_bubble_next(struct ideal_bubble *bubble, const struct plan *lowered,
                              const struct plan_costs *costs, double *share_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_IDEAL_BUBBLE_H */
