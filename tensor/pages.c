#include "tensor/pages.h"

#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES      ((size_t)4096)

/* Whole huge pages where there is at least one; 0 where that has no number. */
static size_t mapped_bytes(size_t bytes)
{
    size_t unit = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
    size_t least = bytes > 0 ? bytes : 1;

    return least > SIZE_MAX - 2 * HUGE_PAGE_BYTES ? 0 : (least + unit - 1) / unit * unit;
}

/* Maps one huge page more and cuts the ends off. */
void *pages_map(size_t bytes)
{
    const size_t size = mapped_bytes(bytes);
    const size_t room = size + HUGE_PAGE_BYTES;
    unsigned char *start = MAP_FAILED;
    size_t past = 0;
    size_t head = 0;
    size_t tail = 0;

    if (size > 0) {
        start = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (start == MAP_FAILED) {
        return NULL;
    }
    past = (size_t)((uintptr_t)start % HUGE_PAGE_BYTES);
    head = past > 0 ? HUGE_PAGE_BYTES - past : 0;
    tail = room - head - size;
    if (head > 0) {
        (void)munmap(start, head);
    }
    if (tail > 0) {
        (void)munmap(start + head + size, tail);
    }
    /* Advice only: without huge pages it is slower, not wrong. */
    (void)madvise(start + head, size, MADV_HUGEPAGE);
    return start + head;
}

void pages_touch(void *memory, size_t bytes)
{
    for (size_t at = 0; at < mapped_bytes(bytes); at += PAGE_BYTES) {
        ((volatile unsigned char *)memory)[at] = 0;
    }
}

void pages_unmap(void *memory, size_t bytes)
{
    if (memory != NULL) {
        (void)munmap(memory, mapped_bytes(bytes));
    }
}
