/*
 * sum -- the XXH3 sum of bytes, by which a checkpoint knows its files and the data of its run.
 *
 * Of bytes that lie in memory at once, or of such as come one after the other: the same bytes have the
 * same sum, whatever pieces they come in.
 */
#ifndef STAGES_CHECKPOINT_SUM_H
#define STAGES_CHECKPOINT_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t sum_of(const void *bytes, size_t count);

/* Of what has been added so far. */
struct sum;

/* Of nothing yet. */
enum status sum_open(struct sum **sum_out);

void sum_add(struct sum *sum, const void *bytes, size_t count);

uint64_t sum_value(const struct sum *sum);

/* Nulls the caller's pointer; NULL is fine. */
void sum_close(struct sum **sum);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_SUM_H */
