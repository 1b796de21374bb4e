/* chunk_memory -- the buffers of a chunk: planned, placed, released. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "stages/model/chunk.h"

/* Whether somebody of this chunk reads the output of layer i: the layer above, or the head. */
static bool keeps_output(const struct chunk_range *range, int32_t layer)
{
    return layer + 1 < range->layers || range->has_head;
}

static void carve_slot(struct chunk *chunk, struct chunk_slot *slot)
{
    const struct model_shape *shape = &chunk->shape;
    const struct chunk_range *range = &chunk->range;
    size_t n = model_own_rows(shape);

    /* With nothing above it in this chunk, the embedding goes straight to the out buffer. */
    if (range->has_embedding && (range->layers > 0 || range->has_head)) {
        slot->embedded = model_take(shape, &chunk->stash, n * shape->C);
    }
    for (int32_t i = 0; i < range->layers; i++) {
        layer_stash_carve_kept(&slot->layers[i], shape, range->recompute, &chunk->stash);
        if (keeps_output(range, i) && range->recompute != RECOMPUTE_FULL) {
            slot->outputs[i] = model_take(shape, &chunk->stash, n * shape->C);
        }
    }
    if (range->has_head) {
        slot->final = model_take(shape, &chunk->stash, n * shape->C);
        slot->final_mean = arena_take_floats(&chunk->stash, n);
        slot->final_rstd = arena_take_floats(&chunk->stash, n);
    }
}

static void carve_gradients(struct chunk *chunk, struct chunk_gradients *set)
{
    const struct model_shape *shape = &chunk->shape;
    const struct chunk_range *range = &chunk->range;
    size_t n = model_own_rows(shape);

    for (int32_t i = 0; i < range->layers; i++) {
        layer_gradients_carve(&set->layers[i], shape, &chunk->kept);
        if (i > 0 || range->has_embedding) {
            set->inputs[i] = model_take(shape, &chunk->kept, n * shape->C);
        }
        layer_stash_carve_again(&set->again[i], shape, range->recompute, &chunk->again);
        if (keeps_output(range, i) && range->recompute == RECOMPUTE_FULL) {
            set->outputs[i] = model_take(shape, &chunk->again, n * shape->C);
        }
    }
    /* Without layers below, the final norm's gradient is what the previous stage gets. */
    if (range->has_head && (range->layers > 0 || range->has_embedding)) {
        set->output = model_take(shape, &chunk->kept, n * shape->C);
    }
}

/* dK and dV are of one micro-batch at a time, so all share them. */
static void carve_keys(struct chunk *chunk)
{
    size_t layers = (size_t)chunk->range.layers;

    for (size_t i = 0; i < layers * (size_t)chunk->sequences; i++) {
        layer_keys_carve(&chunk->keys[i], &chunk->shape, &chunk->sequence_keys);
        if (i < layers) {
            layer_key_sums_carve(&chunk->keys[i], &chunk->shape, &chunk->key_sums);
        }
        chunk->keys[i].dkeys = chunk->keys[i % layers].dkeys;
    }
}

static void carve(struct chunk *chunk)
{
    for (int32_t i = 0; i < chunk->slot_count; i++) {
        carve_slot(chunk, &chunk->slots[i]);
    }
    for (int32_t i = 0; i < chunk->gradient_count; i++) {
        carve_gradients(chunk, &chunk->gradients[i]);
    }
    carve_keys(chunk);
}

static enum status allocate_tables(struct chunk *chunk)
{
    size_t layers = chunk->range.layers > 0 ? (size_t)chunk->range.layers : 1;

    chunk->slots = calloc((size_t)chunk->slot_count, sizeof(*chunk->slots));
    chunk->gradients = calloc((size_t)chunk->gradient_count, sizeof(*chunk->gradients));
    if (chunk->slots == NULL || chunk->gradients == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "tables of %d slots", chunk->slot_count);
    }
    if (chunk->sequences > 0) {
        chunk->keys = calloc((size_t)chunk->sequences * layers, sizeof(*chunk->keys));
        if (chunk->keys == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "keys of %zu layers", layers);
        }
    }
    for (int32_t i = 0; i < chunk->slot_count; i++) {
        struct chunk_slot *slot = &chunk->slots[i];

        slot->layers = calloc(layers, sizeof(*slot->layers));
        slot->outputs = calloc(layers, sizeof(*slot->outputs));
        if (slot->layers == NULL || slot->outputs == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "slot of %zu layers", layers);
        }
    }
    for (int32_t i = 0; i < chunk->gradient_count; i++) {
        struct chunk_gradients *set = &chunk->gradients[i];

        set->layers = calloc(layers, sizeof(*set->layers));
        set->inputs = calloc(layers, sizeof(*set->inputs));
        set->again = calloc(layers, sizeof(*set->again));
        set->outputs = calloc(layers, sizeof(*set->outputs));
        if (set->layers == NULL || set->inputs == NULL || set->again == NULL ||
            set->outputs == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "gradient set of %zu layers", layers);
        }
    }
    return STATUS_OK;
}

enum status chunk_init(struct chunk *chunk, const struct model_shape *shape,
                       const struct chunk_range *range, int32_t slots, int32_t gradients,
                       int32_t sequences, struct workspace *workspace, struct device *device)
{
    enum status status = STATUS_OK;

    ENSURE(slots >= 1 && gradients >= 1, "a chunk needs a slot and a gradient set, got %d and %d",
           slots, gradients);
    ENSURE((sequences > 0) == (shape->slices.count > 1), "keys of %d sequences in %zu slices",
           sequences, shape->slices.count);
    memset(chunk, 0, sizeof(*chunk));
    chunk->shape = *shape;
    chunk->range = *range;
    chunk->slot_count = slots;
    chunk->gradient_count = gradients;
    chunk->sequences = sequences;
    chunk->workspace = workspace;
    chunk->device = device;
    status = allocate_tables(chunk);
    if (status < 0) {
        chunk_release(chunk);
        return status;
    }
    arena_measure(&chunk->stash, "stashes");
    arena_measure(&chunk->kept, "dY");
    arena_measure(&chunk->again, "recomputed");
    arena_measure(&chunk->sequence_keys, "keys and values");
    arena_measure(&chunk->key_sums, "dK and dV");
    carve(chunk);
    return STATUS_OK;
}

enum status chunk_allocate(struct chunk *chunk)
{
    struct arena *arenas[] = {&chunk->stash, &chunk->kept, &chunk->again, &chunk->sequence_keys,
                              &chunk->key_sums};

    for (size_t i = 0; i < sizeof(arenas) / sizeof(arenas[0]); i++) {
        arena_put_on(arenas[i], chunk->device, DEVICE_TENSORS);
        TRY(arena_allocate(arenas[i], true));
    }
    carve(chunk);
    return STATUS_OK;
}

void chunk_release(struct chunk *chunk)
{
    for (int32_t i = 0; i < chunk->slot_count && chunk->slots != NULL; i++) {
        free(chunk->slots[i].layers);
        free(chunk->slots[i].outputs);
    }
    for (int32_t i = 0; i < chunk->gradient_count && chunk->gradients != NULL; i++) {
        free(chunk->gradients[i].layers);
        free(chunk->gradients[i].inputs);
        free(chunk->gradients[i].again);
        free(chunk->gradients[i].outputs);
    }
    free(chunk->slots);
    free(chunk->gradients);
    free(chunk->keys);
    chunk_tensors_release(&chunk->weights);
    chunk_tensors_release(&chunk->sums);
    arena_release(&chunk->stash);
    arena_release(&chunk->kept);
    arena_release(&chunk->again);
    arena_release(&chunk->sequence_keys);
    arena_release(&chunk->key_sums);
    memset(chunk, 0, sizeof(*chunk));
}
