/*
 * naive_attention -- causal attention of one head in double precision, as the formulas are
 * written, with (T,T) matrices: what the tests of the kernels compare with.
 */
#ifndef TESTS_TENSOR_NAIVE_ATTENTION_H
#define TESTS_TENSOR_NAIVE_ATTENTION_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One head: q, k, v and out are (T,D), lse is (T). `factors` (T,T): what the weight of a query's
 * key is multiplied by after the softmax, as by dropout; NULL: by 1. */
void naive_attention_forward(double *out, double *lse, const double *q, const double *k,
                             const double *v, const double *factors, size_t T, size_t D);

/* dq, dk, dv (T,D) overwritten. `out` (T,D): NULL, or what the forward's result was rounded to, for
 * a backward that is to work with that. */
void naive_attention_backward(double *dq, double *dk, double *dv, const double *dout,
                              const double *out, const double *q, const double *k, const double *v,
                              const double *factors, size_t T, size_t D);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_NAIVE_ATTENTION_H */
