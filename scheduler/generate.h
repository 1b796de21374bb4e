/*
 * generate -- compute-only orders: gpipe, 1f1b, interleaved_1f1b, forward_only.
 *
 * Orders and formulas: Huang et al. 2019 (GPipe), Fan et al. 2021 and Narayanan et al. 2021 (1F1B
 * with flush: rank r runs w = min(m, p-1-r) forwards, then F and B in turn, then the rest of the
 * backwards; interleaved: the same over v chunks a rank). Backwards come in ascending micro-batch
 * order per chunk in every schedule, because gradients are accumulated in that order. Any m >= 1
 * is legal, m < p included.
 *
 * interleaved_1f1b takes the micro-batches in G = max(1, m div p) groups whose sizes differ by at
 * most one, larger first: a group passes chunk 0, then chunk 1, …, then the next group begins. The
 * k-th backward is the k-th forward with chunks counted from the other end. Rank r runs
 * w = min(m·v, 2(p-1-r) + (v-1)·g) forwards first, g the size of the first group. Groups of at
 * least p keep every rank busy while a micro-batch goes round, so that the bubble is
 * (p-1)(F+B)/v for every m >= p, with early send (p-1)(F+I)/v where W <= F; equal sizes keep the
 * groups from waiting for each other, which groups of p and a rest would. With v = 1 it is 1f1b, whose warm-up is p-1-r.
 *
 * forward_only takes the forwards of interleaved_1f1b in their order: evaluation runs on the
 * chunks that training placed. A micro-batch comes back to rank 0 p forwards after it left, and the
 * group fills them: the bubble is (p-1)F/v. Taking all micro-batches through chunk 0 first would
 * have the same bubble, but would keep m activations waiting in front of chunk 1.
 */
#ifndef SCHEDULER_GENERATE_H
#define SCHEDULER_GENERATE_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller owns *plan_out. STATUS_ERR_REFUSED as plan_create(). */
enum status plan_generate(const struct plan_shape *shape, struct plan **plan_out);

/* The forward-only plan on the chunks that `training` places. On a loop it is that of
 * plan_generate(). On any other placement groups have at most lane_depth + 1 micro-batches, as many
 * as a lane has landing buffers: in the order (group, virtual stage, micro-batch) every credit then
 * comes before the send that needs it, so that no placement can deadlock. */
enum status plan_generate_evaluation(const struct plan *training, struct plan **plan_out);

/* Micro-batches of the first group, the largest: m div G, rounded up. */
int32_t plan_group_size(const struct plan_shape *shape);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_GENERATE_H */
