/*
 * arena -- one block of memory for one purpose, planned before it is allocated.
 *
 * The same carving code runs twice: first on a measuring arena, where arena_take() only adds up
 * and returns NULL, then, after arena_allocate(), for the pointers. So the size of a block is
 * never computed by hand, and what is planned is what is used. No memory is taken after that.
 *
 *     arena_measure(&arena, "activations");
 *     carve(&model, &arena);          -- pointers are NULL, sizes are right
 *     TRY(arena_allocate(&arena));
 *     carve(&model, &arena);          -- the same calls, now with memory
 */
#ifndef TENSOR_ARENA_H
#define TENSOR_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every piece starts on a cache line pair, which also suits AVX-512 loads. */
#define ARENA_ALIGN_BYTES 128

struct arena {
    const char *name;      /* borrows a static string; for messages and the memory table */
    unsigned char *memory; /* owns, unless `placed`; NULL while measuring */
    bool placed;           /* in memory of somebody else's */
    size_t planned_bytes;  /* what measuring added up */
    size_t used_bytes;     /* taken so far in the present pass */
    struct device *device; /* borrows; whose memory it is, NULL for the host's */
    enum device_memory kind;
};

/* Starts (or starts again) the measuring pass. */
void arena_measure(struct arena *arena, const char *name);

/* The next piece of `elems` × `elem_bytes`, aligned to ARENA_ALIGN_BYTES: NULL while measuring. A
 * product that does not fit size_t, or taking more than was planned, is our bug: ENSURE. */
void *arena_take(struct arena *arena, size_t elems, size_t elem_bytes);
float *arena_take_floats(struct arena *arena, size_t elems);

/* Before arena_allocate(): the memory will be `kind` of the device, which outlives the arena. Without, and with a
 * device of NULL, it is the host's. */
void arena_put_on(struct arena *arena, struct device *device, enum device_memory kind);

/* Ends measuring: allocates planned_bytes with huge pages where the kernel gives them, zeroed, and
 * touched where `touch` and the host may, and starts the second pass. STATUS_ERR_NO_MEMORY names the arena
 * and the bytes and leaves it measuring. */
enum status arena_allocate(struct arena *arena, bool touch);

/* Ends measuring in memory that somebody else has made (shared memory): planned_bytes of it from
 * `memory`, aligned to ARENA_ALIGN_BYTES, zeroed, and there until the arena is released. */
void arena_place(struct arena *arena, void *memory);

/* Safe on a zeroed arena, and twice. */
void arena_release(struct arena *arena);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_ARENA_H */
