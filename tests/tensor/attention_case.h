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
void attention_case_run(const struct kernel_ops *ops, struct attention_case *c,
                        struct stream *stream);

/* Runs it and compares with the double precision loops. `unit` is the rounding error that a term of
 * order one may carry in fp32; sums of up to T such terms (dK, dV) may carry that many. What a
 * variant rounds on the way to a 16-bit format is allowed as naive_attention_rounding() derives it. */
void attention_case_check(const struct kernel_ops *ops, struct attention_case *c,
                          struct stream *stream, double unit);

/* Compares what is in it, as attention_case_check() does behind its run. */
void attention_case_compare(const struct kernel_ops *ops, struct attention_case *c, double unit);

/* All shapes and formats, of every variant: its first team as attention_case_check(), and the bits of
 * the others against that one's. */
void attention_case_check_shapes(const struct attention_dropout *dropout, double unit);

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
