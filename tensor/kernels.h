/*
 * kernels -- the table every backend fills: one entry per operation.
 *
 * One const table per backend and variant, chosen once when the device is opened. The CPU tables
 * are complete. Each operation has a header of its own in tensor/kernels/ with its contract:
 * shapes, what is read, overwritten (=) or accumulated (+=), aliasing, the formula. Shapes:
 * B sequences, T positions, C hidden, H heads, D = C/H, V vocabulary, F the MLP's inner size,
 * N = B·T rows.
 *
 * A tensor in the model's number format is a `void *`, its format the `type` that comes before the
 * stream; all others are fp32. Whatever the format, all arithmetic is in fp32: a 16-bit tensor is
 * widened as it is read and rounded once as it is written (tensor/dtype.h).
 *
 * The CPU variants are the same sources compiled for x86-64-v3 and for the baseline; numbers may
 * differ between variants in the last bits, never between runs of one variant.
 */
#ifndef TENSOR_KERNELS_H
#define TENSOR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm;
struct stream;

/* Adam with decoupled weight decay for one update of one tensor; see kernels/adam.h. */
struct adam_step {
    float lr;
    float beta1;
    float beta2;
    float eps;
    float weight_decay; /* 0 for one-dimensional parameters */
    float grad_scale;   /* what gradients are multiplied by: clip coefficient / loss scale */
    int64_t update;     /* t = 1, 2, ... */
    void *copy;         /* of 16 bits, gets the new weight rounded; NULL: there is none */
    enum dtype copy_type;
};

/* Gradient descent with momentum for one update of one tensor; see kernels/sgd.h. */
struct sgd_step {
    float lr;
    float momentum;
    float weight_decay; /* 0 for one-dimensional parameters */
    float grad_scale;   /* these as Adam's */
    void *copy;
    enum dtype copy_type;
};

/* A shard of the embedding; see kernels/embedding.h. */
struct embedding_shape {
    size_t batch;       /* B */
    size_t positions;   /* T */
    size_t hidden;      /* C */
    size_t vocab;       /* rows of the word table here, V without shards */
    size_t first_token; /* of them */
    size_t whole_vocab; /* V */
    size_t types;       /* rows of the table of token types, 0 without */
};

/* Which elements a dropout drops; see kernels/dropout.h. */
struct dropout {
    uint64_t seed;
    uint32_t site;         /* with `layer` names the dropout; no site of other random numbers */
    uint32_t layer;        /* of the whole model */
    uint32_t threshold;    /* rng_mask_threshold() of the probability */
    uint64_t first_sample; /* the first row's, counted through the whole run */
    size_t positions;      /* rows of a sample here */
    size_t first_row;      /* of these rows, counted from position 0 here of first_sample */
    size_t first_position; /* of every sample here */
};

/* A block of rows and a shard of the head; see kernels/head.h. */
struct head_shape {
    size_t rows;        /* of the block */
    size_t hidden;      /* C */
    size_t vocab;       /* rows of the head's matrix here, V without shards; 0 is allowed */
    size_t first_token; /* of them */
    float loss_seed;    /* what d(loss)/d(token loss) is: 1 / targets of the global batch */
};

/* What the shards of a head tell each other of one row: half a cache line. Of a masked row, all
 * zero. */
struct head_row {
    double max;    /* of the logits here; -inf where there are none */
    double sum;    /* of exp(logit - max) here */
    double target; /* the target's logit, 0 where another shard has it */
    double unused; /* 0 */
};

/* The rows of all shards: shard s's row i is rows[s * stride + i]. */
struct head_rows {
    const struct head_row *rows; /* (shards, stride) */
    size_t stride;               /* at least the rows of the block */
    size_t shards;
    size_t shard; /* this one */
};

struct attention_shape {
    size_t batch;     /* B */
    size_t positions; /* T */
    size_t heads;     /* H of this shard */
    size_t head_size; /* D */
};

/* Part of a sequence; see kernels/attention.h. */
struct attention_slice {
    size_t first;   /* position */
    size_t queries; /* positions, n */
};

/* Dropout of attention's weights; see kernels/attention.h. */
struct attention_dropout {
    uint64_t seed;
    uint32_t site;
    uint32_t layer;        /* of the whole model */
    uint32_t threshold;    /* rng_mask_threshold() */
    uint64_t first_sample; /* of the batch, by its running number in the whole run */
    size_t first_head;     /* of this shard */
};

/* How elements are combined; see kernels/combine.h. */
enum combine_op {
    COMBINE_SUM,
    COMBINE_MAX
};

struct kernel_ops {
    const char *variant; /* "cpu-v3", "cpu-base" */

    /* out (n) = in in another number format, rounded to the nearest; out == in for equal formats
     * only. `stream` may be NULL: on the caller's thread. */
    enum status (*convert)(void *out, enum dtype out_type, const void *in, enum dtype in_type,
                           size_t elems, struct stream *stream);

    /* C = alpha·op(A)·op(B) + beta·C; see gemm.h, whose gemm_run() is the CPU's. */
    enum status (*gemm)(const struct gemm *gemm, struct stream *stream);

    /* out (N,C) = wte[token] + wpe[position] + wtt[type] where this shard has the token, else 0;
     * types and wtt are NULL without token types. out is fp32 in every format. */
    enum status (*embedding_forward)(float *out, const int32_t *tokens, const int32_t *types,
                                     const void *wte, const void *wpe, const void *wtt,
                                     const struct embedding_shape *shape, enum dtype type,
                                     struct stream *stream);
    /* dwte += for the tokens of this shard, dwpe (T,C) += and dwtt (types,C) += for all; in
     * ascending (b,t) for each row, whatever the team. */
    enum status (*embedding_backward)(float *dwte, float *dwpe, float *dwtt, const void *dout,
                                      const int32_t *tokens, const int32_t *types,
                                      const struct embedding_shape *shape, enum dtype type,
                                      struct stream *stream);

    /* out (N,C), mean (N), rstd (N) overwritten. */
    enum status (*layernorm_forward)(void *out, float *mean, float *rstd, const void *in,
                                     const float *weight, const float *bias, size_t rows, size_t C,
                                     float eps, enum dtype type, struct stream *stream);
    /* din (N,C) = dresidual + the norm's own input gradient (dresidual may be NULL: zero; din may
     * alias dresidual, and in fp32 dout); dweight (C) +=, dbias (C) +=. `partials`: workspace. */
    enum status (*layernorm_backward)(void *din, float *dweight, float *dbias, const float *dout,
                                      const void *dresidual, const void *in, const float *weight,
                                      const float *mean, const float *rstd, size_t rows, size_t C,
                                      float *partials, enum dtype type, struct stream *stream);
    /* The floats of `partials` for a stream of `threads`. */
    size_t (*layernorm_partials)(size_t C, int threads);

    /* out (N,K) = in + bias: adds bias (K) to each row in place. */
    enum status (*bias_forward)(void *inout, const void *bias, size_t rows, size_t K,
                                enum dtype type, struct stream *stream);
    /* dbias (K) += column sums of dout (N,K), rows in ascending order. */
    enum status (*bias_backward)(float *dbias, const void *dout, size_t rows, size_t K,
                                 enum dtype type, struct stream *stream);

    /* pre (N,F) is the matmul's output, bias (F); pre = pre + bias kept for the backward,
     * out (N,F) = gelu(pre), tanh form. */
    enum status (*bias_gelu_forward)(void *out, void *pre, const void *bias, size_t rows, size_t F,
                                     enum dtype type, struct stream *stream);
    /* out (n) = gelu(pre), with the bits that bias_gelu_forward made of this pre. */
    enum status (*gelu_forward)(void *out, const void *pre, size_t elems, enum dtype type,
                                struct stream *stream);
    /* din (N,F) = dout · gelu'(pre); din may alias dout; dbias (F) += column sums of din. */
    enum status (*bias_gelu_backward)(void *din, float *dbias, const void *dout, const void *pre,
                                      size_t rows, size_t F, enum dtype type,
                                      struct stream *stream);

    /* Products of a layer with what comes right behind them; see kernels/projection.h. c = product + bias. */
    enum status (*projection_bias)(const struct gemm *product, const void *bias,
                                   struct stream *stream);
    /* c = product + bias, out = gelu(c). */
    enum status (*projection_gelu)(void *out, const struct gemm *product, const void *bias,
                                   struct stream *stream);
    /* c = product · gelu'(pre), dbias += column sums of c. */
    enum status (*projection_gelu_backward)(const struct gemm *product, float *dbias,
                                            const void *pre, struct stream *stream);

    /* out (N,C) = residual + in + bias (C); in is fp32 in every format; out may alias residual, and
     * in fp32 `in`. */
    enum status (*bias_residual_forward)(void *out, const float *in, const void *bias,
                                         const void *residual, size_t rows, size_t C,
                                         enum dtype type, struct stream *stream);

    /* out (N,C) = k · in, where k is 0 or 1 / (1 - p) as an element's random number says; in is fp32
     * in every format; in fp32 out may alias in. Without dropout: convert. */
    enum status (*dropout_forward)(void *out, const float *in, size_t rows, size_t C,
                                   const struct dropout *dropout, enum dtype type,
                                   struct stream *stream);
    /* din (N,C) = k · dout, with the same k; din may alias dout. */
    enum status (*dropout_backward)(void *din, const void *dout, size_t rows, size_t C,
                                    const struct dropout *dropout, enum dtype type,
                                    struct stream *stream);
    /* out (N,C) = residual + k · (in + bias), otherwise as bias_residual_forward. */
    enum status (*bias_residual_dropout_forward)(void *out, const float *in, const void *bias,
                                                 const void *residual, size_t rows, size_t C,
                                                 const struct dropout *dropout, enum dtype type,
                                                 struct stream *stream);

    /* Causal self-attention: qkv (B,T,3·H·D) as Q|K|V blocks, heads contiguous in each; out
     * (B,T,H·D); lse (B,H,T) the log-sum-exp of each row. No (T,T) matrix in memory. `dropout`
     * of the weights: NULL for none.
     * `workspace`: attention_workspace(shape, threads). */
    enum status (*attention_forward)(void *out, float *lse, const void *qkv,
                                     const struct attention_shape *shape,
                                     const struct attention_dropout *dropout, float *workspace,
                                     enum dtype type, struct stream *stream);
    /* dqkv (B,T,3·H·D) overwritten; `dropout` as the forward had it. */
    enum status (*attention_backward)(void *dqkv, const float *dout, const void *out,
                                      const void *qkv, const float *lse,
                                      const struct attention_shape *shape,
                                      const struct attention_dropout *dropout, float *workspace,
                                      enum dtype type, struct stream *stream);
    /* The same of a slice of each sequence: qkv, out and lse are of its positions, keys (B,T,2·H·D) of
     * the whole sequence, as are the sums dkeys, in fp32. NULL where a device has no slices. */
    enum status (*attention_slice_forward)(void *out, float *lse, void *keys, const void *qkv,
                                           const struct attention_shape *shape,
                                           const struct attention_slice *slice,
                                           const struct attention_dropout *dropout,
                                           float *workspace, enum dtype type,
                                           struct stream *stream);
    enum status (*attention_slice_backward)(void *dqkv, float *dkeys, const float *dout,
                                            const void *out, const void *keys, const void *qkv,
                                            const float *lse, const struct attention_shape *shape,
                                            const struct attention_slice *slice,
                                            const struct attention_dropout *dropout,
                                            float *workspace, enum dtype type,
                                            struct stream *stream);
    /* The floats of `workspace` of all four, in every type, for a stream of `threads`. */
    size_t (*attention_workspace)(const struct attention_shape *shape, int threads);

    /* Rows that the head takes at once: enough for full speed of its three products, few enough that the logits of a
     * large vocabulary stay near 100 MB on the CPU and near 1 GB on a GPU. The same for every shard and team, because
     * the split of a matrix product decides its bits. */
    size_t head_block_rows;
    /* The head of a block of rows in three parts, between which the shards of the vocabulary
     * exchange a head_row a row. First: logits (rows,stride) = exp(x·wteᵀ - max of the row), own
     * (rows) =; x (rows,C) and wte (vocab,C) read. stride: head_logits_stride(). In a 16-bit
     * type the first and third need gemm's scratch in the stream. */
    enum status (*head_logits)(float *logits, struct head_row *own, const void *x, const void *wte,
                               const int32_t *targets, const float *mask,
                               const struct head_shape *shape, enum dtype type,
                               struct stream *stream);
    /* Second: losses (rows) = -log p(target), 0 where masked, not scaled by loss_seed; with
     * `gradients`, logits become dlogits, whose form the device chooses by `type`. */
    enum status (*head_loss)(float *logits, double *losses, const struct head_rows *all,
                             const int32_t *targets, const float *mask,
                             const struct head_shape *shape, bool gradients, enum dtype type,
                             struct stream *stream);
    /* *sum += losses (rows), in ascending rows: memory that the host reads behind device_wait(). */
    enum status (*head_add_losses)(double *sum, const double *losses, size_t rows,
                                   struct stream *stream);
    /* Third: dwte (vocab,C) += dlogitsᵀ·x, then dx (rows,C) = dlogits·wte, of which the sum over
     * the shards is the gradient; in fp32 dx may alias x. */
    enum status (*head_backward)(float *dx, float *dwte, const void *x, const float *dlogits,
                                 const void *wte, const struct head_shape *shape, enum dtype type,
                                 struct stream *stream);

    /* out (n) = a + b, element by element; out may alias either. */
    enum status (*add)(float *out, const float *a, const float *b, size_t elems,
                       struct stream *stream);
    /* Every out (n) = ins[0] op ins[1] op ..., element by element and in this order; an out may be
     * one of the ins. On the caller's thread: the data plane, which calls it, has no team. */
    enum status (*combine)(float *const *outs, size_t out_count, const float *const *ins,
                           size_t in_count, size_t elems, enum combine_op op);
    /* Sum of squares in double: fixed blocks, fixed order, the same for every team size. Not
     * finite exactly when an element is not finite. */
    enum status (*sum_squares)(double *sum_out, const float *in, size_t elems,
                               struct stream *stream);
    /* One fused pass over weight, moment1, moment2 and grad (n each). */
    enum status (*adam)(float *weight, float *moment1, float *moment2, const float *grad,
                        size_t elems, const struct adam_step *step, struct stream *stream);
    /* One fused pass over weight, moment and grad (n each). */
    enum status (*sgd)(float *weight, float *moment, const float *grad, size_t elems,
                       const struct sgd_step *step, struct stream *stream);
    /* The elements of in (n) that are zero, of either sign. */
    enum status (*count_zeros)(size_t *count_out, const float *in, size_t elems,
                               struct stream *stream);
};

/* The CPU's head_block_rows. */
enum {
    HEAD_BLOCK_ROWS = 512
};

/* Distance of two rows of logits: the vocabulary here up to a multiple of a cache line. */
size_t head_logits_stride(const struct head_shape *shape);

/* The table for this processor: x86-64-v3 where it can run, else the baseline. */
const struct kernel_ops *kernels_cpu(void);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_H */
