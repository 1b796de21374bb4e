/*
 * parameters -- the tensors of a chunk: names, shapes, initial values, and where they lie.
 *
 * Names and layouts are Hugging Face's GPT-2 (Conv1D: input × output), so that a file can be read
 * and written as it is. The tied word embedding belongs to virtual stage 0; the chunk with the
 * head has a copy of it and a gradient buffer of its own, on one rank too (there the copy is the
 * embedding itself): the head's gradient always travels to the owner as a sum of its own, so that
 * every layout adds the same two numbers.
 */
#ifndef STAGES_MODEL_PARAMETERS_H
#define STAGES_MODEL_PARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "stages/model/shape.h"
#include "tensor/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer's tensors: a set for weights, in the model dtype but for the layer norms, and a set for
 * sums of gradients, all fp32. With tensor parallelism A = C/tp
 * and F/tp are what this shard has; biases behind row-parallel products are whole. */
struct layer_tensors {
    float *ln_1_weight;  /* (C) */
    float *ln_1_bias;    /* (C) */
    void *c_attn_weight; /* (C,3A), columns Q|K|V */
    void *c_attn_bias;   /* (3A) */
    void *c_proj_weight; /* (A,C) */
    void *c_proj_bias;   /* (C) */
    float *ln_2_weight;  /* (C) */
    float *ln_2_bias;    /* (C) */
    void *c_fc_weight;   /* (C,F) */
    void *c_fc_bias;     /* (F) */
    void *m_proj_weight; /* (F,C), mlp.c_proj */
    void *m_proj_bias;   /* (C) */
};

#define LAYER_TENSORS 12

/* The tensors of one chunk, likewise; pointers into a params set and the head's arena. */
struct chunk_tensors {
    struct layer_tensors *layers; /* owns; range.layers of them */
    void *wte;                    /* (V here,C), virtual stage 0 */
    void *wpe;                    /* (positions,C), virtual stage 0 */
    void *wtt;                    /* (types,C), virtual stage 0; NULL without token types */
    float *ln_f_weight;           /* (C), last virtual stage */
    float *ln_f_bias;             /* (C), last virtual stage */
    void *head;                   /* (V here,C), last virtual stage */
};

/* The tied head's copy of the word embedding and its gradient. */
struct head_memory {
    struct arena arena; /* owns */
    void *copy;       /* (V here,C), in the model dtype; NULL where the owner is on the same rank */
    float *gradient;  /* (V here,C); NULL without a tied head */
    size_t elems;     /* of either; 0 without a tied head */
    size_t own_first; /* slice of this replica; the whole where dp is 1 */
    size_t own_elems;
};

/* The keys of the gradient norm: 0 the embeddings, 1 + l layer l, L + 1 the final norm, L + 2 an
 * untied head. */
int32_t norm_key_count(const struct model_shape *shape);

/* Appends the chunk's parameters to the table, in model order. */
enum status parameters_add(struct params *params, const struct model_shape *shape,
                           const struct chunk_range *range);

/* The LAYER_TENSORS entries of a layer in the table, in the order of struct layer_tensors; NULL where
 * it is on another rank. */
const struct param *parameters_layer(const struct params *params, int32_t layer);

/* The same of whichever layer is on this rank, of `layers` that the model has; NULL where none is. */
const struct param *parameters_any_layer(const struct params *params, size_t layers);

/* Where the entries of each layer begin in the table, or -1, into first_out (layers). */
void parameters_index_layers(const struct params *params, size_t layers, int32_t *first_out);

/* Lets the tensor of that place, 0 … LAYER_TENSORS - 1, point to `tensor`. */
void layer_tensors_put(struct layer_tensors *tensors, int place, void *tensor);

/* Plans (and, once the arena has memory, places) the tied head's memory: a gradient where the rank
 * has the head, a copy where it does not have the embedding too. */
void head_memory_carve(struct head_memory *head, const struct model_shape *shape,
                       bool has_embedding, bool has_head);

/* Collects the pointers of weights and of gradients of one chunk, of all that this rank has in
 * `params`. Both must be released. */
enum status chunk_tensors_init(struct chunk_tensors *weights, struct chunk_tensors *gradients,
                               const struct params *params, const struct head_memory *head,
                               const struct chunk_range *range);
void chunk_tensors_release(struct chunk_tensors *tensors);

/* The word embedding's rule, of a head's copy, which has no entry in `params` and is of their format and device. */
void parameters_head_copy(const struct model_shape *shape, const struct params *params,
                          const struct head_memory *head, struct param *param_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_PARAMETERS_H */
