/*
 * bubble_formula -- the bubble of a schedule as a closed form, where it has one.
 *
 * What generate.h says of each schedule, with numbers put in: (p-1) times a cost, and of that a v-th with v
 * chunks a rank, a k-th with sequences in k slices. F, I and W are those of a rank and micro-batch, the same on all
 * ranks, messages take no time, and the bubble is what a step takes beyond m(F+I+W). Knows no plan and simulates
 * nothing: where a formula does not hold, scheduler/simulate.h tells what the bubble is.
 */
#ifndef SCHEDULER_BUBBLE_FORMULA_H
#define SCHEDULER_BUBBLE_FORMULA_H

#include <stdint.h>
#include <stdio.h>

#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bubble_formula {
    const char *text; /* "(p-1)(F+I)/v"; static; NULL: the schedule has no closed form */
    const char
        *limit; /* "m >= p", "F = I = W"; static: it holds only where that does, and here that does
                          not; NULL: it holds */
    int32_t hops;  /* p-1 */
    int32_t parts; /* v, or k; 1 where a rank has a chunk and sequences are whole */
    double each;   /* hops · each / parts = bubble; in the unit of the costs, as bubble */
    double bubble; /* 0 where it does not hold */
};

/* Costs are those of a rank and micro-batch: a chunk has 1/v of them, a slice 1/k. */
void bubble_formula_find(const struct plan_shape *shape, double F, double I, double W,
                         struct bubble_formula *formula_out);

/* "(p-1)(F+I)/v = 3 x 5.00 ms / 2 = 7.50 ms" of costs in nanoseconds; "simulated, because (p-1)F/2 holds only
 * where F = I = W"; "simulated, because v_half has no closed form". */
void bubble_formula_print(const struct bubble_formula *formula, enum schedule schedule, FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_BUBBLE_FORMULA_H */
