/*
 * order -- an order of actions for a contender that no schedule with a name has.
 *
 * A search for the contender's shape and costs (scheduler/search.h): with no more micro-batches in flight than
 * the contender itself holds, and with as many as fit, which is taken where it is faster by enough to
 * be worth its memory. What is found is a plan file among the jobs, from which the new contender is loaded
 * like any other.
 */
#ifndef STAGES_TUNE_ORDER_H
#define STAGES_TUNE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/tune/contender.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune_order_search {
    const struct tune_base *base;        /* borrows */
    const struct tune_cost_table *table; /* borrows; knows the contender's costs */
    const char *path;    /* borrows; the file that a found plan is written to, without an ending */
    int64_t limit_bytes; /* of a rank; 0: none */
    uint64_t seed;
};

/* *better_out: a faster plan that fits is in a file, and *found_out, which the caller releases, is
 * its contender, predicted from the same table. */
enum status tune_order_find(const struct tune_order_search *search,
                            const struct tune_contender *contender,
                            struct tune_contender *found_out, bool *better_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_ORDER_H */
