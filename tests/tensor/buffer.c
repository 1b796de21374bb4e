#include "buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *buffer_take(size_t bytes)
{
    /* aligned_alloc wants a multiple of the alignment. */
    const size_t all = (bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, all > 0 ? all : 64);

    assert_non_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

void buffer_give(void *memory)
{
    free(memory);
}
