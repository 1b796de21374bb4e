#include "stages/model/gathered.h"

#include <stdlib.h>

#include "base/check.h"

/* The same calls measure and then place, see arena.h. All layers of a model are alike, so any that is here
 * says how large they are. */
static void carve(struct gathered *gathered, const struct param *layer)
{
    for (int place = 0; place < GATHERED_PLACES && layer != NULL; place++) {
        for (int i = 0; i < LAYER_TENSORS; i++) {
            const struct param *param = &layer[i];

            if (param->scattered) {
                gathered->whole[place][i] =
                    arena_take(&gathered->arena, param->elems, dtype_bytes(param->type));
            }
        }
    }
}

void gathered_measure(struct gathered *gathered, const struct params *params,
                      const struct model_shape *shape)
{
    const struct param *layer = parameters_any_layer(params, shape->L);

    arena_measure(&gathered->arena, "gathered layers");
    carve(gathered, layer);
    gathered->layer_bytes = 0;
    for (int i = 0; i < LAYER_TENSORS && layer != NULL; i++) {
        gathered->layer_bytes +=
            layer[i].scattered ? layer[i].elems * dtype_bytes(layer[i].type) : 0;
    }
}

bool gathered_any(const struct gathered *gathered)
{
    return gathered->layer_bytes > 0;
}

enum status gathered_prepare(struct gathered *gathered, const struct params *params,
                             const struct model_shape *shape)
{
    gathered_close(gathered);
    if (!gathered_any(gathered)) {
        return STATUS_OK;
    }
    gathered->table = params->table;
    gathered->layers = calloc(shape->L, sizeof(*gathered->layers));
    if (gathered->layers == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "places of %zu layers", shape->L);
    }
    parameters_index_layers(params, shape->L, gathered->layers);
    if (gathered->arena.memory == NULL) {
        arena_put_on(&gathered->arena, gathered->device, DEVICE_TENSORS);
        TRY(arena_allocate(&gathered->arena, true));
    }
    carve(gathered, parameters_any_layer(params, shape->L));
    return STATUS_OK;
}

void gathered_point(const struct gathered *gathered, struct chunk_tensors *weights,
                    const struct chunk_range *range)
{
    for (int32_t i = 0; i < range->layers; i++) {
        for (int entry = 0; entry < LAYER_TENSORS; entry++) {
            void *whole = gathered->whole[i % GATHERED_PLACES][entry];

            if (whole != NULL) {
                layer_tensors_put(&weights->layers[i], entry, whole);
            }
        }
    }
}

void gathered_open(struct gathered *gathered, bool counts)
{
    gathered->open = true;
    gathered->counts = counts;
}

void gathered_close(struct gathered *gathered)
{
    gathered->open = false;
    for (int place = 0; place < GATHERED_PLACES; place++) {
        gathered->held[place] = -1;
    }
}

/* The slice of one replica to `to`. It lies at the same place of the shared block of each. */
static enum status read_slice(const struct gathered *gathered, const struct param *param,
                              int32_t replica, void *to, size_t bytes)
{
    size_t offset =
        (size_t)((const char *)param->weight - (const char *)comm_shared(gathered->comm));

    if (replica == gathered->index) {
        return device_copy(gathered->device, to, param->weight, bytes);
    }
    return bytes > 0 ? comm_read(gathered->comm, gathered->ranks[replica], offset, to, bytes)
                     : STATUS_OK;
}

/* In dp order. */
static enum status gather_tensor(const struct gathered *gathered, const struct param *param,
                                 void *whole)
{
    for (int32_t replica = 0; replica < gathered->replicas; replica++) {
        size_t first = 0;
        size_t elems = 0;

        comm_slice(param->elems, gathered->replicas, replica, &first, &elems);
        TRY(read_slice(gathered, param, replica, dtype_at(whole, param->type, first),
                       elems * dtype_bytes(param->type)));
    }
    return STATUS_OK;
}

static enum status gather_tensors(const struct gathered *gathered, const struct param *layer,
                                  void *const *whole)
{
    for (int i = 0; i < LAYER_TENSORS; i++) {
        TRY(layer[i].scattered ? gather_tensor(gathered, &layer[i], whole[i]) : STATUS_OK);
    }
    return STATUS_OK;
}

/* Each replica puts its slice into its place of the whole, and all get all. */
static enum status gather_together(struct gathered *gathered, const struct param *layer,
                                   void *const *whole)
{
    struct comm_piece pieces[LAYER_TENSORS];
    int32_t count = 0;

    for (int i = 0; i < LAYER_TENSORS; i++) {
        const struct param *param = &layer[i];

        if (!param->scattered) {
            continue;
        }
        TRY(device_copy(gathered->device, dtype_at(whole[i], param->type, param->own_first),
                        param->weight, param->own_elems * dtype_bytes(param->type)));
        pieces[count++] = (struct comm_piece){
            .data = whole[i], .elems = param->elems, .elem_bytes = dtype_bytes(param->type)};
    }
    gathered->in_group += gathered->layer_bytes;
    return comm_all_gather_pieces(gathered->group, pieces, count, gathered->cancel,
                                  gathered->deadline_ns);
}

enum status gathered_layer(struct gathered *gathered, int32_t number, int32_t place)
{
    int32_t first = gathered->layers[number];

    ENSURE(gathered->open && first >= 0, "layer %d is asked for %s", number,
           first < 0 ? "on another rank" : "without a GATHER");
    if (gathered->held[place] == number) {
        return STATUS_OK;
    }
    gathered->held[place] = -1;
    TRY(comm_reads(gathered->comm)
            ? gather_tensors(gathered, &gathered->table[first], gathered->whole[place])
            : gather_together(gathered, &gathered->table[first], gathered->whole[place]));
    gathered->held[place] = number;
    gathered->bytes += gathered->counts ? gathered->layer_bytes : 0;
    return STATUS_OK;
}

int32_t gathered_count(int32_t layers, bool again)
{
    int32_t left = layers < GATHERED_PLACES ? layers : GATHERED_PLACES;

    return again ? 2 * layers - left : layers;
}

void gathered_release(struct gathered *gathered)
{
    free(gathered->layers);
    gathered->layers = NULL;
    arena_release(&gathered->arena);
}
