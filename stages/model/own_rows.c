#include "stages/model/own_rows.h"

#include <string.h>

#include "base/check.h"

enum status own_rows_gather(const struct model_shape *shape, const struct layer_scratch *scratch,
                            const void *own, const void **all_out)
{
    size_t elems = model_own_rows(shape) * shape->C;

    if (!shape->splits_rows) {
        *all_out = own;
        return STATUS_OK;
    }
    memcpy(dtype_at(scratch->gathered, shape->type, shape->shard * elems), own,
           elems * dtype_bytes(shape->type));
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

/* The tensors from `first` that fit into `room` floats one behind the other, into `packed` or back
 * from there; *elems_out is what they have. Returns the one behind the last. */
static int32_t copy_some(const struct params *params, int32_t first, float *packed, size_t room,
                         bool back, size_t *elems_out)
{
    size_t used = 0;
    int32_t i = first;

    for (; i < params->count; i++) {
        const struct param *param = &params->table[i];
        size_t bytes = param->elems * sizeof(float);

        if (!param->by_rows) {
            continue;
        }
        if (param->elems > room - used) {
            break;
        }
        if (back) {
            memcpy(param->grad, packed + used, bytes);
        } else {
            memcpy(packed + used, param->grad, bytes);
        }
        used += param->elems;
    }
    *elems_out = used;
    return i;
}

/* The sums over the shards of as many tensors from *first on as fit; *first moves behind them. */
static enum status reduce_some(const struct model_shape *shape, const struct layer_scratch *scratch,
                               const struct params *params, int32_t *first)
{
    size_t room = model_rows(shape) * shape->C;
    size_t elems = 0;
    int32_t end = copy_some(params, *first, scratch->hidden, room, false, &elems);

    ENSURE(end > *first, "%s has %zu elements, room is for %zu", params->table[*first].name,
           params->table[*first].elems, room);
    if (elems > 0) {
        TRY(tensor_parallel_sum(scratch->tp, scratch->hidden, elems));
    }
    (void)copy_some(params, *first, scratch->hidden, room, true, &elems);
    *first = end;
    return STATUS_OK;
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
