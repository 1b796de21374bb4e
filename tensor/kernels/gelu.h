/*
 * gelu -- bias and GELU (tanh form) of the MLP's inner activation.
 *
 *   forward with bias
 *   pre     (N,F)  read and overwritten: pre + bias, which the backward reads
 *   bias    (F)    read
 *   out     (N,F)  overwritten; must not alias pre
 *   forward without, to compute `out` again
 *   pre     (n)    read, as the forward with bias left it
 *   out     (n)    overwritten, with the bits that the forward with bias made; must not alias pre
 *   backward
 *   dout    (N,F)  read
 *   pre     (N,F)  read, as the forward left it
 *   din     (N,F)  overwritten; may be dout
 *   dbias   (F)    accumulated, in fp32; all others are of `type`
 *
 * In a 16-bit format pre + bias is rounded before gelu is computed of it, and dbias adds the
 * rounded din: what is kept and what the next operations read decide.
 *
 * gelu(x) = x / 2 · (1 + tanh(u)) with u = 0.79788456 (x + 0.044715 x^3). Both directions compute
 * it as x · sigmoid(2u), the same function, because the sigmoid of a negative number keeps its
 * relative precision where 1 + tanh cancels.
 *
 * The team shares rows or elements forward and columns backward; dbias adds the rows in ascending order, so
 * that no bit depends on the team. On CUDA dbias adds in the order of bias_backward there. Any N and F. Cannot
 * fail.
 */
#ifndef TENSOR_KERNELS_GELU_H
#define TENSOR_KERNELS_GELU_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum status KERNEL(bias_gelu_forward)(void *out, void *pre, const void *bias, size_t rows, size_t F,
                                      enum dtype type, struct stream *stream);
enum status KERNEL(gelu_forward)(void *out, const void *pre, size_t elems, enum dtype type,
                                 struct stream *stream);
enum status KERNEL(bias_gelu_backward)(void *din, float *dbias, const void *dout, const void *pre,
                                       size_t rows, size_t F, enum dtype type,
                                       struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_GELU_H */
