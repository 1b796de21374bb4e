#include "stages/model/chunk.h"

#include "base/check.h"
#include "stages/model/own_rows.h"
#include "tensor/kernels.h"

/* n, of the residual stream here. */
static size_t rows_of(const struct chunk *chunk)
{
    return model_own_rows(&chunk->shape);
}

static size_t message_elems(const struct chunk *chunk)
{
    return rows_of(chunk) * chunk->shape.C;
}

/* A chunk without anything in it hands on what it gets. */
static bool is_empty(const struct chunk *chunk)
{
    return chunk->range.layers == 0 && !chunk->range.has_head && !chunk->range.has_embedding;
}

static enum status hand_on(const struct chunk *chunk, void *to, const void *from)
{
    return device_copy(chunk->device, to, from, model_message_bytes(&chunk->shape));
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

/* Each shard looks up the tokens whose rows it has; the sum over the shards is the embedding. It is
 * fp32 until it is whole. */
static enum status embed(struct chunk *chunk, const struct masks *masks, void *embedded,
                         const struct chunk_io *io)
{
    const struct kernel_ops *kernels = device_kernels(chunk->device);
    struct stream *stream = device_stream(chunk->device);
    struct embedding_shape embedding = embedding_shape_of(&chunk->shape);
    struct dropout dropout = masks_at(masks, &chunk->shape, SITE_DROPOUT_EMBEDDING, 0);
    const struct layer_scratch *scratch = &chunk->workspace->scratch;
    enum dtype type = chunk->shape.type;
    bool in_place = type == DTYPE_FP32 && scratch->tp->size == 1;
    float *partial = in_place ? embedded : scratch->hidden;
    float *sum = NULL;

    TRY(kernels->embedding_forward(
        partial, io->tokens, io->types, chunk->weights.wte,
        dtype_const_at(chunk->weights.wpe, type, chunk->shape.first * chunk->shape.C),
        chunk->weights.wtt, &embedding, type, stream));
    TRY(own_rows_sum(&chunk->shape, scratch, partial, &sum));
    if (masks->drop) {
        return kernels->dropout_forward(embedded, sum, rows_of(chunk), chunk->shape.C, &dropout,
                                        type, stream);
    }
    return in_place
               ? STATUS_OK
               : kernels->convert(embedded, type, sum, DTYPE_FP32, message_elems(chunk), stream);
}

static enum status begin_slot(struct chunk *chunk, struct chunk_slot *slot,
                              const struct chunk_io *io, bool trains)
{
    slot->slice = (size_t)io->slice;
    slot->keys =
        chunk->keys != NULL
            ? &chunk
                   ->keys[(size_t)(io->microbatch % chunk->sequences) * (size_t)chunk->range.layers]
            : NULL;
    model_shape_enter(&chunk->shape, slot->slice);
    slot->tokens = io->tokens;
    slot->types = io->types;
    slot->input = io->input;
    slot->masks = (struct masks){.drop = trains && chunk->shape.drop_below > 0,
                                 .first_sample = (uint64_t)io->first_sample};
    if (!chunk->range.has_embedding) {
        return STATUS_OK;
    }
    slot->input = slot->embedded != NULL ? slot->embedded : io->output;
    return embed(chunk, &slot->masks, slot->embedded != NULL ? slot->embedded : io->output, io);
}

/* Where F writes y of layer i: what neither the slot keeps nor the next stage reads goes through
 * the workspace, each layer's in place of the one below. */
static void *forward_output(const struct chunk *chunk, const struct chunk_slot *slot,
                            const struct chunk_io *io, int32_t layer)
{
    if (layer + 1 == chunk->range.layers && !chunk->range.has_head) {
        return io->output;
    }
    return slot->outputs[layer] != NULL ? slot->outputs[layer] : chunk->workspace->output;
}

/* Where F reads x of layer i: the chunk's input, or the output of the layer below. */
static const void *forward_input(const struct chunk *chunk, const struct chunk_slot *slot,
                                 const struct chunk_io *io, int32_t layer)
{
    return layer == 0 ? slot->input : forward_output(chunk, slot, io, layer - 1);
}

/* The same for I and W: kept by F, or made again. */
static void *backward_output(const struct chunk_slot *slot, const struct chunk_gradients *set,
                             int32_t layer)
{
    return slot->outputs[layer] != NULL ? slot->outputs[layer] : set->outputs[layer];
}

static const void *backward_input(const struct chunk_slot *slot, const struct chunk_gradients *set,
                                  int32_t layer)
{
    return layer == 0 ? slot->input : backward_output(slot, set, layer - 1);
}

/* Layer i of the chunk is whole afterwards. */
static enum status ask_for(struct chunk *chunk, int32_t layer)
{
    return chunk->gathered != NULL
               ? gathered_layer(chunk->gathered, chunk->range.first_layer + layer,
                                layer % GATHERED_PLACES)
               : STATUS_OK;
}

enum status chunk_gather(struct chunk *chunk, bool backward, bool counts, size_t *bytes_out)
{
    const struct chunk_range *range = &chunk->range;
    bool from_the_last = backward && range->recompute != RECOMPUTE_FULL;

    *bytes_out = 0;
    if (chunk->gathered == NULL || range->layers == 0) {
        return STATUS_OK;
    }
    gathered_open(chunk->gathered, counts);
    *bytes_out = chunk->gathered->layer_bytes;
    return ask_for(chunk, from_the_last ? range->layers - 1 : 0);
}

void chunk_give_back(struct chunk *chunk)
{
    if (chunk->gathered != NULL) {
        gathered_close(chunk->gathered);
    }
}

static struct layer layer_of(const struct chunk *chunk, const struct chunk_slot *slot,
                             int32_t layer)
{
    return (struct layer){
        .weights = &chunk->weights.layers[layer],
        .sums = &chunk->sums.layers[layer],
        .shape = &chunk->shape,
        .scratch = &chunk->workspace->scratch,
        .device = chunk->device,
        .number = chunk->range.first_layer + layer,
        .masks = slot->masks,
        .keys = slot->keys != NULL ? slot->keys[layer] : (struct layer_keys){.keys = NULL},
    };
}

static enum status run_layers(struct chunk *chunk, struct chunk_slot *slot,
                              const struct chunk_io *io)
{
    for (int32_t i = 0; i < chunk->range.layers; i++) {
        struct layer_stash stash = layer_stash_join(&slot->layers[i], &chunk->workspace->stash);
        struct layer layer = layer_of(chunk, slot, i);

        TRY(ask_for(chunk, i));
        TRY(layer_forward(&layer, &stash, forward_input(chunk, slot, io, i),
                          forward_output(chunk, slot, io, i)));
    }
    return is_empty(chunk) ? hand_on(chunk, io->output, slot->input) : STATUS_OK;
}

/* What F has left out of the slot, in the order in which F made it. The output that F sent has no
 * reader here. */
static enum status recompute_layers(struct chunk *chunk, const struct chunk_slot *slot,
                                    const struct chunk_gradients *set)
{
    for (int32_t i = 0; i < chunk->range.layers; i++) {
        struct layer_stash stash = layer_stash_join(&slot->layers[i], &set->again[i]);
        struct layer layer = layer_of(chunk, slot, i);

        /* What is made again under selective recompute needs layer norms alone. */
        TRY(chunk->range.recompute == RECOMPUTE_FULL ? ask_for(chunk, i) : STATUS_OK);
        TRY(layer_recompute(&layer, &stash, chunk->range.recompute, backward_input(slot, set, i),
                            set->outputs[i]));
    }
    return STATUS_OK;
}

static enum status final_norm(struct chunk *chunk, struct chunk_slot *slot,
                              const struct chunk_io *io)
{
    return device_kernels(chunk->device)
        ->layernorm_forward(slot->final, slot->final_mean, slot->final_rstd,
                            forward_input(chunk, slot, io, chunk->range.layers),
                            chunk->weights.ln_f_weight, chunk->weights.ln_f_bias, rows_of(chunk),
                            chunk->shape.C, chunk->shape.eps, chunk->shape.type,
                            device_stream(chunk->device));
}

static struct head head_of(const struct chunk *chunk, float loss_seed)
{
    const struct workspace *workspace = chunk->workspace;

    return (struct head){
        .shape =
            {
                .rows = model_rows(&chunk->shape),
                .hidden = chunk->shape.C,
                .vocab = chunk->shape.vocab,
                .first_token = chunk->shape.first_token,
                .loss_seed = loss_seed,
            },
        .weight = chunk->weights.head,
        .gradient = chunk->sums.head,
        .buffers = workspace->head,
        .type = chunk->shape.type,
        .hidden = workspace->scratch.hidden,
        .tp = &workspace->tp,
        .device = chunk->device,
    };
}

/* The final norm, the head, and its dX in place of the norm's output. With own rows the head reads
 * gathered ones, and its dX is summed for own ones when all blocks have added to it. */
static enum status head_forward(struct chunk *chunk, struct chunk_slot *slot,
                                const struct chunk_io *io)
{
    const struct model_shape *shape = &chunk->shape;
    const struct layer_scratch *scratch = &chunk->workspace->scratch;
    struct head head = head_of(chunk, io->loss_seed);
    const void *all = NULL;
    float *dx = NULL;

    TRY(final_norm(chunk, slot, io));
    if (!shape->splits_rows) {
        return head_train(&head, slot->final, io->targets, io->mask, io->loss_sum);
    }
    TRY(own_rows_gather(shape, scratch, slot->final, &all));
    TRY(head_train_partial(&head, all, io->targets, io->mask, io->loss_sum));
    TRY(own_rows_sum(shape, scratch, scratch->hidden, &dx));
    return device_kernels(chunk->device)
        ->convert(slot->final, shape->type, dx, DTYPE_FP32, message_elems(chunk),
                  device_stream(chunk->device));
}

enum status chunk_forward(struct chunk *chunk, int32_t slot_index, const struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];

    TRY(begin_slot(chunk, slot, io, true));
    TRY(run_layers(chunk, slot, io));
    if (!chunk->range.has_head) {
        return STATUS_OK;
    }
    return head_forward(chunk, slot, io);
}

enum status chunk_evaluate(struct chunk *chunk, int32_t slot_index, const struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];
    struct head head;
    const void *all = NULL;

    TRY(begin_slot(chunk, slot, io, false));
    TRY(run_layers(chunk, slot, io));
    if (!chunk->range.has_head) {
        return STATUS_OK;
    }
    TRY(final_norm(chunk, slot, io));
    TRY(own_rows_gather(&chunk->shape, &chunk->workspace->scratch, slot->final, &all));
    head = head_of(chunk, 0.0F);
    return head_evaluate(&head, all, io->targets, io->mask, io->loss_sum);
}

/* Where the gradient at the input of layer i goes: into the set, or out to the previous stage. */
static void *layer_dinput(const struct chunk_gradients *set, const struct chunk_io *io,
                          int32_t layer)
{
    return set->inputs[layer] != NULL ? set->inputs[layer] : io->dinput;
}

/* The gradient at the output of layer i: what the layer above left, or the chunk's own dY. */
static const void *layer_doutput(const struct chunk *chunk, const struct chunk_gradients *set,
                                 const struct chunk_io *io, int32_t layer)
{
    if (layer + 1 < chunk->range.layers) {
        return set->inputs[layer + 1];
    }
    return chunk->range.has_head ? set->output : io->doutput;
}

/* From dX of the head, which lies where the norm's output was; a norm reads its dY in fp32. */
static enum status final_norm_backward(struct chunk *chunk, const struct chunk_slot *slot,
                                       const struct chunk_gradients *set, const struct chunk_io *io)
{
    const struct kernel_ops *kernels = device_kernels(chunk->device);
    struct stream *stream = device_stream(chunk->device);
    enum dtype type = chunk->shape.type;
    void *dx = set->output != NULL ? set->output : io->dinput;
    float *dy = type == DTYPE_FP32 ? slot->final : chunk->workspace->scratch.hidden;

    TRY(kernels->convert(dy, DTYPE_FP32, slot->final, type, message_elems(chunk), stream));
    return kernels->layernorm_backward(dx, chunk->sums.ln_f_weight, chunk->sums.ln_f_bias, dy, NULL,
                                       backward_input(slot, set, chunk->range.layers),
                                       chunk->weights.ln_f_weight, slot->final_mean,
                                       slot->final_rstd, rows_of(chunk), chunk->shape.C,
                                       chunk->workspace->scratch.norm, type, stream);
}

enum status chunk_backward_input(struct chunk *chunk, int32_t slot_index, int32_t gradient,
                                 const struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];
    struct chunk_gradients *set = &chunk->gradients[gradient];

    model_shape_enter(&chunk->shape, slot->slice);
    TRY(recompute_layers(chunk, slot, set));
    if (chunk->range.has_head) {
        TRY(final_norm_backward(chunk, slot, set, io));
    }
    for (int32_t i = chunk->range.layers - 1; i >= 0; i--) {
        struct layer_stash stash = layer_stash_join(&slot->layers[i], &set->again[i]);
        struct layer layer = layer_of(chunk, slot, i);

        TRY(ask_for(chunk, i));
        TRY(layer_backward_input(&layer, &stash, &set->layers[i], backward_input(slot, set, i),
                                 layer_doutput(chunk, set, io, i), layer_dinput(set, io, i)));
    }
    return is_empty(chunk) ? hand_on(chunk, io->dinput, io->doutput) : STATUS_OK;
}

/* The gradient of the embedding's output: below the layers, or, without layers, the chunk's dY. */
static const void *embedding_doutput(const struct chunk *chunk, const struct chunk_gradients *set,
                                     const struct chunk_io *io)
{
    if (chunk->range.layers > 0) {
        return set->inputs[0];
    }
    return chunk->range.has_head ? set->output : io->doutput;
}

static enum status embedding_backward(struct chunk *chunk, const struct chunk_slot *slot,
                                      const void *dy)
{
    const struct kernel_ops *kernels = device_kernels(chunk->device);
    struct stream *stream = device_stream(chunk->device);
    const struct model_shape *shape = &chunk->shape;
    struct embedding_shape embedding = embedding_shape_of(shape);
    struct dropout dropout = masks_at(&slot->masks, shape, SITE_DROPOUT_EMBEDDING, 0);
    const void *all = NULL;

    if (slot->masks.drop) {
        void *dropped = chunk->workspace->scratch.dropped;

        TRY(kernels->dropout_backward(dropped, dy, rows_of(chunk), shape->C, &dropout, shape->type,
                                      stream));
        dy = dropped;
    }
    TRY(own_rows_gather(shape, &chunk->workspace->scratch, dy, &all));
    return kernels->embedding_backward(
        chunk->sums.wte, dtype_at(chunk->sums.wpe, DTYPE_FP32, shape->first * shape->C),
        chunk->sums.wtt, all, slot->tokens, slot->types, &embedding, shape->type, stream);
}

enum status chunk_backward_weight(struct chunk *chunk, int32_t slot_index, int32_t gradient,
                                  const struct chunk_io *io)
{
    struct chunk_slot *slot = &chunk->slots[slot_index];
    struct chunk_gradients *set = &chunk->gradients[gradient];

    model_shape_enter(&chunk->shape, slot->slice);
    for (int32_t i = chunk->range.layers - 1; i >= 0; i--) {
        struct layer_stash stash = layer_stash_join(&slot->layers[i], &set->again[i]);
        struct layer layer = layer_of(chunk, slot, i);
        const struct chunk_hook *hook = io->hook;

        TRY(hook != NULL ? hook->begin(hook->context, layer.number, i) : STATUS_OK);
        TRY(layer_backward_weight(&layer, &stash, &set->layers[i],
                                  layer_doutput(chunk, set, io, i)));
        TRY(hook != NULL ? hook->end(hook->context, layer.number, i) : STATUS_OK);
    }
    return chunk->range.has_embedding
               ? embedding_backward(chunk, slot, embedding_doutput(chunk, set, io))
               : STATUS_OK;
}
