/*
 * generate -- compute-only orders: gpipe, 1f1b, forward_only.
 *
 * Orders and formulas: Huang et al. 2019 (GPipe), Fan et al. 2021 and Narayanan et al. 2021 (1F1B
 * with flush: rank r runs w = min(m, p-1-r) forwards, then F and B in turn, then the rest of the
 * backwards). Backwards come in ascending micro-batch order in every schedule, because gradients
 * are accumulated in that order. Any m >= 1 is legal, m < p included.
 */
#ifndef SCHEDULER_GENERATE_H
#define SCHEDULER_GENERATE_H

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller owns *plan_out. STATUS_ERR_REFUSED as plan_create(). */
enum status plan_generate(const struct plan_shape *shape, struct plan **plan_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_GENERATE_H */
