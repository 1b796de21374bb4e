#include "tensor/arena.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES      ((size_t)4096)

/* Each piece is rounded up to the alignment, so every `used_bytes` is a multiple of it. */
static size_t rounded_up(size_t bytes, size_t unit)
{
    ENSURE(bytes <= SIZE_MAX - (unit - 1), "rounding %zu bytes up to %zu", bytes, unit);
    return (bytes + unit - 1) / unit * unit;
}

/* What is mapped for a plan: whole huge pages where there is at least one. */
static size_t mapped_bytes(size_t planned_bytes)
{
    const size_t least = planned_bytes > 0 ? planned_bytes : 1;

    return rounded_up(least, planned_bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES);
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

/* Maps `bytes` that start on a multiple of the huge page: maps one more and cuts the ends off. */
static unsigned char *map_aligned(size_t bytes)
{
    const size_t room = bytes > SIZE_MAX - HUGE_PAGE_BYTES ? bytes : bytes + HUGE_PAGE_BYTES;
    unsigned char *start =
        mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (start == MAP_FAILED) {
        return NULL;
    }
    const size_t past = (size_t)((uintptr_t)start % HUGE_PAGE_BYTES);
    const size_t head = past > 0 ? HUGE_PAGE_BYTES - past : 0;
    const size_t tail = room - head - bytes;
    if (head > 0) {
        (void)munmap(start, head);
    }
    if (tail > 0) {
        (void)munmap(start + head + bytes, tail);
    }
    return start + head;
}

enum status arena_allocate(struct arena *arena, bool touch)
{
    const size_t bytes = mapped_bytes(arena->planned_bytes);

    ENSURE(arena->memory == NULL, "arena %s is allocated already", arena->name);
    arena->memory = map_aligned(bytes);
    if (arena->memory == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "allocating arena %s: %zu bytes are not to be had; a smaller model, "
                           "micro-batch or micro-batch count needs less",
                           arena->name, bytes);
    }
    /* Advice only: without huge pages the arena is slower, not wrong. */
    (void)madvise(arena->memory, bytes, MADV_HUGEPAGE);
    if (touch) {
        for (size_t at = 0; at < bytes; at += PAGE_BYTES) {
            ((volatile unsigned char *)arena->memory)[at] = 0;
        }
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
        (void)munmap(arena->memory, mapped_bytes(arena->planned_bytes));
    }
    memset(arena, 0, sizeof(*arena));
}
