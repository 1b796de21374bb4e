/*
 * landing -- the numbers of the landing buffers of a lowered plan.
 *
 * Part of plan_lower(), when the buffers of every chunk are counted. Messages of a lane into one
 * chunk fill its landing buffers in turn, so that both ends count for themselves: the sender what
 * it sent into the chunk, the receiver what it got. Buffers that a chunk of the same rank writes
 * to have their numbers from lower.c already and keep them.
 */
#ifndef SCHEDULER_LANDING_H
#define SCHEDULER_LANDING_H

#include "base/status.h"
#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `landing` of every SEND, RECV and compute action whose message comes by a lane. Each RECV stands before its consumer. */
enum status landing_number(struct plan *lowered);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LANDING_H */
