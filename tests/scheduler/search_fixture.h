/*
 * search_fixture -- problems and orders that the tests of the schedule search look at.
 */
#ifndef TESTS_SEARCH_FIXTURE_H
#define TESTS_SEARCH_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/plan.h"
#include "scheduler/search_order.h"
#include "scheduler/search_space.h"
#include "scheduler/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FIXTURE_STAGES 64

/* Numbers that are the same everywhere: draws of one seed. */
struct fixture_draw {
    uint64_t state;
};

int32_t fixture_draw(struct fixture_draw *draw, int32_t below);

/* Costs with room for themselves. */
struct fixture_costs {
    double F[FIXTURE_STAGES];
    double I[FIXTURE_STAGES];
    double W[FIXTURE_STAGES];
    struct plan_costs costs; /* borrows the above */
};

/* The same on each of `ranks` · `chunks` virtual stages, F, I and W a rank. */
void fixture_costs_even(struct fixture_costs *costs, int32_t ranks, int32_t chunks, double F,
                        double I, double W, double message);

/* V: virtual stages s and 2p-1-s on one rank. */
void fixture_place_v(int32_t ranks, int32_t *rank_of);

/* A legal order by chance: the ranks go on in turns that are drawn, each with one of its actions that
 * can be next. Mostly no deadlock and not always the right order in each lane. */
void fixture_order_by_chance(struct search_order *order, struct fixture_draw *draw);

/* The makespan of the order as a plan: lowered, validated, simulated. Negative where it is refused. */
double fixture_simulated(const struct search_order *order, const struct plan_costs *costs);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_SEARCH_FIXTURE_H */
