/*
 * large -- memory of many millions of entries.
 *
 * Asks the system for large pages where it has them: a plan of a thousand ranks takes gigabytes, and
 * a fault for every 4 KiB of them takes longer than the plan.
 */
#ifndef SCHEDULER_LARGE_H
#define SCHEDULER_LARGE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `count` elements of `elem_bytes`, not cleared; NULL where memory is short or the product has no
 * size_t. free() it. Never NULL for want of elements. */
void *large_alloc(size_t count, size_t elem_bytes);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_LARGE_H */
