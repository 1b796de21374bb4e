/*
 * landing -- the numbers of the landing buffers of a lowered plan.
 *
 * Numbers them again after a mutation has changed their counts, in passes of its own where lowering
 * numbers as it goes. Messages of a lane into one chunk fill its landing buffers in turn, so that
 * both ends count for themselves: the sender what it sent into the chunk, the receiver what it got.
 * Buffers that a chunk of the same rank writes to keep their numbers.
 */
#ifndef TESTS_LANDING_H
#define TESTS_LANDING_H

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

#endif /* TESTS_LANDING_H */
