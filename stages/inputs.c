#include "stages/inputs.h"

/* The same calls measure and then place, see arena.h. */
static void carve(struct inputs *inputs)
{
    if (inputs->wants_tokens) {
        inputs->tokens = arena_take(&inputs->arena, inputs->elems, sizeof(*inputs->tokens));
    }
    if (inputs->wants_types) {
        inputs->types = arena_take(&inputs->arena, inputs->elems, sizeof(*inputs->types));
    }
    if (inputs->wants_targets) {
        inputs->targets = arena_take(&inputs->arena, inputs->elems, sizeof(*inputs->targets));
        inputs->mask = arena_take_floats(&inputs->arena, inputs->elems);
    }
}

void inputs_measure(struct inputs *inputs, const struct loader_config *loader,
                    const struct slices *slices, bool copies)
{
    copies = copies || slices->count > 1;
    *inputs = (struct inputs){
        .elems =
            (size_t)(loader->microbatches * loader->sampler.micro_batch_size * loader->positions),
        .batch = (size_t)loader->sampler.micro_batch_size,
        .slices = *slices,
        .wants_tokens = copies && loader->wants_tokens,
        .wants_types = copies && loader->wants_types,
        .wants_targets = copies && loader->wants_targets,
    };
    arena_measure(&inputs->arena, "inputs");
    carve(inputs);
}

enum status inputs_allocate(struct inputs *inputs, struct device *device)
{
    if (inputs->arena.planned_bytes == 0) {
        return STATUS_OK;
    }
    arena_put_on(&inputs->arena, device, DEVICE_TENSORS);
    TRY(arena_allocate(&inputs->arena, true));
    carve(inputs);
    return STATUS_OK;
}

size_t inputs_rows(const struct inputs *inputs, int32_t piece)
{
    const struct slices *slices = &inputs->slices;
    size_t microbatch = (size_t)piece / slices->count;
    size_t T = slices->first[slices->count];

    return inputs->batch * (microbatch * T + slices->first[(size_t)piece % slices->count]);
}

/* What one piece has of each sequence: `elem_bytes` a token. */
static enum status bring_piece(const struct inputs *inputs, struct device *device, void *to,
                               const void *from, size_t elem_bytes, int32_t piece)
{
    const struct slices *slices = &inputs->slices;
    size_t slice = (size_t)piece % slices->count;
    size_t length = slices->first[slice + 1] - slices->first[slice];
    size_t T = slices->first[slices->count];
    size_t sequence = (size_t)piece / slices->count * inputs->batch;
    size_t rows = inputs_rows(inputs, piece);

    for (size_t b = 0; b < inputs->batch; b++) {
        TRY(device_copy(device, (unsigned char *)to + (rows + b * length) * elem_bytes,
                        (const unsigned char *)from +
                            ((sequence + b) * T + slices->first[slice]) * elem_bytes,
                        length * elem_bytes));
    }
    return STATUS_OK;
}

static enum status bring(const struct inputs *inputs, struct device *device, void *to,
                         const void *from, size_t elem_bytes)
{
    const struct slices *slices = &inputs->slices;
    size_t each = inputs->batch * slices->first[slices->count];

    if (slices->count == 1) {
        return device_copy(device, to, from, inputs->elems * elem_bytes);
    }
    for (size_t piece = 0; piece < inputs->elems / each * slices->count; piece++) {
        TRY(bring_piece(inputs, device, to, from, elem_bytes, (int32_t)piece));
    }
    return STATUS_OK;
}

/* Where *from is of the step and is copied, it becomes the copy. What the loader does not give (as of a step without
 * targets) is left alone. */
static enum status bring_tokens(const struct inputs *inputs, struct device *device, int32_t *copy,
                                const int32_t **from)
{
    if (copy == NULL || *from == NULL) {
        return STATUS_OK;
    }
    TRY(bring(inputs, device, copy, *from, sizeof(*copy)));
    *from = copy;
    return STATUS_OK;
}

enum status inputs_bring(const struct inputs *inputs, struct device *device,
                         struct loader_batch *batch)
{
    if (batch->targets != NULL && inputs->targets != NULL) {
        TRY(bring(inputs, device, inputs->mask, batch->mask, sizeof(*inputs->mask)));
        batch->mask = inputs->mask;
    }
    TRY(bring_tokens(inputs, device, inputs->tokens, &batch->tokens));
    TRY(bring_tokens(inputs, device, inputs->types, &batch->types));
    return bring_tokens(inputs, device, inputs->targets, &batch->targets);
}

void inputs_release(struct inputs *inputs)
{
    arena_release(&inputs->arena);
    *inputs = (struct inputs){.elems = 0};
}
