#include "stages/buckets.h"

#include <stdlib.h>

#include "base/clock.h"
#include "collectives/control.h"

bool buckets_any(const struct buckets *buckets)
{
    return buckets->scattered || buckets->overlaps;
}

bool buckets_save(struct buckets *buckets, int32_t layers, int32_t chunk_layers, int32_t replicas)
{
    int32_t most = buckets->overlaps ? BUCKETS_MOST : 1;

    buckets->count = chunk_layers < most ? chunk_layers : most;
    return (int64_t)buckets->count * replicas < (int64_t)layers * (replicas - 1);
}

/* The same calls measure and then place, see arena.h. All layers of a model are alike. */
static void carve(struct buckets *buckets, const struct param *layer)
{
    for (int place = 0; place < buckets->count && layer != NULL; place++) {
        for (int i = 0; i < LAYER_TENSORS; i++) {
            if (layer[i].own_grad) {
                buckets->whole[place][i] = arena_take_floats(&buckets->arena, layer[i].elems);
            }
        }
    }
}

void buckets_measure(struct buckets *buckets, const struct params *params,
                     const struct model_shape *shape)
{
    arena_measure(&buckets->arena, "gradient buckets");
    carve(buckets, parameters_any_layer(params, shape->L));
    buckets->scattered = buckets->arena.planned_bytes > 0;
}

/* Where W of the layer leaves tensor i, whole. */
static float *whole_of(const struct buckets *buckets, const struct param *layer, int i, int place)
{
    return layer[i].own_grad ? buckets->whole[place][i] : layer[i].grad;
}

/* Of tensor i the own slice, out of the bucket. */
static enum status keep_tensor(const struct buckets *buckets, const struct param *param, int i,
                               int place)
{
    return param->own_grad ? device_copy(buckets->device, param->grad,
                                         buckets->whole[place][i] + param->own_first,
                                         param->own_elems * sizeof(float))
                           : STATUS_OK;
}

static enum status keep_own(const struct buckets *buckets, const struct param *layer, int place)
{
    for (int i = 0; i < LAYER_TENSORS; i++) {
        TRY(keep_tensor(buckets, &layer[i], i, place));
    }
    return STATUS_OK;
}

/* The first tensor of layer `number` in the table. */
static const struct param *layer_at(const struct buckets *buckets, int32_t number)
{
    return &buckets->params->table[buckets->layers[number]];
}

/* Queued: the sums of the layer that is in the bucket have ended, and its own slice is where it belongs. */
static enum status empty_bucket(struct buckets *buckets, int place)
{
    const int32_t number = buckets->held[place];

    if (!buckets->queued || number < 0) {
        return STATUS_OK;
    }
    TRY(comm_group_join(buckets->group, buckets->calls[place]));
    buckets->held[place] = -1;
    return keep_own(buckets, layer_at(buckets, number), place);
}

/* On the thread, or without one on the owner's. */
static enum status sum_layer(struct buckets *buckets, int32_t number, int place)
{
    struct bucket_sum *sum = &buckets->sums[buckets->sum_count];
    const struct param *layer = layer_at(buckets, number);
    struct comm_piece pieces[LAYER_TENSORS];
    int32_t count = 0;

    *sum = (struct bucket_sum){.begin_ns = clock_now_ns()};
    for (int i = 0; i < LAYER_TENSORS; i++) {
        if (layer[i].in_w && layer[i].sliced) {
            pieces[count++] = (struct comm_piece){.data = whole_of(buckets, layer, i, place),
                                                  .elems = layer[i].elems,
                                                  .elem_bytes = sizeof(float)};
            sum->bytes += layer[i].elems * sizeof(float);
        }
    }
    TRY(comm_reduce_scatter_pieces(buckets->group, pieces, count, buckets->cancel,
                                   buckets->deadline_ns));
    TRY(buckets->queued ? STATUS_OK : keep_own(buckets, layer, place));
    sum->end_ns = clock_now_ns();
    buckets->sum_count++;
    return STATUS_OK;
}

/* An item is a layer's number and its bucket. */
static enum status sum_item(void *context, int32_t item)
{
    return sum_layer(context, item / BUCKETS_MOST, item % BUCKETS_MOST);
}

/* As all waits of the owner thread it retries pending sends. */
static enum status wait_for(struct buckets *buckets, int64_t given)
{
    enum status status = STATUS_IN_PROGRESS;

    if (buckets->thread == NULL || given == 0) {
        return STATUS_OK;
    }
    control_waits(buckets->control, true);
    while (status == STATUS_IN_PROGRESS) {
        enum status going = cancel_check(buckets->cancel, buckets->deadline_ns);

        if (going < 0) {
            return status_note(going,
                               "waiting for the sums of a layer's gradients over the replicas: %s",
                               status_text(going));
        }
        (void)comm_progress(buckets->comm);
        status = reduce_thread_wait(buckets->thread, given, CLOCK_MS);
    }
    control_waits(buckets->control, false);
    return status;
}

static enum status clear_tensor(const struct buckets *buckets, const struct param *param, int i,
                                int place)
{
    return param->own_grad ? device_zero(buckets->device, buckets->whole[place][i],
                                         param->elems * sizeof(float))
                           : STATUS_OK;
}

/* Before W of the layer: its bucket is free, and zero, as W adds to it. */
static enum status begin_layer(void *context, int32_t number, int32_t layer)
{
    struct buckets *buckets = context;
    const struct param *tensors = layer_at(buckets, number);
    int place = 0;

    if (!buckets->scattered) {
        return STATUS_OK;
    }
    place = layer % buckets->count;
    TRY(wait_for(buckets, buckets->given[place]));
    TRY(empty_bucket(buckets, place));
    for (int i = 0; i < LAYER_TENSORS; i++) {
        TRY(clear_tensor(buckets, &tensors[i], i, place));
    }
    return STATUS_OK;
}

static enum status end_layer(void *context, int32_t number, int32_t layer)
{
    struct buckets *buckets = context;
    int place = buckets->scattered ? layer % buckets->count : 0;

    if (buckets->thread != NULL) {
        buckets->all_given = reduce_thread_give(buckets->thread, number * BUCKETS_MOST + place);
        buckets->given[place] = buckets->all_given;
        return STATUS_OK;
    }
    if (buckets->queued) {
        TRY(sum_layer(buckets, number, place));
        buckets->calls[place] = comm_group_calls(buckets->group);
        buckets->held[place] = number;
        buckets->all_given++;
        return STATUS_OK;
    }
    control_waits(buckets->control, true);
    TRY(sum_layer(buckets, number, place));
    control_waits(buckets->control, false);
    return STATUS_OK;
}

enum status buckets_prepare(struct buckets *buckets, const struct params *params,
                            const struct model_shape *shape)
{
    buckets->hook = (struct chunk_hook){.begin = begin_layer, .end = end_layer, .context = buckets};
    buckets->params = params;
    if (!buckets_any(buckets)) {
        return STATUS_OK;
    }
    buckets->layers = calloc(shape->L, sizeof(*buckets->layers));
    buckets->sums = calloc(shape->L, sizeof(*buckets->sums));
    if (buckets->layers == NULL || buckets->sums == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "places of %zu layers", shape->L);
    }
    parameters_index_layers(params, shape->L, buckets->layers);
    carve(buckets, parameters_any_layer(params, shape->L));
    for (int place = 0; place < BUCKETS_MOST; place++) {
        buckets->held[place] = -1;
    }
    buckets->queued = buckets->overlaps && !device_tensors_are_here(buckets->device);
    return buckets->overlaps && !buckets->queued
               ? reduce_thread_open(sum_item, buckets, (int32_t)shape->L, &buckets->thread)
               : STATUS_OK;
}

void buckets_point(const struct buckets *buckets, struct chunk_tensors *sums,
                   const struct chunk_range *range)
{
    for (int32_t i = 0; i < range->layers && buckets->scattered; i++) {
        for (int entry = 0; entry < LAYER_TENSORS; entry++) {
            float *whole = buckets->whole[i % buckets->count][entry];

            if (whole != NULL) {
                layer_tensors_put(&sums->layers[i], entry, whole);
            }
        }
    }
}

void buckets_begin(struct buckets *buckets, int64_t deadline_ns)
{
    buckets->deadline_ns = deadline_ns;
    buckets->sum_count = 0;
}

const struct chunk_hook *buckets_hook(const struct buckets *buckets)
{
    return buckets_any(buckets) ? &buckets->hook : NULL;
}

enum status buckets_finish(struct buckets *buckets)
{
    if (!buckets->queued) {
        return wait_for(buckets, buckets->all_given);
    }
    for (int place = 0; place < BUCKETS_MOST; place++) {
        TRY(empty_bucket(buckets, place));
    }
    return comm_group_join(buckets->group, comm_group_calls(buckets->group));
}

void buckets_release(struct buckets *buckets)
{
    reduce_thread_close(&buckets->thread);
    free(buckets->layers);
    buckets->layers = NULL;
    free(buckets->sums);
    buckets->sums = NULL;
    arena_release(&buckets->arena);
}
