/*
 * search_order -- the orders of all ranks, in a form that a search can change.
 */
#ifndef SCHEDULER_SEARCH_ORDER_H
#define SCHEDULER_SEARCH_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/search_space.h"

#ifdef __cplusplus
extern "C" {
#endif

struct search_op {
    int32_t type;
    int32_t microbatch;
};

struct search_order {
    const struct search_space *space; /* borrows */
    struct search_op *ops;            /* owns; [rank · length + place] */
};

enum status search_order_init(struct search_order *order, const struct search_space *space);

/* Safe on a zeroed order, and twice. */
void search_order_release(struct search_order *order);

/* Both of one space. */
void search_order_copy(struct search_order *order, const struct search_order *from);

/* Takes the orders of a compute-only plan of the same extents and placement, each B as I and W.
 * STATUS_ERR_REFUSED where it is another, or not complete. */
enum status search_order_take(struct search_order *order, const struct plan *compute);

/* The caller owns *compute_out: a compute-only plan with schedule file. */
enum status search_order_plan(const struct search_order *order, struct plan **compute_out);

/* 0 … stages · SEARCH_KINDS · microbatches - 1 */
static inline size_t search_op_number(const struct search_space *space, struct search_op op)
{
    return (size_t)op.type * (size_t)space->microbatches + (size_t)op.microbatch;
}

static inline struct search_op *search_order_line(const struct search_order *order, int32_t rank)
{
    return order->ops + (size_t)rank * (size_t)order->space->length;
}

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_ORDER_H */
