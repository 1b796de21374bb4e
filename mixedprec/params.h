/*
 * params -- the tensors that a rank trains, in flat buffers.
 *
 * A table of named tensors and their buffers: weights and gradients of the same layout, and the two
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

/* Which part of a whole tensor lies here. Columns come in `blocks` equal blocks that are split
 * alike (Q|K|V: 3); row r, column b·(cols / blocks) + j here is row first_row + r, column
 * b·(whole_cols / blocks) + first_col + j of the whole. */
struct param_shard {
    int64_t whole_rows;
    int64_t whole_cols;
    int64_t first_row;
    int64_t first_col; /* in each block */
    int64_t blocks;    /* >= 1 */
};

struct param {
    char name[PARAM_NAME_BYTES]; /* "h.3.attn.c_attn.weight", the Hugging Face name */
    int64_t rows;                /* here, of a matrix; 1 for a one-dimensional parameter */
    int64_t cols;
    size_t elems;
    struct param_shard shard; /* blocks 0, as in a zeroed entry: params_add() makes it the whole */
    /* What this replica updates: all, or, `sliced`, a part of it, whose owner alone has its moments
     * and gives its part of the norm. params_add() makes 0 elements of an unsliced entry all of them. */
    size_t own_first;
    size_t own_elems;
    bool sliced;
    bool sharded;     /* over TP: each shard counts in the norm; else the copy of tp 0 alone does */
    bool decays;      /* matrices only: weight decay leaves one-dimensional parameters alone */
    int32_t norm_key; /* which partial sum of the gradient norm it belongs to */
    float init_std;   /* > 0: N(0, std²) */
    float init_value; /* otherwise this */
    uint32_t site;    /* with `layer` names its random numbers */
    uint32_t layer;
    float *weight; /* into the buffers; set by params_place() */
    float *grad;
    float *moment1; /* own_elems */
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

/* Appends a tensor; its pointers are NULL until params_place(). */
enum status params_add(struct params *params, const struct param *param);

/* Plans the three blocks; their planned_bytes are then known. */
void params_measure(struct params *params);

/* Cuts `param` into slices of which this replica owns `elems` from `first`. Before
 * params_measure(). */
void param_slice(struct param *param, size_t first, size_t elems);

/* Allocates what params_measure() planned, where no memory was given yet (arena_place()), and sets
 * the pointers of the table. */
enum status params_place(struct params *params);

/* A stretch of a tensor that lies together here and in the whole tensor, row after row. */
struct param_run {
    size_t here;  /* first element in this shard */
    size_t whole; /* first element in the whole tensor */
    size_t elems;
};

/* The stretches that make up the shard, 0 … param_runs() - 1, in ascending order: one where whole
 * rows lie here, else one a row and block. */
int64_t param_runs(const struct param *param);
struct param_run param_run_at(const struct param *param, int64_t run);

/* NULL where there is none of that name. */
struct param *params_find(const struct params *params, const char *name);

/* Weights from the table's init rule, by (seed, site, layer, element of the whole tensor) alone. */
void params_initialize(struct params *params, uint64_t seed);

void params_zero_gradients(struct params *params);

/* Safe on a zeroed set, and twice. */
void params_release(struct params *params);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_PARAMS_H */
