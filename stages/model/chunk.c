#include "stages/model/chunk.h"

#include <string.h>

#include "base/check.h"
#include "tensor/kernels.h"

static size_t rows_of(const struct chunk *chunk)
{
    return chunk->shape.B * chunk->shape.T;
}

/* Where x of layer i lies: the chunk's input, or the output of the layer below. */
static const float *layer_input(const struct chunk_slot *slot, int32_t layer)
{
    return layer == 0 ? slot->input : slot->outputs[layer - 1];
}

static struct embedding_shape embedding_shape_of(const struct model_shape *shape)
{
    return (struct embedding_shape){
        .batch = shape->B,
        .positions = shape->T,
        .hidden = shape->C,
        .vocab = shape->vocab,
        .first_token = shape->first_token,
        .whole_vocab = shape->V,
        .types = shape->types,
    };
}

/* Each shard looks up the tokens whose rows it has; the sum over the shards is the embedding. */
static enum status embed(struct chunk *chunk, float *embedded, const struct chunk_io *io)
{
    struct embedding_shape embedding = embedding_shape_of(&chunk->shape);
    const struct tensor_parallel *tp = &chunk->workspace->tp;
    size_t elems = rows_of(chunk) * chunk->shape.C;
    float *partial = tp->size > 1 ? chunk->workspace->scratch.hidden : embedded;

    TRY(device_kernels(chunk->device)
            ->embedding_forward(partial, io->tokens, io->types, chunk->weights.wte,
                                chunk->weights.wpe, chunk->weights.wtt, &embedding,
                                device_stream(chunk->device)));
    TRY(tensor_parallel_sum(tp, partial, elems));
    if (partial != embedded) {
        memcpy(embedded, partial, elems * sizeof(float));
    }
    return STATUS_OK;
}

static enum status begin_slot(struct chunk *chunk, struct chunk_slot *slot,
                              const struct chunk_io *io)
{
    slot->tokens = io->tokens;
    slot->types = io->types;
    slot->input = io->input;
    if (!chunk->range.has_embedding) {
        return STATUS_OK;
    }
    slot->input = slot->embedded != NULL ? slot->embedded : io->output;
    return embed(chunk, slot->embedded != NULL ? slot->embedded : io->output, io);
}

static enum status run_layers(struct chunk *chunk, struct chunk_slot *slot,
                              const struct chunk_io *io)
{
    for (int32_t i = 0; i < chunk->range.layers; i++) {
        float *y = slot->outputs[i] != NULL ? slot->outputs[i] : io->output;

        TRY(layer_forward(&chunk->weights.layers[i], &slot->layers[i], layer_input(slot, i), y,
                          &chunk->shape, &chunk->workspace->scratch, chunk->device));
    }
    if (chunk->range.layers == 0 && !chunk->range.has_head && !chunk->range.has_embedding) {
        /* A chunk without layers hands its input on. */
        memcpy(io->output, slot->input, rows_of(chunk) * chunk->shape.C * sizeof(float));
    }
    return STATUS_OK;
}

static enum status final_norm(struct chunk *chunk, struct chunk_slot *slot)
{
    return device_kernels(chunk->device)
        ->layernorm_forward(slot->final, slot->final_mean, slot->final_rstd,
                            layer_input(slot, chunk->range.layers), chunk->weights.ln_f_weight,
                            chunk->weights.ln_f_bias, rows_of(chunk), chunk->shape.C,
                            chunk->shape.eps, device_stream(chunk->device));
}

static struct head head_of(const struct chunk *chunk, float loss_seed)
{
    const struct workspace *workspace = chunk->workspace;

    return (struct head){
        .shape =
            {
                .rows = rows_of(chunk),
                .hidden = chunk->shape.C,
                .vocab = chunk->shape.vocab,
                .first_token = chunk->shape.first_token,
                .loss_seed = loss_seed,
            },
        .weight = chunk->weights.head,
        .gradient = chunk->sums.head,
        .buffers = workspace->head,
        .shared = workspace->scratch.hidden,
        .tp = &workspace->tp,
        .device = chunk->device,
    };
}

enum status chunk_forward(struct chunk *chunk, int32_t slot_index, struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];
    struct head head = head_of(chunk, io->loss_seed);

    TRY(begin_slot(chunk, slot, io));
    TRY(run_layers(chunk, slot, io));
    if (!chunk->range.has_head) {
        return STATUS_OK;
    }
    TRY(final_norm(chunk, slot));
    return head_train(&head, slot->final, io->targets, io->mask, &io->loss_sum);
}

enum status chunk_evaluate(struct chunk *chunk, int32_t slot_index, struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];
    struct head head = head_of(chunk, 0.0F);

    TRY(begin_slot(chunk, slot, io));
    TRY(run_layers(chunk, slot, io));
    if (!chunk->range.has_head) {
        return STATUS_OK;
    }
    TRY(final_norm(chunk, slot));
    return head_evaluate(&head, slot->final, io->targets, io->mask, &io->loss_sum);
}

/* Where the gradient at the input of layer i goes: into the set, or out to the previous stage. */
static float *layer_dinput(const struct chunk_gradients *set, const struct chunk_io *io,
                           int32_t layer)
{
    return set->inputs[layer] != NULL ? set->inputs[layer] : io->dinput;
}

/* The gradient at the output of layer i: what the layer above left, or the chunk's own dY. */
static const float *layer_doutput(const struct chunk *chunk, const struct chunk_gradients *set,
                                  const struct chunk_io *io, int32_t layer)
{
    if (layer + 1 < chunk->range.layers) {
        return set->inputs[layer + 1];
    }
    return chunk->range.has_head ? set->output : io->doutput;
}

static enum status final_norm_backward(struct chunk *chunk, const struct chunk_slot *slot,
                                       const struct chunk_gradients *set, const struct chunk_io *io)
{
    float *dx = set->output != NULL ? set->output : io->dinput;

    return device_kernels(chunk->device)
        ->layernorm_backward(dx, chunk->sums.ln_f_weight, chunk->sums.ln_f_bias, slot->final, NULL,
                             layer_input(slot, chunk->range.layers), chunk->weights.ln_f_weight,
                             slot->final_mean, slot->final_rstd, rows_of(chunk), chunk->shape.C,
                             chunk->workspace->scratch.norm, device_stream(chunk->device));
}

enum status chunk_backward_input(struct chunk *chunk, int32_t slot_index, int32_t gradient,
                                 const struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];
    struct chunk_gradients *set = &chunk->gradients[gradient];

    if (chunk->range.has_head) {
        TRY(final_norm_backward(chunk, slot, set, io));
    }
    for (int32_t i = chunk->range.layers - 1; i >= 0; i--) {
        TRY(layer_backward_input(&chunk->weights.layers[i], &chunk->sums.layers[i],
                                 &slot->layers[i], &set->layers[i], layer_input(slot, i),
                                 layer_doutput(chunk, set, io, i), layer_dinput(set, io, i),
                                 &chunk->shape, &chunk->workspace->scratch, chunk->device));
    }
    if (chunk->range.layers == 0 && !chunk->range.has_head && !chunk->range.has_embedding) {
        memcpy(io->dinput, io->doutput, rows_of(chunk) * chunk->shape.C * sizeof(float));
    }
    return STATUS_OK;
}

/* The gradient of the embedding's output: below the layers, or, without layers, the chunk's dY. */
static const float *embedding_doutput(const struct chunk *chunk, const struct chunk_gradients *set,
                                      const struct chunk_io *io)
{
    if (chunk->range.layers > 0) {
        return set->inputs[0];
    }
    return chunk->range.has_head ? set->output : io->doutput;
}

enum status chunk_backward_weight(struct chunk *chunk, int32_t slot_index, int32_t gradient,
                                  const struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];
    struct chunk_gradients *set = &chunk->gradients[gradient];
    const struct model_shape *shape = &chunk->shape;
    struct embedding_shape embedding = embedding_shape_of(shape);

    for (int32_t i = chunk->range.layers - 1; i >= 0; i--) {
        TRY(layer_backward_weight(&chunk->sums.layers[i], &slot->layers[i], &set->layers[i],
                                  layer_doutput(chunk, set, io, i), shape, chunk->device));
    }
    if (!chunk->range.has_embedding) {
        return STATUS_OK;
    }
    return device_kernels(chunk->device)
        ->embedding_backward(chunk->sums.wte, chunk->sums.wpe, chunk->sums.wtt,
                             embedding_doutput(chunk, set, io), slot->tokens, slot->types,
                             &embedding, device_stream(chunk->device));
}
