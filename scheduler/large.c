#include "scheduler/large.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)

void *large_alloc(size_t count, size_t elem_bytes)
{
    size_t bytes = count * elem_bytes;
    void *memory;

    if (elem_bytes > 0 && count > (SIZE_MAX - LARGE_PAGE) / elem_bytes) {
        return NULL;
    }
    if (bytes < 4 * LARGE_PAGE) {
        return malloc(bytes > 0 ? bytes : 1);
    }
    bytes = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    memory = aligned_alloc(LARGE_PAGE, bytes);
    if (memory != NULL) {
        /* A wish: without it the memory is the same, only slower to get. */
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    }
    return memory;
}
