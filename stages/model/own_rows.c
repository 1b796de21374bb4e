#include "stages/model/own_rows.h"

#include "base/check.h"

enum status own_rows_gather(const struct model_shape *shape, const struct layer_scratch *scratch,
                            const void *own, const void **all_out)
{
    size_t elems = model_own_rows(shape) * shape->C;

    if (!shape->splits_rows) {
        *all_out = own;
        return STATUS_OK;
    }
    TRY(device_copy(scratch->device, dtype_at(scratch->gathered, shape->type, shape->shard * elems),
                    own, elems * dtype_bytes(shape->type)));
    TRY(tensor_parallel_share(scratch->tp, scratch->gathered, shape->shards * elems, shape->type));
    *all_out = scratch->gathered;
    return STATUS_OK;
}

enum status own_rows_sum(const struct model_shape *shape, const struct layer_scratch *scratch,
                         float *partial, float **own_out)
{
    size_t elems = model_rows(shape) * shape->C;

    *own_out = partial + model_first_row(shape) * shape->C;
    return shape->splits_rows ? tensor_parallel_scatter(scratch->tp, partial, elems)
                              : tensor_parallel_sum(scratch->tp, partial, elems);
}

size_t own_rows_reduced(const struct params *params)
{
    size_t elems = 0;

    for (int32_t i = 0; i < params->count; i++) {
        elems += params->table[i].by_rows ? params->table[i].elems : 0;
    }
    return elems;
}

/* Gradients on their way into the sum over the shards, and back. */
struct packed {
    struct device *device;
    float *floats;
    size_t room;
    size_t used;
};

/* The tensors from *next on that fit, one behind the other, into the room or `back` from there; *next
 * moves behind them. */
static enum status copy_some(struct packed *packed, const struct params *params, bool back,
                             int32_t *next)
{
    int32_t i = *next;

    packed->used = 0;
    for (; i < params->count; i++) {
        const struct param *param = &params->table[i];
        size_t bytes = param->elems * sizeof(float);

        if (!param->by_rows) {
            continue;
        }
        if (param->elems > packed->room - packed->used) {
            break;
        }
        TRY(back ? device_copy(packed->device, param->grad, packed->floats + packed->used, bytes)
                 : device_copy(packed->device, packed->floats + packed->used, param->grad, bytes));
        packed->used += param->elems;
    }
    *next = i;
    return STATUS_OK;
}

/* The sums over the shards of as many tensors from *first on as fit; *first moves behind them. */
static enum status reduce_some(const struct model_shape *shape, const struct layer_scratch *scratch,
                               const struct params *params, int32_t *first)
{
    struct packed packed = {
        .device = scratch->device, .floats = scratch->hidden, .room = model_rows(shape) * shape->C};
    int32_t end = *first;

    TRY(copy_some(&packed, params, false, &end));
    ENSURE(end > *first, "%s has %zu elements, room is for %zu", params->table[*first].name,
           params->table[*first].elems, packed.room);
    if (packed.used > 0) {
        TRY(tensor_parallel_sum(scratch->tp, scratch->hidden, packed.used));
    }
    return copy_some(&packed, params, true, first);
}

enum status own_rows_reduce(const struct model_shape *shape, const struct layer_scratch *scratch,
                            const struct params *params)
{
    int32_t first = 0;

    while (shape->splits_rows && first < params->count) {
        TRY(reduce_some(shape, scratch, params, &first));
    }
    return STATUS_OK;
}
