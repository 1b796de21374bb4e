/*
 * params -- the tensors that a rank trains, in flat buffers.
 *
 * A table of named tensors and four buffers of the same layout: weights, gradients, and the two
 * moments of the optimizer. Each tensor begins on an arena boundary. In fp32 training the weights
 * are the main params. The table is the order of everything that walks over parameters, and it is
 * the same for a tensor wherever the tensor lies.
 *
 * Knows nothing of GPT: stages/model fills the table.
 */
#ifndef MIXEDPREC_PARAMS_H
#define MIXEDPREC_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PARAM_NAME_BYTES 96

struct param {
    char name[PARAM_NAME_BYTES]; /* "h.3.attn.c_attn.weight", the Hugging Face name */
    int64_t rows;                /* of a matrix; 1 for a one-dimensional parameter */
    int64_t cols;
    size_t elems;
    bool decays;      /* matrices only: weight decay leaves one-dimensional parameters alone */
    int32_t norm_key; /* which partial sum of the gradient norm it belongs to */
    float init_std;   /* > 0: N(0, std²) */
    float init_value; /* otherwise this */
    uint32_t site;    /* with `layer` names its random numbers */
    uint32_t layer;
    float *weight; /* into the buffers; set by params_allocate() */
    float *grad;
    float *moment1;
    float *moment2;
};

struct params {
    struct param *table; /* owns */
    int32_t count;
    int32_t capacity;       /* private */
    size_t elems;           /* of all, without padding */
    struct arena weights;   /* owns */
    struct arena gradients; /* owns; zeroed */
    struct arena moments;   /* owns; reserved, first touched by the first update */
};

/* Appends a tensor; its pointers are NULL until params_allocate(). */
enum status params_add(struct params *params, const struct param *param);

/* Plans the three blocks; their planned_bytes are then known. */
void params_measure(struct params *params);

/* Allocates what params_measure() planned and sets the pointers of the table. */
enum status params_allocate(struct params *params);

/* NULL where there is none of that name. */
struct param *params_find(const struct params *params, const char *name);

/* Weights from the table's init rule, by (seed, site, layer, element) alone. */
void params_initialize(struct params *params, uint64_t seed);

void params_zero_gradients(struct params *params);

/* Safe on a zeroed set, and twice. */
void params_release(struct params *params);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_PARAMS_H */
