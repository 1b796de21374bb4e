/*
 * attention -- causal self-attention of all heads of a shard.
 *
 *   forward
 *   qkv        (B,T,3·H·D)  read; Q, K, V side by side in a row, heads contiguous in each
 *   out        (B,T,H·D)    overwritten
 *   lse        (B,H,T)      overwritten: log of the sum of exp of a query's scores
 *   backward
 *   dout, out  (B,T,H·D)    read; qkv and lse as the forward had and left them
 *   dqkv       (B,T,3·H·D)  overwritten
 *   workspace               attention_workspace_floats(shape, threads of the stream), contents
 *                           neither read nor kept
 *
 * s[q][k] = Q[q]·K[k] / sqrt(D) for k <= q, p = exp(s - lse[q]), out[q] = sum over k of p V[k];
 * the backward computes p again from lse, and ds = p (dout[q]·V[k] - dout[q]·out[q]).
 *
 * Nothing aliases. The team shares the B·H heads; one member computes a head from end to end, so
 * the bits depend neither on the team nor on what else is in the batch. The workspace of a member
 * grows linearly with T: copies of one head's K and V, and blocks. Any B, T, H, D >= 0 is right;
 * D a multiple of 16 wastes nothing. What is not finite in V may reach
 * earlier queries of its block, as weights of zero are multiplied too. Cannot fail.
 */
#ifndef TENSOR_KERNELS_ATTENTION_H
#define TENSOR_KERNELS_ATTENTION_H

#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status KERNEL(attention_forward)(float *out, float *lse, const float *qkv,
                                      const struct attention_shape *shape, float *workspace,
                                      struct stream *stream);
enum status KERNEL(attention_backward)(float *dqkv, const float *dout, const float *out,
                                       const float *qkv, const float *lse,
                                       const struct attention_shape *shape, float *workspace,
                                       struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ATTENTION_H */
