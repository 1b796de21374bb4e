/*
 * residual -- the sum that goes around a block: what came in, plus a projection and its bias.
 *
 *   in        (N,C)  read
 *   bias      (C)    read
 *   residual  (N,C)  read
 *   out       (N,C)  overwritten; may be `in` or `residual`
 *
 * out = residual + (in + bias)
 *
 * Element by element; the team's size changes no bit. Cannot fail.
 */
#ifndef TENSOR_KERNELS_RESIDUAL_H
#define TENSOR_KERNELS_RESIDUAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum status KERNEL(bias_residual_forward)(float *out, const float *in, const float *bias,
                                          const float *residual, size_t rows, size_t C,
                                          struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_RESIDUAL_H */
