/*
 * residual -- the sum that goes around a block: what came in, plus a projection and its bias.
 *
 *   in        (N,C)  read, in fp32
 *   bias      (C)    of `type`, read
 *   residual  (N,C)  of `type`, read
 *   out       (N,C)  of `type`, overwritten; may be `residual`, and `in` where that is fp32 too
 *
 * out = residual + (in + bias), rounded once
 *
 * Element by element; the team's size changes no bit. Cannot fail.
 */
#ifndef TENSOR_KERNELS_RESIDUAL_H
#define TENSOR_KERNELS_RESIDUAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum status KERNEL(bias_residual_forward)(void *out, const float *in, const void *bias,
                                          const void *residual, size_t rows, size_t C,
                                          enum dtype type, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_RESIDUAL_H */
