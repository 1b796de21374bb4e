#include "guarded.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buffer.h"

enum {
    BAND_ELEMS = 64,
    BAND_BYTE = 0xA5
};

void guarded_make(struct guarded *guarded, size_t elems)
{
    /* A multiple of 64 bytes; the second band begins right behind the last element all the same. */
    size_t all = (elems + 15) / 16 * 16 + (size_t)2 * BAND_ELEMS;
    float *memory = buffer_take(all * sizeof(*memory));

    memset(memory, BAND_BYTE, all * sizeof(*memory));
    guarded->floats = memory + BAND_ELEMS;
    guarded->elems = elems;
    for (size_t i = 0; i < elems; i++) {
        guarded->floats[i] = NAN;
    }
}

void guarded_fill(struct guarded *guarded, uint32_t seed, float range)
{
    uint32_t state = seed * 2654435761U + 1U;

    for (size_t i = 0; i < guarded->elems; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        guarded->floats[i] = range * ((float)(state >> 8) * 0x1p-23F - 1.0F);
    }
}

void guarded_copy(struct guarded *guarded, const struct guarded *from)
{
    guarded_make(guarded, from->elems);
    memcpy(guarded->floats, from->floats, from->elems * sizeof(*from->floats));
}

double *guarded_doubles(const struct guarded *from)
{
    double *memory = calloc(from->elems, sizeof(*memory));

    assert_non_null(memory);
    for (size_t i = 0; i < from->elems; i++) {
        memory[i] = (double)from->floats[i];
    }
    return memory;
}

void guarded_check(const struct guarded *guarded)
{
    const unsigned char *before = (const unsigned char *)(guarded->floats - BAND_ELEMS);
    const unsigned char *after = (const unsigned char *)(guarded->floats + guarded->elems);

    for (size_t i = 0; i < BAND_ELEMS * sizeof(float); i++) {
        if (before[i] != BAND_BYTE || after[i] != BAND_BYTE) {
            fail_msg("a band around %zu floats was written to, %zu bytes %s", guarded->elems,
                     before[i] != BAND_BYTE ? BAND_ELEMS * sizeof(float) - i : i,
                     before[i] != BAND_BYTE ? "before the begin" : "after the end");
        }
    }
}

void guarded_equal(const struct guarded *a, const struct guarded *b)
{
    assert_int_equal(a->elems, b->elems);
    assert_memory_equal(a->floats, b->floats, a->elems * sizeof(float));
}

void guarded_close(const struct guarded *guarded, const double *want, double allowed,
                   const char *what)
{
    for (size_t i = 0; i < guarded->elems; i++) {
        double error = fabs((double)guarded->floats[i] - want[i]);

        if (!(error <= allowed)) {
            fail_msg("%s[%zu of %zu]: expected %.9g, found %.9g, off by %.3g, allowed %.3g", what,
                     i, guarded->elems, want[i], (double)guarded->floats[i], error, allowed);
        }
    }
}

void guarded_free(struct guarded *guarded)
{
    guarded_check(guarded);
    buffer_give(guarded->floats - BAND_ELEMS);
    guarded->floats = NULL;
}
