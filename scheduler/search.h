/*
 * search -- the shortest plan for given costs inside given memory, as far as it is found.
 *
 * 1. Every schedule with a name that has an order of this shape (on each number of chunks and each
 *    placement that is asked for), and orders made by some dozens of rules (search_greedy.h).
 * 2. The best of them, changed little by little (search_anneal.h) while evaluations are left.
 * 3. A bound that no order beats (search_bound.h) says how much is left to gain at most.
 *
 * The result is never longer than the best schedule with a name that fits. It is one, as it is, where
 * nothing shorter was found, and else a plan with schedule `file`. Either way it lowers and
 * validates, and its makespan is that of plan_simulate() at these costs. Every backward of a found
 * plan is split in I and W, so that its gradients leave early.
 *
 * The same problem, seed and evaluations give the same plan on every machine and in any time.
 */
#ifndef SCHEDULER_SEARCH_H
#define SCHEDULER_SEARCH_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/search_space.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEARCH_TEXT 128

/* One number of chunks and one placement, with what its virtual stages cost and hold. */
struct search_variant {
    struct plan_shape shape; /* schedule, placement and extra_in_flight are not read */
    const int32_t *rank_of;  /* borrows; [p·v]; NULL: a loop */
    struct plan_costs costs; /* borrows; `unbounded` is not read */
    struct search_memory memory;
};

struct search_options {
    uint64_t seed;
    int64_t evaluations;    /* orders that are timed at most; >= 1 */
    const char *limit_name; /* borrows; how a refusal calls the limit of memory; NULL: "memory" */
};

struct search_result {
    struct plan *plan; /* owns; compute-only */
    int32_t variant;   /* that it is of */
    double makespan;
    double bound;             /* the least of all variants */
    double gap;               /* makespan / bound - 1 */
    double named_makespan;    /* of the best schedule with a name that fits; INFINITY: none does */
    char named[SEARCH_TEXT];  /* its name; "" */
    char origin[SEARCH_TEXT]; /* where the plan comes from: "izb", "greedy: …, changed" */
    int64_t evaluations;      /* orders that were timed */
};

/* Among schedules with a name that take equally long, the one whose fullest rank holds least is taken.
 * STATUS_ERR_REFUSED where nothing fits into memory, naming the rank, its need and its limit in the
 * plan that comes nearest, or where a variant makes no sense. The caller releases *result_out. */
enum status search_run(const struct search_variant *variants, int32_t count,
                       const struct search_options *options, struct search_result *result_out);

/* Safe on a zeroed result, and twice. */
void search_result_release(struct search_result *result);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_H */
