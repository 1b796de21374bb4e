/*
 * params -- the tensors that a rank trains, in flat buffers.
 *
 * A table of named tensors and their buffers. Each tensor begins on an arena boundary:
 *
 *   weights    the model's copy, in the number format of the model: what F and I read. Whole, or,
 *              scattered, the slice that this replica owns
 *   gradients  fp32; whole, or of what this replica owns
 *   main       fp32 main params, which the optimizer updates: of what this replica owns. A tensor
 *              whose copy is fp32 has none of its own: there the copy is the main param
 *   moments    fp32, the optimizer's one or two: of what this replica owns
 *
 * The copy always is the main param, rounded. The table is the order of everything that walks over
 * parameters, and it is the same for a tensor wherever the tensor lies.
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
#include "tensor/device.h"
#include "tensor/dtype.h"

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
    /* What this replica owns and updates: all, or, `sliced`, a part of it, whose owner alone has its
     * main params and moments. params_add() makes 0 elements of an unsliced entry all of them. */
    size_t own_first;
    size_t own_elems;
    bool sliced;
    bool sharded; /* over TP: each shard counts in the norm; else the copy of tp 0 alone does */
    bool
        by_rows; /* each shard adds up the gradient over its own rows: summed over TP once a step */
    bool decays; /* matrices only: weight decay leaves one-dimensional parameters alone */
    bool fp32;   /* its copy is fp32 in every training: layer norms */
    bool by_layer;    /* F and I ask for it layer by layer, so that its copy may be scattered */
    bool scattered;   /* the copy here is the own slice alone, see params_scatter() */
    bool in_w;        /* W alone adds to its gradient, layer by layer: a weight matrix of a layer */
    bool own_grad;    /* the gradient here is the own slice alone, see params_scatter_gradients() */
    int32_t norm_key; /* which partial sum of the gradient norm it belongs to */
    float init_std;   /* > 0: N(0, std²) */
    float init_value; /* otherwise this */
    uint32_t site;    /* with `layer` names its random numbers */
    uint32_t layer;
    /* Borrows; whose memory the tensors are, NULL for the host's; set by params_place(). */
    struct device *device;
    enum dtype type;  /* of the model's copy; set by params_add() */
    size_t room;      /* elements of the copy; scattered, of the largest replica's */
    size_t grad_room; /* of the gradient, likewise */
    /* The model's copy, or, scattered, what is here of it; into the buffers, as all that follow; set
     * by params_place(). */
    void *weight;
    float *grad;    /* whole, or, own_grad, the own slice */
    float *main;    /* own_elems; into `weight` where that is fp32 */
    float *moment1; /* own_elems */
    float *moment2; /* own_elems; NULL where the optimizer has one moment */
};

struct params {
    struct param *table; /* owns */
    int32_t count;
    int32_t capacity; /* private */
    enum dtype type;  /* of the model */
    /* Borrows; whose memory the buffers are. NULL: the host's; else the caller's to set before params_place(). */
    struct device *device;
    bool one_moment;        /* private */
    size_t elems;           /* of all, without padding */
    struct arena weights;   /* owns */
    struct arena gradients; /* owns; zeroed */
    struct arena main;      /* owns; nothing in fp32 */
    struct arena moments;   /* owns; reserved, first touched by the first update */
};

/* An empty set for a model in `model_type` and an optimizer with `moments`, 1 or 2. A zeroed set is one
 * of fp32 and two. */
void params_init(struct params *params, enum dtype model_type, int moments);

/* Appends a tensor; its pointers are NULL until params_place(). */
enum status params_add(struct params *params, const struct param *param);

/* Plans the blocks; their planned_bytes are then known. */
void params_measure(struct params *params);

/* Cuts `param` into slices of which this replica owns `elems` from `first`. Before
 * params_measure(). */
void param_slice(struct param *param, size_t first, size_t elems);

/* Cuts every tensor that is whole into the slices of comm_slice(), one a replica: this one owns slice
 * `index` of each, which may be empty. Nothing where there is one replica. Before params_measure(). */
void params_shard(struct params *params, int32_t replicas, int32_t index);

/* Of every tensor that may be and is sliced, the model's copy too becomes what each replica owns, at
 * the same place of the buffer on all of them. Whoever reads such a tensor gathers it. Before
 * params_measure(). */
void params_scatter(struct params *params, int32_t replicas);

/* Of every tensor that is sliced and whose gradient W alone adds to, the gradient becomes what each
 * replica owns, at the same place of the buffer on all of them. Whoever runs W gives it another place to
 * write to. Before params_measure(). */
void params_scatter_gradients(struct params *params, int32_t replicas);

/* This replica's slice of the model's copy, and of the gradient. */
void *param_own_weight(const struct param *param);
float *param_own_grad(const struct param *param);

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
enum status params_initialize(struct params *params, uint64_t seed);

/* Makes `values` the elements `first` … of this shard: rounded in the model's copy (scattered, where
 * this replica owns them), exact in the main params where this replica owns them. */
enum status param_put(struct param *param, size_t first, size_t elems, const float *values);

/* The same for `moment`, which is param->moment1 or moment2, as far as this replica owns them. NULL: nothing. */
enum status param_put_moment(const struct param *param, float *moment, size_t first, size_t elems,
                             const float *values);

enum status params_zero_gradients(struct params *params);

/* Safe on a zeroed set, and twice. */
void params_release(struct params *params);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_PARAMS_H */
