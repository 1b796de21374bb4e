/*
 * guarded -- a buffer of floats between two bands that a kernel must not touch.
 *
 * Begins at a multiple of 64 bytes and is filled with NaN, so that a kernel that reads what it was
 * not given shows it too. For tests; every failure is a cmocka failure.
 */
#ifndef TESTS_TENSOR_GUARDED_H
#define TESTS_TENSOR_GUARDED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct guarded {
    float *floats; /* `elems` of them; owned */
    size_t elems;
};

void guarded_make(struct guarded *guarded, size_t elems);

/* Fills with numbers in [-range, range) that depend on the seed and the place only. */
void guarded_fill(struct guarded *guarded, uint32_t seed, float range);

/* Makes a copy of the same numbers, with bands of its own. */
void guarded_copy(struct guarded *guarded, const struct guarded *from);

/* The same numbers in double; the caller frees them. */
double *guarded_doubles(const struct guarded *from);

/* Fails where a band was written to. */
void guarded_check(const struct guarded *guarded);

/* Fails unless both hold the same bits. */
void guarded_equal(const struct guarded *a, const struct guarded *b);

/* Fails where |floats[i] - want[i]| > allowed, naming `what` and the place. */
void guarded_close(const struct guarded *guarded, const double *want, double allowed,
                   const char *what);

/* Checks the bands and frees. */
void guarded_free(struct guarded *guarded);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_GUARDED_H */
