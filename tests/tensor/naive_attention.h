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

/* How far kernels may be off that round weights and their gradients to a 16-bit format before they
 * multiply them, though they add in fp32: bounds (4,T,D) for out, dq, dk and dv. A number x becomes
 * x' with |x' - x| <= u |x| + s, u half a step of the format's significand and s half its smallest
 * number. With f the factor of a weight, all of it element by element, and nothing left out:
 *   out   f p becomes p' before it meets v; the kernel rounds exp(score - greatest so far), of which
 *         the largest is 1 in the end, so of p itself s is a bound too: sum of f (u p + s) |v|
 *   dv    f p and dout are rounded, with errors e and d: sum of e |dout| + f p d + e d
 *   dp    dout is rounded: sum of d |v|, over the columns
 *   ds    p (f dp - out·dout) with p f times that, then rounded itself: E
 *   dq    sum of E |k| / sqrt(D), dk the same of |q| */
void naive_attention_rounding(double *bounds, const double *dout, const double *out,
                              const double *q, const double *k, const double *v,
                              const double *factors, size_t T, size_t D, double u, double s);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_NAIVE_ATTENTION_H */
