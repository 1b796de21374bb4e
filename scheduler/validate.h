/*
 * validate -- proves a lowered plan before any process starts.
 *
 * Checks, in this order: completeness (every (micro-batch, virtual stage) has one F and either
 * one B or one I and one W; forward-only: one F), placement, precedence on the rank, lanes (the
 * j-th send and the j-th receive of a lane carry the same tag), GATHER and RELEASE around F and I, deadlock freedom at the plan's
 * landing buffers, buffer lifetimes (no slot, gradient set, landing or out buffer is written
 * while somebody still reads it), ascending accumulation (per chunk, F of the last virtual stage,
 * I and W in micro-batch order), SYNC, REDUCE and STEP in their places.
 *
 * Memory: a plan knows no bytes. What it needs is counted in buffers (struct plan_buffers, the peaks
 * along each line, which no timing can exceed because a line has one order), every number is checked
 * against the counts, and who knows the size of a buffer turns counts into bytes.
 *
 * Deadlock graph (a marked graph; Commoner et al. 1971): E1 order of the compute actions of a
 * rank, each SEND behind those before it, and order of the messages of a lane; E2 dependencies inside a rank; E3 send → receive; E4
 * release of message j → send of message j + k, k landing buffers; out buffer: send j → producer
 * of message j + 1. Acyclic means no deadlock in any timing; a shortest cycle is the witness.
 */
#ifndef SCHEDULER_VALIDATE_H
#define SCHEDULER_VALIDATE_H

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* STATUS_OK, or STATUS_ERR_REFUSED with one message: rank, index, action, what is wrong, and the
 * cycle where there is one. */
enum status plan_validate(const struct plan *lowered);

/* The same, all checks in the order above over all ranks: what a plan that scheduler/proof.h did not
 * prove line by line is refused with. */
enum status plan_validate_in_order(const struct plan *lowered);

/* That for whoever has an index of the lowered plan. */
enum status plan_validate_indexed(const struct plan *lowered, const struct plan_index *index);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_VALIDATE_H */
