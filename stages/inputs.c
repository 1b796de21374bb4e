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

void inputs_measure(struct inputs *inputs, const struct loader_config *loader, bool copies)
{
    *inputs = (struct inputs){
        .elems =
            (size_t)(loader->microbatches * loader->sampler.micro_batch_size * loader->positions),
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

/* What the loader does not give (as of a step without targets) is left alone. */
static enum status bring_tokens(const struct inputs *inputs, struct device *device,
                                struct loader_batch *batch)
{
    if (batch->tokens != NULL && inputs->tokens != NULL) {
        TRY(device_copy(device, inputs->tokens, batch->tokens,
                        inputs->elems * sizeof(*inputs->tokens)));
        batch->tokens = inputs->tokens;
    }
    if (batch->types != NULL && inputs->types != NULL) {
        TRY(device_copy(device, inputs->types, batch->types,
                        inputs->elems * sizeof(*inputs->types)));
        batch->types = inputs->types;
    }
    return STATUS_OK;
}

enum status inputs_bring(const struct inputs *inputs, struct device *device,
                         struct loader_batch *batch)
{
    TRY(bring_tokens(inputs, device, batch));
    if (batch->targets == NULL || inputs->targets == NULL) {
        return STATUS_OK;
    }
    TRY(device_copy(device, inputs->targets, batch->targets,
                    inputs->elems * sizeof(*inputs->targets)));
    TRY(device_copy(device, inputs->mask, batch->mask, inputs->elems * sizeof(*inputs->mask)));
    batch->targets = inputs->targets;
    batch->mask = inputs->mask;
    return STATUS_OK;
}

void inputs_release(struct inputs *inputs)
{
    arena_release(&inputs->arena);
    *inputs = (struct inputs){.elems = 0};
}
