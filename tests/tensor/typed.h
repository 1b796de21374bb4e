/*
 * typed -- a guarded buffer of numbers in any format, filled with NaN to begin with.
 */
#ifndef TESTS_TENSOR_TYPED_H
#define TESTS_TENSOR_TYPED_H

#include "guarded.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct typed {
    void *data; /* `elems` numbers of `type`, at a multiple of 64 bytes; owned */
    enum dtype type;
    size_t elems;
    struct guarded memory;
};

void typed_make(struct typed *typed, enum dtype type, size_t elems);

/* The numbers of guarded_fill(), rounded to the format. */
void typed_fill(struct typed *typed, uint32_t seed, float range);

/* Makes a copy of the same bits, with bands of its own. */
void typed_copy(struct typed *typed, const struct typed *from);

/* Makes a buffer of the numbers of `from`, rounded to `type`. */
void typed_round(struct typed *typed, enum dtype type, const struct guarded *from);

/* Makes floats of the same numbers. */
void typed_widen(struct guarded *floats, const struct typed *from);

float typed_at(const struct typed *typed, size_t index);
void typed_set(struct typed *typed, size_t index, float number);

/* Fails unless both hold the same bits. */
void typed_equal(const struct typed *a, const struct typed *b);

/* Checks the bands and frees. */
void typed_free(struct typed *typed);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_TYPED_H */
