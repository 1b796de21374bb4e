/*
 * validate -- proves a lowered plan before any process starts.
 *
 * Checks, in this order: completeness (every (micro-batch, virtual stage) has one F and either
 * one B or one I and one W; forward-only: one F), placement, precedence on the rank, lanes (the
 * j-th send and the j-th receive of a lane carry the same tag), deadlock freedom at the plan's
 * landing buffers, buffer lifetimes (no slot, gradient set, landing or out buffer is written
 * while somebody still reads it), ascending accumulation (per chunk, F of the last virtual stage,
 * I and W in micro-batch order), SYNC and STEP in their places.
 *
 * Deadlock graph (a marked graph; Commoner et al. 1971): E1 order of the compute actions of a
 * rank and order of the messages of a lane; E2 dependencies inside a rank; E3 send → receive; E4
 * release of message j → send of message j + k, k landing buffers; out buffer: send j → producer
 * of message j + 1. Acyclic means no deadlock in any timing; a shortest cycle is the witness.
 */
#ifndef SCHEDULER_VALIDATE_H
#define SCHEDULER_VALIDATE_H

#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* STATUS_OK, or STATUS_ERR_REFUSED with one message: rank, index, action, what is wrong, and the
 * cycle where there is one. */
enum status plan_validate(const struct plan *lowered);

/* Least number of landing buffers, the same on every lane and released at receipt, at which the
 * plan has no deadlock (`min_depth` of the JSON form). */
enum status plan_min_depth(const struct plan *lowered, int32_t *depth_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_VALIDATE_H */
