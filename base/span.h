/*
 * span -- what a thread did and when, in a ring of fixed records.
 *
 * Each thread that works writes to a ring of its own: no lock, no allocation, no syscall but the
 * clock. The reader is the same thread, or another after the writer has stopped. When the ring is
 * full the oldest record is overwritten and counted as dropped.
 *
 * Knows nothing of the field: `kind` and `args` get their meaning from scheduler/trace.
 */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPAN_ARGS 9 /* a span fills a cache line */

struct span {
    int64_t begin_ns; /* clock_now_ns() */
    int64_t end_ns;   /* >= begin_ns */
    uint64_t bytes;   /* moved by it, 0 where none */
    uint32_t kind;
    int32_t args[SPAN_ARGS];
};

struct span_ring {
    struct span *spans; /* owns */
    uint64_t capacity;  /* set at init */
    uint64_t written;   /* since init; span k lies at k mod capacity */
    uint64_t read;      /* first span not yet taken by span_ring_take() */
    uint64_t dropped;   /* overwritten before they were taken */
};

/* STATUS_ERR_NO_MEMORY leaves the ring empty. `capacity` >= 1. */
enum status span_ring_init(struct span_ring *ring, uint64_t capacity);

/* Never fails; overwrites the oldest when full. */
void span_ring_put(struct span_ring *ring, const struct span *span);

/* Copies up to `most` of the oldest spans not yet taken to `out` and returns how many. */
size_t span_ring_take(struct span_ring *ring, struct span *out, size_t most);

/* Forgets what lies untaken. */
void span_ring_discard(struct span_ring *ring);

/* How many spans lie untaken. */
size_t span_ring_ready(const struct span_ring *ring);

/* Safe on a zeroed ring, and twice. */
void span_ring_release(struct span_ring *ring);

#ifdef __cplusplus
}
#endif

#endif /* BASE_SPAN_H */
