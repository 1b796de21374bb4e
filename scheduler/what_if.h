/*
 * what_if -- costs as they would be if something were faster or slower.
 *
 *   "stage 2 x 0.8"          all that the ranks of stage 2 compute
 *   "virtual stage 5 x 1.2"  one chunk
 *   "F x 1.1"                F, I or W of every virtual stage
 *   "latency x 2"            of every message; "copy x 2" what a SEND takes of its rank
 *   "overhead x 0"           what lies between actions
 *   "rest x 0.5"             what a step takes beside its plan
 *
 * Several are applied one after the other, so that factors of the same thing multiply.
 */
#ifndef SCHEDULER_WHAT_IF_H
#define SCHEDULER_WHAT_IF_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* target, words before the factor; a number follows where the words end in a blank */
#define WHAT_IF_TABLE(X)               \
    X(STAGE, "stage ")                 \
    X(VIRTUAL_STAGE, "virtual stage ") \
    X(F, "F")                          \
    X(I, "I")                          \
    X(W, "W")                          \
    X(LATENCY, "latency")              \
    X(COPY, "copy")                    \
    X(OVERHEAD, "overhead")            \
    X(REST, "rest")

enum what_if_target {
#define X(target, words) WHAT_IF_##target,
    WHAT_IF_TABLE(X)
#undef X
    WHAT_IF_TARGETS
};

struct what_if {
    enum what_if_target target;
    int32_t number; /* of STAGE and VIRTUAL_STAGE */
    double factor;  /* >= 0 */
};

/* STATUS_ERR_REFUSED with the text and what is legal. */
enum status what_if_parse(const char *text, struct what_if *what_if_out);

/* Writes "stage 2 x 0.8", cut to `text_bytes`. */
void what_if_print(const struct what_if *what_if, char *text, size_t text_bytes);

/* Changes `costs`, which own their arrays (plan_costs_copy()), and *rest. STATUS_ERR_REFUSED where the
 * plan has no such stage. */
enum status what_if_apply(const struct what_if *what_if, const struct plan *plan,
                          struct plan_costs *costs, double *rest);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_WHAT_IF_H */
