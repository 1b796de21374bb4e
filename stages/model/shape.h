/*
 * shape -- the sizes of a GPT, and which part of it a rank holds.
 *
 * Letters as everywhere: B sequences of a micro-batch, T positions, C hidden, H heads, D = C/H,
 * F inner size of the MLP, V vocabulary, L layers, N = B·T rows. Capital letters are the whole
 * model's; what a tensor-parallel shard has of it is written out: its heads, its columns of the
 * MLP, its rows of the word embedding.
 *
 * With sequence parallelism (parallel.sequence_parallel, tp > 1) a shard has N/tp rows of the residual
 * stream, which lie together: its own rows, n of them. Everything outside the products is done row
 * by row, so any rows would do. Without it the own rows are all.
 *
 * With sequence slices (stages/model/slices.h) an action works on one slice of the sequences of a
 * micro-batch: T is then that slice's length, and N = B·T its rows. What is planned is planned for the
 * longest slice, and a shape that is of no slice in particular has its T.
 *
 * A tensor in the model dtype is `void *` wherever it is handed on; what is fp32 in every model
 * (layer norms' parameters, means, log-sum-exps, gradients of parameters, partial sums) is `float *`.
 */
#ifndef STAGES_MODEL_SHAPE_H
#define STAGES_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stages/config.h"
#include "stages/model/recompute.h"
#include "stages/model/slices.h"
#include "tensor/arena.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model_shape {
    size_t B;
    size_t T; /* positions of a sequence that an action works on: all, or a slice's */
    size_t C;
    size_t H;
    size_t D;
    size_t F;
    size_t V;
    size_t L;
    size_t positions; /* rows of the position table, >= T */
    size_t types;     /* rows of the table of token types; 0: the model has none */
    bool tied;        /* the head's matrix is the word embedding */
    size_t shards;    /* tp */
    size_t shard;     /* which of them this rank is */
    size_t heads;     /* H / tp */
    size_t width;     /* heads · D: columns of Q, of K and of V here */
    size_t inner;     /* F / tp */
    bool splits_rows; /* sequence parallelism */
    size_t vocab;     /* rows of the word embedding here; equal parts, the last ones shorter */
    size_t first_token;
    enum dtype type;     /* the model dtype: matrices, biases, activations, messages */
    uint32_t drop_below; /* threshold of dropout masks (tensor/rng.h); 0: no dropout */
    uint64_t seed;       /* of them */
    float eps;           /* of the layer norms */
    float init_std;
    size_t sequence;      /* positions of a whole one */
    size_t first;         /* of them, the first of these T */
    struct slices slices; /* of a sequence */
};

/* One contiguous run of layers on a rank. */
struct chunk_range {
    int32_t first_layer;
    int32_t layers;     /* 0 is allowed: such a chunk hands its input on */
    bool has_embedding; /* virtual stage 0 */
    bool has_head;      /* the last virtual stage */
    enum recompute recompute;
};

/* As tensor-parallel shard `shard` sees it; sizes of the whole do not depend on it. */
void model_shape_of(const struct config *config, int32_t shard, struct model_shape *shape_out);

/* T and `first` become those of a slice. */
void model_shape_enter(struct model_shape *shape, size_t slice);

/* N, the rows of a micro-batch; n, those of the residual stream here; and the first of these. */
size_t model_rows(const struct model_shape *shape);
size_t model_own_rows(const struct model_shape *shape);
size_t model_first_row(const struct model_shape *shape);

/* Bytes of a message between stages, (n,C) in the model dtype. */
size_t model_message_bytes(const struct model_shape *shape);

/* Measure, or place (tensor/arena.h): room for `elems` in the model dtype. */
void *model_take(const struct model_shape *shape, struct arena *arena, size_t elems);

/* The layers of virtual stage `virtual_stage`. */
void chunk_range_of(const struct config *config, int32_t virtual_stage,
                    struct chunk_range *range_out);

/* Parameters of the whole model: V·C + positions·C + L·(12·C² + 13·C for F = 4C) + 2·C, tied head. */
uint64_t model_parameters(const struct model_shape *shape);

/* FLOPs of a training step a token: 6·parameters (position table apart, the tied matrix once, as
 * the head) + 12·L·C·T for attention, the count that llm.c and the Megatron papers of 2021 use
 * (not halved for the causal mask). */
double model_flops_per_token(const struct model_shape *shape);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_SHAPE_H */
