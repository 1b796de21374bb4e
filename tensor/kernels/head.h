/*
 * head -- the language model's head and its loss on a block of rows, in three parts between which
 * the shards of the vocabulary exchange a few numbers a row (a kernel cannot communicate). A shard
 * has the rows of the matrix of tokens first_token and following; V stands for how many. x and wte
 * are of `type`, all else is fp32.
 *
 *   head_logits
 *   x          (rows,C)       read
 *   wte        (V,C)          read
 *   targets    (rows)         read, each in [0, whole vocabulary), also where masked
 *   mask       (rows)         read, 0 or 1
 *   logits     (rows,stride)  overwritten: exp(x · wteᵀ - max of the row here) in the first V
 *                             columns; stride is head_logits_stride(shape)
 *   own        (rows)         overwritten: maximum, sum and target of each row, zeros of a masked one
 *   head_loss
 *   all        (shards,rows)  read: what head_logits left on every shard
 *   losses     (rows)         overwritten: -log p(target), 0 where masked; not scaled by loss_seed
 *   logits     (rows,stride)  with gradients: replaced by dlogits, zeros where masked; else read
 *                             (`type` is what head_backward will be called with)
 *   head_add_losses
 *   losses     (rows)         read
 *   sum                       one number: accumulated, in ascending rows
 *   head_backward
 *   x, dlogits, wte           read
 *   dwte       (V,C)          accumulated
 *   dx         (rows,C)       overwritten; in fp32 may alias x
 *
 * With M the maximum and S = sum over shards, ascending, of sum · exp(max - M):
 * loss = log S + (M - sum of target); dlogits = (p - onehot(target)) · mask · loss_seed, p = exp(logit
 * - M) / S; dwte += dlogitsᵀ · x; dx = dlogits · wte. A masked row has dx = 0 and adds nothing to
 * dwte. The sum of dx over the shards is the gradient of x.
 *
 * Nothing else aliases. A row's softmax is computed by one member in fixed lanes; what depends on
 * the size of the team is gemm's split. Losses do not depend on `gradients`. A shard without a row
 * (V = 0) has max -inf and sum 0 and changes nothing. head_logits and head_backward fail only where
 * gemm does and need its scratch in a 16-bit type; head_loss cannot fail.
 *
 * On CUDA logits begin at a multiple of 16 bytes, and between the parts they are another thing, which nobody looks
 * into: head_logits leaves x · wteᵀ itself, head_loss dlogits in `type`, rows of as many bytes apart. A block of
 * threads has a row, in fixed lanes. In a 16-bit type the products of head_backward so multiply numbers of the type,
 * where the CPU's dlogits stay fp32: each is rounded once. What the host reads is there when the stream has come to
 * it; own, all and losses are memory that the device reaches.
 */
#ifndef TENSOR_KERNELS_HEAD_H
#define TENSOR_KERNELS_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status KERNEL(head_logits)(float *logits, struct head_row *own, const void *x, const void *wte,
                                const int32_t *targets, const float *mask,
                                const struct head_shape *shape, enum dtype type,
                                struct stream *stream);
enum status KERNEL(head_loss)(float *logits, double *losses, const struct head_rows *all,
                              const int32_t *targets, const float *mask,
                              const struct head_shape *shape, bool gradients, enum dtype type,
                              struct stream *stream);
enum status KERNEL(head_add_losses)(double *sum, const double *losses, size_t rows,
                                    struct stream *stream);
enum status KERNEL(head_backward)(float *dx, float *dwte, const void *x, const float *dlogits,
                                  const void *wte, const struct head_shape *shape, enum dtype type,
                                  struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_HEAD_H */
