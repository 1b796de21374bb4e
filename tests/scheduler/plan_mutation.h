/*
 * plan_mutation -- lowered plans with one action out of place.
 *
 * Dependencies follow the actions that they name; one on an action that is gone is left out.
 */
#ifndef TESTS_PLAN_MUTATION_H
#define TESTS_PLAN_MUTATION_H

#include <stdint.h>

#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

void mutation_drop(struct plan *plan, int32_t rank, int32_t at);

/* A second one right behind it. */
void mutation_duplicate(struct plan *plan, int32_t rank, int32_t at);

void mutation_swap(struct plan *plan, int32_t rank, int32_t a, int32_t b);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_PLAN_MUTATION_H */
