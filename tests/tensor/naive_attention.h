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

/* One head: q, k, v and out are (T,D), lse is (T). */
void naive_attention_forward(double *out, double *lse, const double *q, const double *k,
                             const double *v, size_t T, size_t D);

/* dq, dk, dv (T,D) overwritten. */
void naive_attention_backward(double *dq, double *dk, double *dv, const double *dout,
                              const double *q, const double *k, const double *v, size_t T,
                              size_t D);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_NAIVE_ATTENTION_H */
