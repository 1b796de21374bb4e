/*
 * layer -- one transformer layer of GPT-2: forward, input gradient, weight gradient.
 *
 *   mid = x + attention(norm1(x))        y = mid + mlp(norm2(mid))
 *
 * The backward is two actions from the start: I computes every dY and dX, biases and layer norms
 * included; W computes the four matrix gradients from what was kept: X by F in the stash, dY by I
 * in the gradient set. Everything that adds to a gradient does so once per micro-batch.
 *
 * With dropout (Megatron's sites) the attention's weights and what either half adds to the residual
 * stream go through masks.
 *
 * Tensor parallelism (Shoeybi et al. 2019): the products into Q, K, V and into the MLP are split by
 * columns, those back to the residual stream by rows. Two sums over the shards in the forward, two
 * in the input gradient. A = C/tp columns of each of Q, K and V, inner = F/tp.
 *
 * With sequence slices (Sun et al. 2024) one of them at a time is at work: its queries read the keys and
 * values of the slices before it, which F keeps (struct layer_keys), and I, last slice first, adds to
 * their gradients, so that those of a slice are whole in its own I. All else is done row by row.
 *
 * With sequence parallelism (Korthikanti et al. 2022) x, mid and y, the norms and the masks on the
 * residual stream are of own rows: n of N (stages/model/shape.h). The norms' outputs are gathered for
 * the products, and what those back make is summed for own rows only, so that twice N/tp rows take the
 * place of a sum of N. I gathers the dY of the products back to the stream. W gathers both again, the
 * norms' outputs and that dY: 4 more gathers a layer and micro-batch, and 1/tp of the memory between.
 *
 * `void *` is in the model dtype. In 16 bits a product that becomes part of the residual stream, or
 * that a layer norm or the attention goes on with in the backward, is made in fp32 (`hidden`) and
 * rounded when the residual is added.
 */
#ifndef STAGES_MODEL_LAYER_H
#define STAGES_MODEL_LAYER_H

#include "base/status.h"
#include "stages/model/masks.h"
#include "stages/model/parameters.h"
#include "stages/model/recompute.h"
#include "stages/model/shape.h"
#include "stages/model/tensor_parallel.h"
#include "tensor/arena.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the backward of one micro-batch needs of one layer, besides its input x. Under a kind of
 * recompute it lies in two places: what F keeps, and what I makes again; a pointer is NULL in the
 * place that does not have it. */
struct layer_stash {
    void *norm1;     /* (n,C) */
    float *mean1;    /* (n) */
    float *rstd1;    /* (n) */
    void *qkv;       /* (N,3A) */
    void *attention; /* (N,A) */
    float *lse;      /* (B,heads,T) */
    void *mid;       /* (n,C) */
    void *norm2;     /* (n,C) */
    float *mean2;    /* (n) */
    float *rstd2;    /* (n) */
    void *inner;     /* (N,inner), before GELU */
    void *gelu;      /* (N,inner) */
};

/* The dY that W needs, besides the layer's own dy. */
struct layer_gradients {
    void *inner; /* (N,inner) */
    void *mid;   /* (n,C) */
    void *qkv;   /* (N,3A) */
};

/* Scratch of one rank, used by one action at a time. */
struct layer_scratch {
    const struct tensor_parallel *tp; /* borrows */
    struct device *device;            /* borrows */
    /* (N,C): what is rounded, or summed over the shards, before others read it; so it lies where
     * all shards can read it. */
    float *hidden;
    void *gathered;   /* (N,C), likewise: own rows of all shards; with sequence parallelism only */
    float *attention; /* kernel_ops.attention_workspace() */
    float *norm;      /* kernel_ops.layernorm_partials() */
    void *dropped;    /* (n,C): a gradient behind a mask; with dropout only */
};

/* Where one layer keeps K and V of a whole sequence while its slices pass, and the sums of their gradients. */
struct layer_keys {
    void *keys;   /* (B,sequence,2A); NULL: sequences are not cut */
    float *dkeys; /* (B,sequence,2A) */
};

/* One layer at work; borrows all. */
struct layer {
    const struct layer_tensors *weights;
    const struct layer_tensors *sums; /* of gradients; the forward has no use for them */
    const struct model_shape *shape;
    const struct layer_scratch *scratch;
    struct device *device;
    int32_t number; /* of the whole model; names its masks */
    struct masks masks;
    struct layer_keys keys;
};

/* Measure, or place (tensor/arena.h); `shared` is the block that all shards can read. Of a stash:
 * what F keeps under `recompute`, or what it leaves out and I makes again. */
void layer_stash_carve_kept(struct layer_stash *stash, const struct model_shape *shape,
                            enum recompute recompute, struct arena *arena);
void layer_stash_carve_again(struct layer_stash *stash, const struct model_shape *shape,
                             enum recompute recompute, struct arena *arena);
void layer_gradients_carve(struct layer_gradients *gradients, const struct model_shape *shape,
                           struct arena *arena);
void layer_scratch_carve(struct layer_scratch *scratch, const struct model_shape *shape,
                         const struct kernel_ops *kernels, int threads, struct arena *arena,
                         struct arena *shared);

/* Likewise, one layer's part for one sequence of each of a micro-batch. */
void layer_keys_carve(struct layer_keys *keys, const struct model_shape *shape,
                      struct arena *arena);
void layer_key_sums_carve(struct layer_keys *keys, const struct model_shape *shape,
                          struct arena *arena);

/* The whole of a stash: what `kept` has from there, the rest from `other`. */
struct layer_stash layer_stash_join(const struct layer_stash *kept,
                                    const struct layer_stash *other);

/* x (n,C) read, y (n,C) overwritten, which may be x; the stash is filled. */
enum status layer_forward(const struct layer *layer, const struct layer_stash *stash, const void *x,
                          void *y);

/* Fills again what layer_forward() filled and `recompute` leaves out; the rest of the stash is
 * there, and stays. Under full, y (n,C) is overwritten; y NULL: nobody reads it, and the product
 * that makes it is left out. */
enum status layer_recompute(const struct layer *layer, const struct layer_stash *stash,
                            enum recompute recompute, const void *x, void *y);

/* x and dy (n,C) read, dx (n,C) overwritten; biases and layer norms of the sums += ; `kept` is
 * filled. */
enum status layer_backward_input(const struct layer *layer, const struct layer_stash *stash,
                                 const struct layer_gradients *kept, const void *x, const void *dy,
                                 void *dx);

/* The four matrices of the sums += . With dropout the gradients of two of them are behind masks; they
 * are made again here, which takes little beside the products, and not kept since I. */
enum status layer_backward_weight(const struct layer *layer, const struct layer_stash *stash,
                                  const struct layer_gradients *kept, const void *dy);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_LAYER_H */
