/*
 * generate_order -- the line of one rank while a generator writes it.
 *
 * What the families of orders share: an action appended, and the table of groups of micro-batches
 * that go from chunk to chunk. Private to generate*.c.
 */
#ifndef SCHEDULER_GENERATE_ORDER_H
#define SCHEDULER_GENERATE_ORDER_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct order {
    struct plan *plan;
    int32_t rank;
    const int32_t *stage_of; /* [rank · v + chunk]; NULL: as the plan's placement has it */
    enum status status;      /* the first failure stays */
};

/* Appends one action. Micro-batches from m on are left out: some orders are those of a longer step,
 * cut off. */
void order_add(struct order *order, enum action_kind kind, int32_t microbatch, int32_t chunk);

/* Where a line stands in the table of (micro-batch, chunk) that groups of micro-batches make: a
 * group passes chunk 0, then chunk 1, ..., then the next group begins. */
struct group_walk {
    int32_t chunks;
    int32_t size; /* of the group */
    int32_t rest; /* groups, this one included, that are one larger than the smallest */
    int32_t first;
    int32_t chunk;
    int32_t offset; /* in the group */
};

/* The beginning of a table of `groups` groups whose sizes differ by at most one, larger first. */
struct group_walk group_walk_of(const struct plan_shape *shape, int32_t groups);

/* The same with as many groups as the schedule has: max(1, m div p), one for bfs. */
struct group_walk group_walk_begin(const struct plan_shape *shape);

/* Adds the next one of the table, and one more: backwards see the chunks from the other end. */
void order_add_next(struct order *order, enum action_kind kind, struct group_walk *walk);

/* The families. Each writes the whole line of `order`. */
void order_one_f_one_b(struct order *order);     /* gpipe, 1f1b, interleaved_1f1b, bfs */
void order_sequence_slices(struct order *order); /* seq1f1b */
void order_forwards(struct order *order, struct group_walk forward); /* forward_only */
void order_zero_bubble(struct order *order);                         /* zb_h1, zb_h2, izb */
void order_zero_bubble_v(struct order *order);                       /* zb_v */

/* v_half, v_min: all lines, because they are made together. `pulled` false leaves the repeated
 * pattern as it is (generate_pattern.c). */
enum status order_pattern(struct plan *plan, bool pulled);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_GENERATE_ORDER_H */
