/*
 * layer -- one transformer layer of GPT-2: forward, input gradient, weight gradient.
 *
 *   mid = x + attention(norm1(x))        y = mid + mlp(norm2(mid))
 *
 * The backward is two actions from the start: I computes every dY and dX, biases and layer norms
 * included; W computes the four matrix gradients from what was kept: X by F in the stash, dY by I
 * in the gradient set. Everything that adds to a gradient does so once per micro-batch.
 *
 * Tensor parallelism (Shoeybi et al. 2019): the products into Q, K, V and into the MLP are split by
 * columns, those back to the residual stream by rows. Two sums over the shards in the forward, two
 * in the input gradient. A = C/tp columns of each of Q, K and V, inner = F/tp.
 */
#ifndef STAGES_MODEL_LAYER_H
#define STAGES_MODEL_LAYER_H

#include "base/status.h"
#include "stages/model/parameters.h"
#include "stages/model/shape.h"
#include "stages/model/tensor_parallel.h"
#include "tensor/arena.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the backward of one micro-batch needs of one layer, besides its input x. */
struct layer_stash {
    float *norm1;     /* (N,C) */
    float *mean1;     /* (N) */
    float *rstd1;     /* (N) */
    float *qkv;       /* (N,3A) */
    float *attention; /* (N,A) */
    float *lse;       /* (B,heads,T) */
    float *mid;       /* (N,C) */
    float *norm2;     /* (N,C) */
    float *mean2;     /* (N) */
    float *rstd2;     /* (N) */
    float *inner;     /* (N,inner), before GELU */
    float *gelu;      /* (N,inner) */
};

/* The dY that W needs, besides the layer's own dy. */
struct layer_gradients {
    float *inner; /* (N,inner) */
    float *mid;   /* (N,C) */
    float *qkv;   /* (N,3A) */
};

/* Scratch of one rank, used by one action at a time. */
struct layer_scratch {
    const struct tensor_parallel *tp; /* borrows */
    float *hidden;    /* (N,C); where all shards can read it, because sums are made in it */
    float *attention; /* attention_workspace_floats() */
    float *norm;      /* layernorm_partials_floats() */
};

/* Measure, or place (tensor/arena.h); `shared` is the block that all shards can read. */
void layer_stash_carve(struct layer_stash *stash, const struct model_shape *shape,
                       struct arena *arena);
void layer_gradients_carve(struct layer_gradients *gradients, const struct model_shape *shape,
                           struct arena *arena);
void layer_scratch_carve(struct layer_scratch *scratch, const struct model_shape *shape,
                         int threads, struct arena *arena, struct arena *shared);

/* x (N,C) read, y (N,C) overwritten; the stash is filled. */
enum status layer_forward(const struct layer_tensors *weights, const struct layer_stash *stash,
                          const float *x, float *y, const struct model_shape *shape,
                          const struct layer_scratch *scratch, struct device *device);

/* x and dy (N,C) read, dx (N,C) overwritten; biases and layer norms of `sums` += ; `kept` is
 * filled. */
enum status layer_backward_input(const struct layer_tensors *weights,
                                 const struct layer_tensors *sums, const struct layer_stash *stash,
                                 const struct layer_gradients *kept, const float *x,
                                 const float *dy, float *dx, const struct model_shape *shape,
                                 const struct layer_scratch *scratch, struct device *device);

/* The four matrices of `sums` += . */
enum status layer_backward_weight(const struct layer_tensors *sums, const struct layer_stash *stash,
                                  const struct layer_gradients *kept, const float *dy,
                                  const struct model_shape *shape, struct device *device);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_LAYER_H */
