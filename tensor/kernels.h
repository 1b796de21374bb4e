/*
 * kernels -- the table every backend fills: one entry per operation.
 *
 * One const table per backend and variant, chosen once when the device is opened. The CPU tables
 * are complete. Each operation has a header of its own in tensor/kernels/ with its contract:
 * shapes, what is read, overwritten (=) or accumulated (+=), aliasing, the formula. Shapes:
 * B sequences, T positions, C hidden, H heads, D = C/H, V vocabulary, F the MLP's inner size,
 * N = B·T rows.
 *
 * The CPU variants are the same sources compiled for x86-64-v3 and for the baseline; numbers may
 * differ between variants in the last bits, never between runs of one variant.
 */
#ifndef TENSOR_KERNELS_H
#define TENSOR_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

/* Adam with decoupled weight decay for one update of one tensor; see kernels/adam.h. */
struct adam_step {
    float lr;
    float beta1;
    float beta2;
    float eps;
    float weight_decay; /* 0 for one-dimensional parameters */
    float grad_scale;   /* the clip coefficient, 1 where nothing is clipped */
    int64_t update;     /* t = 1, 2, ... */
};

/* The fused head of one micro-batch; see kernels/head.h. */
struct head_shape {
    size_t rows;     /* N = B·T */
    size_t hidden;   /* C */
    size_t vocab;    /* V */
    float loss_seed; /* what d(loss)/d(token loss) is: 1 / targets of the global batch */
};

struct attention_shape {
    size_t batch;     /* B */
    size_t positions; /* T */
    size_t heads;     /* H of this shard */
    size_t head_size; /* D */
};

struct kernel_ops {
    const char *variant; /* "cpu-v3", "cpu-base" */

    /* out (N,C) = wte[tokens] + wpe[position]; tokens (B,T) in [0, V). */
    enum status (*embedding_forward)(float *out, const int32_t *tokens, const float *wte,
                                     const float *wpe, size_t B, size_t T, size_t C,
                                     struct stream *stream);
    /* dwte (V,C) += , dwpe (T,C) += ; in ascending (b,t) for each row, whatever the team. */
    enum status (*embedding_backward)(float *dwte, float *dwpe, const float *dout,
                                      const int32_t *tokens, size_t B, size_t T, size_t C, size_t V,
                                      struct stream *stream);

    /* out (N,C), mean (N), rstd (N) overwritten. */
    enum status (*layernorm_forward)(float *out, float *mean, float *rstd, const float *in,
                                     const float *weight, const float *bias, size_t rows, size_t C,
                                     float eps, struct stream *stream);
    /* din (N,C) = dresidual + the norm's own input gradient (dresidual may be NULL: zero; din may
     * alias dresidual or dout); dweight (C) +=, dbias (C) +=. `partials`: layernorm_partials(C)
     * floats of workspace. */
    enum status (*layernorm_backward)(float *din, float *dweight, float *dbias, const float *dout,
                                      const float *dresidual, const float *in, const float *weight,
                                      const float *mean, const float *rstd, size_t rows, size_t C,
                                      float *partials, struct stream *stream);

    /* out (N,K) = in + bias: adds bias (K) to each row in place. */
    enum status (*bias_forward)(float *inout, const float *bias, size_t rows, size_t K,
                                struct stream *stream);
    /* dbias (K) += column sums of dout (N,K), rows in ascending order. */
    enum status (*bias_backward)(float *dbias, const float *dout, size_t rows, size_t K,
                                 struct stream *stream);

    /* pre (N,F) is the matmul's output, bias (F); pre = pre + bias kept for the backward,
     * out (N,F) = gelu(pre), tanh form. */
    enum status (*bias_gelu_forward)(float *out, float *pre, const float *bias, size_t rows,
                                     size_t F, struct stream *stream);
    /* din (N,F) = dout · gelu'(pre); din may alias dout; dbias (F) += column sums of din. */
    enum status (*bias_gelu_backward)(float *din, float *dbias, const float *dout, const float *pre,
                                      size_t rows, size_t F, struct stream *stream);

    /* out (N,C) = residual + in + bias (C); out may alias in or residual. */
    enum status (*bias_residual_forward)(float *out, const float *in, const float *bias,
                                         const float *residual, size_t rows, size_t C,
                                         struct stream *stream);

    /* Causal self-attention: qkv (B,T,3·H·D) as Q|K|V blocks, heads contiguous in each; out
     * (B,T,H·D); lse (B,H,T) the log-sum-exp of each row. No (T,T) matrix in memory.
     * `workspace`: attention_workspace_floats(shape, threads). */
    enum status (*attention_forward)(float *out, float *lse, const float *qkv,
                                     const struct attention_shape *shape, float *workspace,
                                     struct stream *stream);
    /* dqkv (B,T,3·H·D) overwritten. */
    enum status (*attention_backward)(float *dqkv, const float *dout, const float *out,
                                      const float *qkv, const float *lse,
                                      const struct attention_shape *shape, float *workspace,
                                      struct stream *stream);

    /* Training head of one micro-batch, by blocks of rows: logits = x·wteᵀ, loss, dlogits, and at
     * once dX and dW. x (N,C) is read and, block by block, replaced by dX; dwte (V,C) +=;
     * *loss_sum_out = sum over unmasked rows of -log p(target), in double, rows ascending, not
     * scaled by loss_seed. mask (N) is 0 or 1. `workspace`: head_workspace_floats(shape). */
    enum status (*head_train)(float *x, float *dwte, double *loss_sum_out, const float *wte,
                              const int32_t *targets, const float *mask,
                              const struct head_shape *shape, float *workspace,
                              struct stream *stream);
    /* The same without gradients; x is only read. */
    enum status (*head_evaluate)(const float *x, double *loss_sum_out, const float *wte,
                                 const int32_t *targets, const float *mask,
                                 const struct head_shape *shape, float *workspace,
                                 struct stream *stream);

    /* out (n) = a + b, element by element; out may alias either. */
    enum status (*add)(float *out, const float *a, const float *b, size_t elems,
                       struct stream *stream);
    /* Sum of squares in double: fixed blocks, fixed order, the same for every team size. Not
     * finite exactly when an element is not finite. */
    enum status (*sum_squares)(double *sum_out, const float *in, size_t elems,
                               struct stream *stream);
    /* One fused pass over weight, moment1, moment2 and grad (n each). */
    enum status (*adam)(float *weight, float *moment1, float *moment2, const float *grad,
                        size_t elems, const struct adam_step *step, struct stream *stream);
};

/* Workspace sizes; they depend on shapes and the team only. */
size_t layernorm_partials_floats(size_t C, int threads);
size_t attention_workspace_floats(const struct attention_shape *shape, int threads);
size_t head_workspace_floats(const struct head_shape *shape, int threads);

/* The table for this processor: x86-64-v3 where it can run, else the baseline. */
const struct kernel_ops *kernels_cpu(void);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_H */
