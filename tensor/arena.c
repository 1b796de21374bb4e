#include "tensor/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "tensor/pages.h"

/* Each piece is rounded up to the alignment, so every `used_bytes` is a multiple of it. */
static size_t rounded_up(size_t bytes, size_t unit)
{
    ENSURE(bytes <= SIZE_MAX - (unit - 1), "rounding %zu bytes up to %zu", bytes, unit);
    return (bytes + unit - 1) / unit * unit;
}

void arena_measure(struct arena *arena, const char *name)
{
    memset(arena, 0, sizeof(*arena));
    arena->name = name;
}

void *arena_take(struct arena *arena, size_t elems, size_t elem_bytes)
{
    unsigned char *piece = arena->memory;
    size_t bytes = 0;

    ENSURE(!__builtin_mul_overflow(elems, elem_bytes, &bytes),
           "arena %s: %zu elements of %zu bytes", arena->name, elems, elem_bytes);
    bytes = rounded_up(bytes, ARENA_ALIGN_BYTES);
    if (piece == NULL) {
        ENSURE(!__builtin_add_overflow(arena->used_bytes, bytes, &arena->used_bytes),
               "arena %s: %zu more bytes", arena->name, bytes);
        arena->planned_bytes = arena->used_bytes;
        return NULL;
    }
    ENSURE(bytes <= arena->planned_bytes - arena->used_bytes,
           "arena %s: %zu bytes planned, %zu used, %zu more asked for", arena->name,
           arena->planned_bytes, arena->used_bytes, bytes);
    piece += arena->used_bytes;
    arena->used_bytes += bytes;
    return piece;
}

float *arena_take_floats(struct arena *arena, size_t elems)
{
    return arena_take(arena, elems, sizeof(float));
}

void arena_put_on(struct arena *arena, struct device *device, enum device_memory kind)
{
    ENSURE(arena->memory == NULL, "arena %s is allocated already", arena->name);
    arena->device = device;
    arena->kind = kind;
}

static enum status take_memory(struct arena *arena, void **memory_out)
{
    if (arena->device != NULL) {
        return device_take(arena->device, arena->kind, arena->name, arena->planned_bytes,
                           memory_out);
    }
    *memory_out = pages_map(arena->planned_bytes);
    return *memory_out != NULL
               ? STATUS_OK
               : status_fail(STATUS_ERR_NO_MEMORY,
                             "allocating arena %s: %zu bytes are not to be had; a smaller model, "
                             "micro-batch or micro-batch count needs less",
                             arena->name, arena->planned_bytes);
}

static bool host_reaches(const struct arena *arena)
{
    return arena->device == NULL || arena->kind == DEVICE_HOST ||
           device_tensors_are_here(arena->device);
}

enum status arena_allocate(struct arena *arena, bool touch)
{
    void *memory = NULL;

    ENSURE(arena->memory == NULL, "arena %s is allocated already", arena->name);
    TRY(take_memory(arena, &memory));
    arena->memory = memory;
    if (touch && host_reaches(arena)) {
        pages_touch(memory, arena->planned_bytes);
    }
    arena->used_bytes = 0;
    return STATUS_OK;
}

void arena_place(struct arena *arena, void *memory)
{
    ENSURE(arena->memory == NULL, "arena %s is allocated already", arena->name);
    ENSURE((uintptr_t)memory % ARENA_ALIGN_BYTES == 0, "arena %s at %p", arena->name, memory);
    arena->memory = memory;
    arena->placed = true;
    arena->used_bytes = 0;
}

void arena_release(struct arena *arena)
{
    if (arena->memory != NULL && !arena->placed) {
        if (arena->device != NULL) {
            device_give(arena->device, arena->kind, arena->memory, arena->planned_bytes);
        } else {
            pages_unmap(arena->memory, arena->planned_bytes);
        }
    }
    memset(arena, 0, sizeof(*arena));
}
