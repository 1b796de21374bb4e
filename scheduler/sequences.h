/*
 * sequences -- what a chunk keeps at once where sequences go through in slices: keys, and landing buffers.
 *
 * A slice reads the keys and values of all slices before it, so those of a micro-batch stay from its
 * first F to the last of its I, or of its F where there is none. Slices of a chunk come in order
 * (scheduler/lifetime.h), so micro-batches that stay have numbers in a row: micro-batch u can lie in
 * place u modulo the count.
 */
#ifndef SCHEDULER_SEQUENCES_H
#define SCHEDULER_SEQUENCES_H

#include <stdint.h>

#include "scheduler/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most micro-batches whose keys stay at any time in the line of `rank`; 0 where sequences are whole. */
int32_t plan_sequences(const struct plan *plan, int32_t rank, int32_t chunk);

/* The most inputs of the chunk from the oldest that an I still needs to the newest that an F has asked for,
 * 0 where sequences are whole. Landing buffers go in turn, and the first slice of a micro-batch is the last
 * to go back, so that these are more than are held: k - 1 more in seq1f1b. */
int32_t plan_landing_window(const struct plan *plan, int32_t rank, int32_t chunk);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEQUENCES_H */
