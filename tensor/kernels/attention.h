/*
 * attention -- causal self-attention of all heads of a shard.
 *
 *   forward
 *   qkv        (B,T,3·H·D)  read, of `type`; Q, K, V side by side in a row, heads contiguous in
 *                           each
 *   out        (B,T,H·D)    overwritten, of `type`
 *   lse        (B,H,T)      overwritten: log of the sum of exp of a query's scores
 *   backward
 *   dout       (B,T,H·D)    read, fp32
 *   out        (B,T,H·D)    read; out, qkv and lse as the forward had and left them
 *   dqkv       (B,T,3·H·D)  overwritten, of `type`
 *   workspace               attention_workspace_floats(shape, threads of the stream), contents
 *                           neither read nor kept
 *
 * s[q][k] = Q[q]·K[k] / sqrt(D) for k <= q, p = exp(s - lse[q]), out[q] = sum over k of p V[k];
 * the backward computes p again from lse, and ds = p (dout[q]·V[k] - dout[q]·out[q]). All of it in
 * fp32; what is of `type` is widened when it is read and rounded once when it is written.
 *
 * Dropout keeps p[q][k] where the number of its element is the threshold or more (rng_mask in
 * rng.h), and multiplies what it keeps by rng_mask_scale(): p' = m p, m = scale or 0. out is made of
 * p'; lse, and so p itself, knows nothing of it. In the backward dV is made of p', and ds =
 * p (m dout[q]·V[k] - dout[q]·out[q]), as the sum over k of p' dout[q]·V[k] is dout[q]·out[q].
 * Element ((h·S + k/8)·S + q/8)·64 + (k%8)·8 + q%8, with h the head in the whole layer and
 * S = ceil(T/8): squares of 8 by 8. So a mask follows from seed, site, layer, sample, head, q, k and
 * T alone. It is made again in the backward, never kept.
 *
 * Nothing aliases. The team shares the B·H heads; one member computes a head from end to end, so
 * the bits depend neither on the team nor on what else is in the batch. The workspace of a member
 * grows linearly with T: copies of one head's K and V, and blocks. Any B, T, H, D >= 0 is right;
 * D a multiple of 16 wastes nothing. What is not finite in V may reach earlier queries of its block,
 * as weights of zero are multiplied too, and so no dropout hides it. Cannot fail.
 */
#ifndef TENSOR_KERNELS_ATTENTION_H
#define TENSOR_KERNELS_ATTENTION_H

#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status KERNEL(attention_forward)(void *out, float *lse, const void *qkv,
                                      const struct attention_shape *shape,
                                      const struct attention_dropout *dropout, float *workspace,
                                      enum dtype type, struct stream *stream);
enum status KERNEL(attention_backward)(void *dqkv, const float *dout, const void *out,
                                       const void *qkv, const float *lse,
                                       const struct attention_shape *shape,
                                       const struct attention_dropout *dropout, float *workspace,
                                       enum dtype type, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ATTENTION_H */
