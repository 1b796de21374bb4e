/*
 * gelu -- bias and GELU (tanh form) of the MLP's inner activation.
 *
 *   forward
 *   pre     (N,F)  read and overwritten: pre + bias, which the backward reads
 *   bias    (F)    read
 *   out     (N,F)  overwritten; must not alias pre
 *   backward
 *   dout    (N,F)  read
 *   pre     (N,F)  read, as the forward left it
 *   din     (N,F)  overwritten; may be dout
 *   dbias   (F)    accumulated
 *
 * gelu(x) = x / 2 · (1 + tanh(u)) with u = 0.79788456 (x + 0.044715 x^3). Both directions compute
 * it as x · sigmoid(2u), the same function, because the sigmoid of a negative number keeps its
 * relative precision where 1 + tanh cancels.
 *
 * The team shares rows forward and columns backward; dbias adds the rows in ascending order, so
 * that no bit depends on the team. Any N and F. Cannot fail.
 */
#ifndef TENSOR_KERNELS_GELU_H
#define TENSOR_KERNELS_GELU_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum status KERNEL(bias_gelu_forward)(float *out, float *pre, const float *bias, size_t rows,
                                      size_t F, struct stream *stream);
enum status KERNEL(bias_gelu_backward)(float *din, float *dbias, const float *dout,
                                       const float *pre, size_t rows, size_t F,
                                       struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_GELU_H */
