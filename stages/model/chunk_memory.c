/* chunk_memory -- the buffers of a chunk: planned, placed, released. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "stages/model/chunk.h"

static void carve_slot(struct chunk *chunk, struct chunk_slot *slot)
{
    const struct model_shape *shape = &chunk->shape;
    const struct chunk_range *range = &chunk->range;
    size_t N = shape->B * shape->T;

    /* With nothing above it in this chunk, the embedding goes straight to the out buffer. */
    if (range->has_embedding && (range->layers > 0 || range->has_head)) {
        slot->embedded = arena_take_floats(&chunk->stash, N * shape->C);
    }
    for (int32_t i = 0; i < range->layers; i++) {
        layer_stash_carve(&slot->layers[i], shape, &chunk->stash);
        if (i + 1 < range->layers || range->has_head) {
            slot->outputs[i] = arena_take_floats(&chunk->stash, N * shape->C);
        }
    }
    if (range->has_head) {
        slot->final = arena_take_floats(&chunk->stash, N * shape->C);
        slot->final_mean = arena_take_floats(&chunk->stash, N);
        slot->final_rstd = arena_take_floats(&chunk->stash, N);
    }
}

static void carve_gradients(struct chunk *chunk, struct chunk_gradients *set)
{
    const struct model_shape *shape = &chunk->shape;
    const struct chunk_range *range = &chunk->range;
    size_t N = shape->B * shape->T;

    for (int32_t i = 0; i < range->layers; i++) {
        layer_gradients_carve(&set->layers[i], shape, &chunk->kept);
        if (i > 0 || range->has_embedding) {
            set->inputs[i] = arena_take_floats(&chunk->kept, N * shape->C);
        }
    }
    /* Without layers below, the final norm's gradient is what the previous stage gets. */
    if (range->has_head && (range->layers > 0 || range->has_embedding)) {
        set->output = arena_take_floats(&chunk->kept, N * shape->C);
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
}

static enum status allocate_tables(struct chunk *chunk)
{
    size_t layers = chunk->range.layers > 0 ? (size_t)chunk->range.layers : 1;

    chunk->slots = calloc((size_t)chunk->slot_count, sizeof(*chunk->slots));
    chunk->gradients = calloc((size_t)chunk->gradient_count, sizeof(*chunk->gradients));
    if (chunk->slots == NULL || chunk->gradients == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "tables of %d slots", chunk->slot_count);
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
        if (set->layers == NULL || set->inputs == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "gradient set of %zu layers", layers);
        }
    }
    return STATUS_OK;
}

enum status chunk_init(struct chunk *chunk, const struct model_shape *shape,
                       const struct chunk_range *range, int32_t slots, int32_t gradients,
                       struct workspace *workspace, struct device *device)
{
    enum status status = STATUS_OK;

    ENSURE(slots >= 1 && gradients >= 1, "a chunk needs a slot and a gradient set, got %d and %d",
           slots, gradients);
    memset(chunk, 0, sizeof(*chunk));
    chunk->shape = *shape;
    chunk->range = *range;
    chunk->slot_count = slots;
    chunk->gradient_count = gradients;
    chunk->workspace = workspace;
    chunk->device = device;
    status = allocate_tables(chunk);
    if (status < 0) {
        chunk_release(chunk);
        return status;
    }
    arena_measure(&chunk->stash, "stashes");
    arena_measure(&chunk->kept, "dY");
    carve(chunk);
    return STATUS_OK;
}

enum status chunk_allocate(struct chunk *chunk)
{
    TRY(arena_allocate(&chunk->stash, true));
    TRY(arena_allocate(&chunk->kept, true));
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
    }
    free(chunk->slots);
    free(chunk->gradients);
    chunk_tensors_release(&chunk->weights);
    chunk_tensors_release(&chunk->sums);
    arena_release(&chunk->stash);
    arena_release(&chunk->kept);
    memset(chunk, 0, sizeof(*chunk));
}
