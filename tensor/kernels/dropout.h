/*
 * dropout -- elements are dropped at random, the others scaled so that the mean stays.
 *
 *   dropout_forward                out = k · in
 *   in        (N,C)  read, in fp32
 *   out       (N,C)  of `type`, overwritten; may be `in` where that is fp32 too
 *   dropout_backward               din = k · dout
 *   dout      (N,C)  of `type`, read
 *   din       (N,C)  of `type`, overwritten; may be dout
 *   bias_residual_dropout_forward  out = residual + k · (in + bias)
 *   in        (N,C)  read, in fp32
 *   bias      (C)    of `type`, read
 *   residual  (N,C)  of `type`, read
 *   out       (N,C)  of `type`, overwritten; may be `residual`, and `in` where that is fp32 too
 *
 * With r = first_row + n, row n belongs to sample first_sample + r / positions of the whole run, and
 * to position p = first_position + r % positions of it. k[n][c] is 0 or rng_mask_scale(threshold), as number
 * p · C + c of rng_mask_of(seed, site, layer, sample) is below the threshold or not. So the
 * mask depends on the sample and the element alone: not on the micro-batch, the team, or what part
 * of the rows is here. It is made again in the backward and never kept. A dropped element that is
 * not finite gives a NaN, so that it stays visible.
 *
 * Element by element, rounded once. Cannot fail. positions >= 1 where N >= 1. For threshold 0, where
 * nothing is dropped, there are faster operations.
 */
#ifndef TENSOR_KERNELS_DROPOUT_H
#define TENSOR_KERNELS_DROPOUT_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status KERNEL(dropout_forward)(void *out, const float *in, size_t rows, size_t C,
                                    const struct dropout *dropout, enum dtype type,
                                    struct stream *stream);
enum status KERNEL(dropout_backward)(void *din, const void *dout, size_t rows, size_t C,
                                     const struct dropout *dropout, enum dtype type,
                                     struct stream *stream);
enum status KERNEL(bias_residual_dropout_forward)(void *out, const float *in, const void *bias,
                                                  const void *residual, size_t rows, size_t C,
                                                  const struct dropout *dropout, enum dtype type,
                                                  struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_DROPOUT_H */
