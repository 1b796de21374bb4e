/*
 * layernorm -- each row to mean 0 and variance 1, then scaled and shifted by column.
 *
 *   forward
 *   in          (N,C)  of `type`, read
 *   weight      (C)    read
 *   bias        (C)    read
 *   out         (N,C)  of `type`, overwritten; may be `in`
 *   mean, rstd  (N)    overwritten
 *   backward
 *   dout        (N,C)  read
 *   dresidual   (N,C)  of `type`, read; NULL for zero
 *   in, weight, mean, rstd  as the forward had and left them, read
 *   din         (N,C)  of `type`, overwritten; may be dresidual, and dout where that is fp32 too
 *   dweight     (C)    accumulated
 *   dbias       (C)    accumulated
 *   partials    layernorm_partials(C, threads) floats, contents neither read nor kept
 * all in fp32 whose format is not said; a layer norm's parameters are so in every training.
 *
 * mean = sum over c of in / C, rstd = 1 / sqrt(sum of (in - mean)² / C + eps)
 * n = (in - mean) · rstd, out = n · weight + bias, and with g = dout · weight
 * din = dresidual + rstd · (g - sum of g / C - n · sum of (g · n) / C)
 * dweight += sum over rows of dout · n, dbias += sum over rows of dout
 *
 * Sums over a row use a fixed number of lanes. Sums over rows are made of blocks of rows, whose
 * edges depend on N only, added in ascending order: the team's size changes no bit. On CUDA lanes, edges and the order in
 * which blocks are added depend on N and C.
 * Cannot fail; on CUDA the backward of more than 24576 columns is STATUS_ERR_UNSUPPORTED (an A100 has shared memory for 16384).
 * C >= 1 where N >= 1.
 */
#ifndef TENSOR_KERNELS_LAYERNORM_H
#define TENSOR_KERNELS_LAYERNORM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

/* On the CPU: the most blocks that the rows are cut into, and the least rows a block has but the last. */
#define LAYERNORM_MOST_BLOCKS 64
#define LAYERNORM_BLOCK_ROWS  32

enum status KERNEL(layernorm_forward)(void *out, float *mean, float *rstd, const void *in,
                                      const float *weight, const float *bias, size_t rows, size_t C,
                                      float eps, enum dtype type, struct stream *stream);
enum status KERNEL(layernorm_backward)(void *din, float *dweight, float *dbias, const float *dout,
                                       const void *dresidual, const void *in, const float *weight,
                                       const float *mean, const float *rstd, size_t rows, size_t C,
                                       float *partials, enum dtype type, struct stream *stream);
size_t KERNEL(layernorm_partials)(size_t C, int threads);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_LAYERNORM_H */
