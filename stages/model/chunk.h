/*
 * chunk -- one contiguous run of layers, with the embedding or the head where it has them, and
 * the buffers that its micro-batches live in.
 *
 * F, I and W of one micro-batch on a numbered slot; the plan says which slot and which gradient
 * set, this file says what happens there. The head is fused into F of the last virtual stage:
 * logits, loss, dlogits, and at once dX (in place of the head's input) and dW, block by block; so
 * I of that chunk starts from a finished dX and W has no head part.
 *
 * What F does not keep (stages/model/recompute.h) it makes in the workspace; I begins with making it
 * again in the gradient set, where W finds it.
 *
 * Where the replicas keep slices of the weights, F and I ask for one layer after the other, I in the
 * opposite order, behind an I's recompute in that of F; W needs none.
 *
 * Where sequences are cut (stages/model/slices.h) an F, I or W is of one slice of a micro-batch. Its
 * slices go through F in ascending and through I in descending order, none of another micro-batch
 * between those of an I; and a micro-batch's K and V stay from the first F of one of its slices to the
 * last I, as many at once as chunk_init() was told.
 *
 * `void *` is in the model dtype. n rows of a micro-batch's N are here, all of them without sequence
 * parallelism (stages/model/shape.h).
 *
 * Knows nothing of plans, lanes or steps: the worker hands it pointers.
 */
#ifndef STAGES_MODEL_CHUNK_H
#define STAGES_MODEL_CHUNK_H

#include <stdint.h>

#include "base/status.h"
#include "stages/model/gathered.h"
#include "stages/model/layer.h"
#include "stages/model/parameters.h"
#include "stages/model/shape.h"
#include "stages/model/workspace.h"
#include "tensor/arena.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What F keeps of one micro-batch. */
struct chunk_slot {
    struct layer_stash *layers; /* owns the array */
    /* Owns the array: y (n,C) of each layer that is not sent; NULL with full recompute. */
    void **outputs;
    void *embedded;    /* (n,C), where the chunk begins with the embedding */
    void *final;       /* (n,C) final norm, then its gradient; with a head only */
    float *final_mean; /* (n) */
    float *final_rstd; /* (n) */
    size_t slice;
    struct layer_keys
        *keys;         /* borrows: of the micro-batch, by layer; NULL where sequences are not cut */
    const void *input; /* borrows: what F read, until I has ended */
    const int32_t *tokens; /* borrows: what F read, until W has ended */
    const int32_t *types;  /* borrows: likewise; NULL without token types */
    struct masks masks;    /* as F had them */
};

/* What I keeps of one micro-batch for W: gradients, and what it makes again of F's results. */
struct chunk_gradients {
    struct layer_gradients *layers; /* owns the array */
    struct layer_stash *again;      /* owns the array; with recompute */
    void **outputs; /* owns the array; with full recompute, what the slot has without it */
    void **inputs;  /* owns the array; gradient (n,C) at the input of each layer: [0] only where
                       there is an embedding below, [i] always */
    void *output;   /* (n,C) at the chunk's output; with a head only, else it is a message */
};

struct chunk {
    struct model_shape shape; /* of the slice at work */
    struct chunk_range range;
    struct chunk_tensors weights;
    struct chunk_tensors sums; /* of gradients */
    struct chunk_slot *slots;  /* owns */
    int32_t slot_count;
    struct chunk_gradients *gradients; /* owns */
    int32_t gradient_count;
    /* Owns; [micro-batch mod sequences · layers + layer]; NULL where sequences are not cut. */
    struct layer_keys *keys;
    int32_t sequences;
    struct workspace *workspace; /* borrows; of the rank, not of this chunk */
    struct gathered *gathered;   /* borrows; of the rank; NULL where all weights are whole here */
    struct arena stash;          /* owns */
    struct arena kept;           /* owns: the gradient sets, but for */
    struct arena again;          /* owns: what they have of F's results */
    struct arena sequence_keys;  /* owns: K and V of micro-batches whose slices are on their way */
    struct arena key_sums;       /* owns: their gradients, of one */
    struct device *device;       /* borrows until release */
};

/* Called before and after W of each layer, the `layer`-th of the chunk and `number` in the model. */
struct chunk_hook {
    enum status (*begin)(void *context, int32_t number, int32_t layer);
    enum status (*end)(void *context, int32_t number, int32_t layer);
    void *context;
};

/* The two ends of a micro-batch's way through the chunk; what does not apply is NULL. */
struct chunk_io {
    const void *input;      /* F: (n,C), from the previous virtual stage */
    void *output;           /* F: (n,C), for the next virtual stage */
    const void *doutput;    /* I, W: (n,C), from the next virtual stage */
    void *dinput;           /* I: (n,C), for the previous virtual stage */
    const int32_t *tokens;  /* F: (B,T), with the embedding */
    const int32_t *types;   /* F: (B,T), with the embedding of a model with token types */
    const int32_t *targets; /* F: (B,T), with the head */
    const float *mask;      /* F: (B,T), with the head */
    int32_t microbatch;     /* F: number in the step, and */
    int32_t slice;          /* of its sequences; 0 where they are not cut */
    int64_t first_sample;   /* running number, in the whole run, of the first sequence */
    float loss_seed;        /* F, with the head: loss scale / targets of the global batch */
    double
        *loss_sum; /* F, with the head: += the losses; of DEVICE_HOST, whole behind device_wait() */
    const struct chunk_hook *hook; /* W; may be NULL */
};

/* Plans the buffers for `slots` and `gradients` of the plan, and for K and V of as many micro-batches at
 * once as `sequences`, 0 where sequences are not cut; sizes are then in the arenas. The
 * tensors are set later (chunk_tensors_init). */
enum status chunk_init(struct chunk *chunk, const struct model_shape *shape,
                       const struct chunk_range *range, int32_t slots, int32_t gradients,
                       int32_t sequences, struct workspace *workspace, struct device *device);

/* Allocates what chunk_init() planned. */
enum status chunk_allocate(struct chunk *chunk);

/* GATHER: begins to ask for layers, for an F or, `backward`, an I; the first has come when it returns.
 * `counts` as of gathered_open(); *bytes_out is what has come. Nothing where all weights are whole. */
enum status chunk_gather(struct chunk *chunk, bool backward, bool counts, size_t *bytes_out);

/* RELEASE: F or I has ended. */
void chunk_give_back(struct chunk *chunk);

enum status chunk_forward(struct chunk *chunk, int32_t slot, const struct chunk_io *io);

/* F without gradients and without dropout: the slot is free again when it returns. */
enum status chunk_evaluate(struct chunk *chunk, int32_t slot, const struct chunk_io *io);

enum status chunk_backward_input(struct chunk *chunk, int32_t slot, int32_t gradient,
                                 const struct chunk_io *io);
enum status chunk_backward_weight(struct chunk *chunk, int32_t slot, int32_t gradient,
                                  const struct chunk_io *io);

/* Safe on a zeroed chunk, and twice. */
void chunk_release(struct chunk *chunk);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_CHUNK_H */
