/*
 * generate -- compute-only orders of every schedule that has a name (scheduler/schedule.h).
 *
 * Backwards come in ascending micro-batch order per chunk in every schedule, because gradients are
 * accumulated in that order. Any m >= 1 is legal, m < p included. A rank's F, I, W of a micro-batch
 * cost F, I, W (B = I + W), a chunk 1/v of it; bubbles are those of a step that ends for all ranks at
 * once; stashes are counted in micro-batches over all layers of rank r, from F to the end of W.
 *
 * gpipe (Huang et al. 2019): all F, then all B. Bubble (p-1)(F+B), stashes m.
 *
 * 1f1b (Fan et al. 2021, Narayanan et al. 2021): w = min(m, p-1-r) forwards, then F and B in turn,
 * then the rest of the backwards. Bubble (p-1)(F+B), stashes min(m, p-r). With e extra_in_flight,
 * w is min(e, p-1-r) larger, and so are the stashes: the bubble stays and messages may take longer;
 * e = p-1 is eager 1F1B. With early send the bubble of gpipe, 1f1b, interleaved_1f1b and bfs has
 * F+I in place of F+B.
 *
 * interleaved_1f1b takes the micro-batches in G = max(1, m div p) groups whose sizes differ by at
 * most one, larger first: a group passes chunk 0, then chunk 1, ..., then the next group begins. The
 * k-th backward is the k-th forward with chunks counted from the other end. Rank r runs
 * w = min(m·v, 2(p-1-r) + (v-1)·g) forwards first, g the size of the first group. Groups of at
 * least p keep every rank busy while a micro-batch goes round, so that the bubble is
 * (p-1)(F+B)/v for every m >= p, with early send (p-1)(F+I)/v where W <= F; equal sizes keep the
 * groups from waiting for each other, which groups of p and a rest would. Stashes
 * ((v-1)g + 2(p-1-r) + 1)/v. With v = 1 it is 1f1b.
 *
 * bfs (Lamy-Poirier 2023): chunk after chunk all F, then from the last chunk all B: each chunk's
 * weights are needed in two stretches of a step, the fewest. Bubble (p-1)(F+B)/v, stashes m.
 *
 * zb_h1, zb_h2 (Qi et al. 2023): W is put off. zb_h1 runs W of a micro-batch r backwards later:
 * bubble (p-1)·max(F, I + max(0, F-W)), stashes p on every rank. zb_h2 begins 2(p-1-r) + 1 forwards first
 * and W is 2r backwards late: no rank waits between its first and its last action where
 * F = I = W, stashes 2p-1; the step is still (p-1)F longer, because ranks begin one after the other.
 *
 * izb is interleaved_1f1b with W put off r backwards, and w = min(m·v, p-1-r + (v-1)·g): bubble
 * (p-1)·max(F, I + max(0, F-W))/v for m >= p, stashes ((v-1)g + p)/v on every rank, p where p divides m.
 *
 * zb_v, v_half, v_min (Qi et al. 2024) have two chunks a rank on a V, so that a rank with an early
 * forward has a late one as well, and all ranks hold the same. zb_v: bubble (p-1)F/2 at F = I = W and
 * m >= 2p-1, stashes p. v_half: stashes (p+2) div 2; v_min: (p+4) div 3, made for F, I, W that are
 * nearly the same; their bubbles stay between those of zb_v and 1f1b (generate_pattern.c).
 *
 * seq1f1b (Sun et al. 2024) is 1f1b of pieces: a sequence goes through in k slices, of equal cost
 * (stages/model/slices.h), and what goes forward are the slices of micro-batch after micro-batch, what goes
 * back those of a micro-batch from the last to the first, because a slice adds to the gradients of all
 * before it. Rank r runs w = min(m·k, p-2-r+k) forwards first, k-1 more than 1f1b would, so that a whole
 * micro-batch is there. Bubble (p-1)(F+B)/k, stashes of rank 0 1 + (p-1)/k micro-batches; keys and
 * values are kept whole besides (scheduler/sequences.h). With k = 1 it is 1f1b.
 *
 * forward_only takes the forwards of interleaved_1f1b in their order: evaluation runs on the
 * chunks that training placed. A micro-batch comes back to rank 0 p forwards after it left, and the
 * group fills them: the bubble is (p-1)F/v. Taking all micro-batches through chunk 0 first would
 * have the same bubble, but would keep m activations waiting in front of chunk 1.
 */
#ifndef SCHEDULER_GENERATE_H
#define SCHEDULER_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller owns *plan_out. STATUS_ERR_REFUSED as plan_create(). */
enum status plan_generate(const struct plan_shape *shape, struct plan **plan_out);

/* Whether the lines of `plan`, which may have none yet, are those that its schedule gives one by one; and one of
 * them, which is as plan_generate() has it. */
bool plan_generates_lines(const struct plan *plan);
enum status plan_generate_line(struct plan *plan, int32_t rank);

/* The forward-only plan on the chunks that `training` places. On a loop it is that of
 * plan_generate(). On any other placement groups have at most lane_depth + 1 micro-batches, as many
 * as a lane has landing buffers: in the order (group, virtual stage, micro-batch) every credit then
 * comes before the send that needs it, so that no placement can deadlock. */
enum status plan_generate_evaluation(const struct plan *training, struct plan **plan_out);

/* The shape of that plan; false where it is not what plan_generate() makes of it. */
bool plan_evaluation_shape(const struct plan *training, struct plan_shape *shape_out);

/* Landing buffers of a lane into `stage` beyond those that every lane has. Groups of more than p
 * micro-batches come back to the rank that they left before it takes them, and as many messages as
 * the group is too large wait in the lanes that close the loop; bfs, a single group, can have all m
 * waiting there; some orders have half of p early. With them lane_depth 2 loses no time against
 * landing buffers without end, in all shapes that the tests try. */
int32_t plan_lane_excess(const struct plan *plan, int32_t stage, enum lane_direction direction);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_GENERATE_H */
