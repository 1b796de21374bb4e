#include "base/span.h"

#include <stdlib.h>
#include <string.h>

enum status span_ring_init(struct span_ring *ring, uint64_t capacity)
{
    memset(ring, 0, sizeof(*ring));
    /* calloc, and the loop below touches it, so that no page fault falls into a step. */
    ring->spans = calloc((size_t)capacity, sizeof(*ring->spans));
    if (ring->spans == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "span ring: %zu bytes for %llu spans",
                           (size_t)capacity * sizeof(*ring->spans), (unsigned long long)capacity);
    }
    memset(ring->spans, 0, (size_t)capacity * sizeof(*ring->spans));
    ring->capacity = capacity;
    return STATUS_OK;
}

void span_ring_put(struct span_ring *ring, const struct span *span)
{
    ring->spans[ring->written % ring->capacity] = *span;
    ring->written++;
    if (ring->written - ring->read > ring->capacity) {
        ring->read++;
        ring->dropped++;
    }
}

size_t span_ring_take(struct span_ring *ring, struct span *out, size_t most)
{
    size_t taken = 0;

    while (taken < most && ring->read < ring->written) {
        out[taken++] = ring->spans[ring->read % ring->capacity];
        ring->read++;
    }
    return taken;
}

void span_ring_discard(struct span_ring *ring)
{
    ring->read = ring->written;
}

size_t span_ring_ready(const struct span_ring *ring)
{
    return (size_t)(ring->written - ring->read);
}

void span_ring_release(struct span_ring *ring)
{
    free(ring->spans);
    memset(ring, 0, sizeof(*ring));
}
