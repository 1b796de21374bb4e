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
 *   workspace               kernel_ops.attention_workspace(shape, threads of the stream) floats,
 *                           contents neither read nor kept
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
 * Nothing aliases. On the CPU the team shares the B·H heads; one member computes a head from end to
 * end, so the bits depend neither on the team nor on what else is in the batch. The workspace of a
 * member grows linearly with T: copies of one head's K and V, and blocks. Any B, T, H, D >= 0 is right;
 * D a multiple of 16 wastes nothing. What is not finite in V may reach earlier queries of its block,
 * as weights of zero are multiplied too, and so no dropout hides it. Cannot fail.
 *
 * A slice of a sequence (Seq1F1B, Sun et al. 2024) has the queries of positions [first, first + n), and
 * sees the keys of its own and of all earlier slices, which somebody keeps whole:
 *
 *   slice_forward
 *   qkv        (B,n,3·H·D)  read, of `type`; of the slice's positions
 *   keys       (B,T,2·H·D)  of `type`, K and V side by side in a row: rows of the slice overwritten
 *                           with those of qkv, rows before it read, rows behind it left alone
 *   out        (B,n,H·D)    overwritten, of `type`; lse (B,H,n) likewise
 *   slice_backward
 *   dout, out, qkv, lse     as above, of the slice
 *   keys       (B,T,2·H·D)  read up to the slice's end
 *   dkeys      (B,T,2·H·D)  fp32: dK and dV. The last slice of a sequence comes first and overwrites
 *                           the rows before it; every other one adds to the rows before it and reads
 *                           its own, which all later slices have added to
 *   dqkv       (B,n,3·H·D)  overwritten, of `type`: dQ, and dK and dV, which are complete now and are
 *                           rounded once
 *
 * shape->positions is T, the whole sequence, and the workspace that of the whole. A mask is that of the
 * whole sequence; so is every bit of out, lse and dQ. dK and dV are sums of the slices, later ones
 * first. Forward again on a slice writes the bits of keys that are there. On CUDA there are no slices.
 *
 * On CUDA the same, but for this. What tensor cores multiply is of `type`: in a 16-bit type the
 * weights are rounded to it before they meet V, and in the backward p' and dout before dV, dout before
 * dout·V, and ds before dQ and dK (dout·out takes dout as it is); tests/tensor/naive_attention.h derives
 * what that may make of a result. In fp32 nothing is rounded, TF32 neither. The workspace holds
 * dout·out of all rows and the rounded dout. D is at most 256, else STATUS_ERR_UNSUPPORTED; 64, 128 and
 * 256 waste nothing, and rows are read fastest where D is a multiple of 8. What is wrong of
 * a launch is STATUS_ERR_CUDA.
 */
#ifndef TENSOR_KERNELS_ATTENTION_H
#define TENSOR_KERNELS_ATTENTION_H

#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* On CUDA: the largest head that there are tiles for. */
#define ATTENTION_CUDA_MOST_D 256

enum status KERNEL(attention_forward)(void *out, float *lse, const void *qkv,
                                      const struct attention_shape *shape,
                                      const struct attention_dropout *dropout, float *workspace,
                                      enum dtype type, struct stream *stream);
enum status KERNEL(attention_backward)(void *dqkv, const float *dout, const void *out,
                                       const void *qkv, const float *lse,
                                       const struct attention_shape *shape,
                                       const struct attention_dropout *dropout, float *workspace,
                                       enum dtype type, struct stream *stream);
enum status KERNEL(attention_slice_forward)(void *out, float *lse, void *keys, const void *qkv,
                                            const struct attention_shape *shape,
                                            const struct attention_slice *slice,
                                            const struct attention_dropout *dropout,
                                            float *workspace, enum dtype type,
                                            struct stream *stream);
enum status KERNEL(attention_slice_backward)(void *dqkv, float *dkeys, const float *dout,
                                             const void *out, const void *keys, const void *qkv,
                                             const float *lse, const struct attention_shape *shape,
                                             const struct attention_slice *slice,
                                             const struct attention_dropout *dropout,
                                             float *workspace, enum dtype type,
                                             struct stream *stream);
size_t KERNEL(attention_workspace)(const struct attention_shape *shape, int threads);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ATTENTION_H */
