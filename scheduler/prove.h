/*
 * prove -- from a shape to the plan that may run: generated, lowered, validated.
 *
 * The one way in which a launcher and every rank make their plan, so that all make the same one
 * and none runs a plan that was not proved.
 */
#ifndef SCHEDULER_PROVE_H
#define SCHEDULER_PROVE_H

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller owns *lowered_out. STATUS_ERR_REFUSED as plan_generate(), plan_lower() and
 * plan_validate(). */
enum status plan_prove(const struct plan_shape *shape, struct plan **lowered_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_PROVE_H */
