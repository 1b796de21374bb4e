/*
 * attention_case -- the tensors of attention for one shape, format and dropout, run by a variant
 * and held against naive_attention. For tests; every failure is a cmocka failure.
 */
#ifndef TESTS_TENSOR_ATTENTION_CASE_H
#define TESTS_TENSOR_ATTENTION_CASE_H

#include <stdbool.h>
#include <stddef.h>

#include "guarded.h"
#include "tensor/dtype.h"
#include "tensor/kernels.h"
#include "typed.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTENTION_CASE_SHAPES   11
#define ATTENTION_CASE_VARIANTS 2

/* Around the edges of panels, blocks and tiles. */
extern const struct attention_shape attention_case_shapes[ATTENTION_CASE_SHAPES];

/* Names for kernels_cpu_find(), which has not all of them everywhere. */
extern const char *const attention_case_variants[ATTENTION_CASE_VARIANTS];

struct attention_case {
    struct attention_shape shape;
    const struct attention_dropout *dropout; /* NULL: none; borrowed */
    struct typed qkv;
    struct typed out;
    struct typed dqkv;
    struct guarded lse;
    struct guarded dout;
};

/* The same numbers for the same shape and type; those of qkv in [-range, range). */
void attention_case_make(struct attention_case *c, const struct attention_shape *shape,
                         enum dtype type, const struct attention_dropout *dropout, float range);

void attention_case_free(struct attention_case *c);

/* Both directions. */
void attention_case_run(const struct kernel_ops *ops, struct attention_case *c, int threads);

/* Runs it and compares with the double precision loops. `unit` is the rounding error that a term of
 * order one may carry in fp32; sums of up to T such terms (dK, dV) may carry that many. */
void attention_case_check(const struct kernel_ops *ops, struct attention_case *c, double unit);

/* Fails unless the results of both have the same bits. */
void attention_case_equal(const struct attention_case *a, const struct attention_case *b);

/* What query q's weight of key k is multiplied by in sample `batch` and head `head` of the call:
 * asked from rng.h, one element at a time. */
double attention_case_factor(const struct attention_dropout *dropout,
                             const struct attention_shape *shape, size_t batch, size_t head,
                             size_t q, size_t k);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_ATTENTION_CASE_H */
