/*
 * projection -- a product of a layer with what comes right behind it, so that a device may do both in one pass.
 *
 *   product      c = op(A)·op(B), (M,N) of one 16-bit type or fp32 without gaps: alpha 1, beta 0, ldc N
 *   bias         (N)    of c's type, read
 *   out          (M,N)  of c's type, overwritten; overlaps nothing
 *   pre          (M,N)  of c's type, read: c as projection_gelu left it
 *   dbias        (N)    accumulated, in fp32
 *
 *   projection_bias            c = product + bias
 *   projection_gelu            c = product + bias, out = gelu(c)
 *   projection_gelu_backward   c = product · gelu'(pre), dbias += sum of each column of c
 *
 * with the gelu of kernels/gelu.h. In a 16-bit format out is gelu of c as it is kept, with the bits of gelu_forward(c),
 * which makes it again where it was left out; dbias adds c as it is kept.
 *
 * The CPU's are gemm and bias_forward, bias_gelu_forward, bias_gelu_backward one after another, so in a 16-bit format
 * c is rounded before and after; gemm's scratch is needed there. On CUDA cuBLASLt does what it can before it rounds c,
 * once, where it has an algorithm for the shape, else kernels do as on the CPU: shapes, types and alignment decide which,
 * never what is recomputed or who asks. Taken from it are
 *   bias   in every type;
 *   gelu'  in 16-bit types: it approximates tanh as it likes, which is within what a 16-bit format rounds, but not within
 *          what fp32 promises.
 * Not taken are
 *   gelu          which it computes of numbers before they are rounded: what is computed again from what was kept would
 *                 have other bits;
 *   bias gradients  which it rounds to the type of c, where micro-batches are to be added in fp32.
 *
 * Fails where gemm does.
 */
#ifndef TENSOR_KERNELS_PROJECTION_H
#define TENSOR_KERNELS_PROJECTION_H

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm;
struct stream;

enum status KERNEL(projection_bias)(const struct gemm *product, const void *bias,
                                    struct stream *stream);
enum status KERNEL(projection_gelu)(void *out, const struct gemm *product, const void *bias,
                                    struct stream *stream);
enum status KERNEL(projection_gelu_backward)(const struct gemm *product, float *dbias,
                                             const void *pre, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_PROJECTION_H */
