#include "stages/replicas.h"

#include <stdlib.h>

#include "collectives/control.h"

struct replicas replicas_of(const struct config *config, int32_t index)
{
    return (struct replicas){.size = (int32_t)config->parallel.dp,
                             .index = index,
                             .shares_out = config->parallel.zero_stage > 0,
                             .scatters = config->parallel.zero_stage == 3,
                             .scatters_gradients = config->parallel.zero_stage >= 2 &&
                                                   config->train.num_microbatches == 1 &&
                                                   config->parallel.sequence_slices <= 1};
}

void replicas_slice(const struct replicas *replicas, const struct model_shape *shape,
                    struct params *params, struct head_memory *head)
{
    struct param *wte = params_find(params, "wte.weight");
    size_t first = 0;
    size_t elems = 0;

    if (shape->tied) {
        comm_slice(shape->vocab * shape->C, replicas->size, replicas->index, &first, &elems);
        head->own_first = first;
        head->own_elems = elems;
        if (wte != NULL && replicas->size > 1) {
            param_slice(wte, first, elems);
        }
    }
    if (replicas->shares_out) {
        params_shard(params, replicas->size, replicas->index);
    }
    if (replicas->scatters) {
        params_scatter(params, replicas->size);
    }
    if (replicas->scatters_gradients) {
        params_scatter_gradients(params, replicas->size);
    }
}

static struct comm_piece piece_of(void *data, size_t elems, enum dtype type)
{
    return (struct comm_piece){.data = data, .elems = elems, .elem_bytes = dtype_bytes(type)};
}

enum status replicas_prepare(struct replicas *replicas, const struct params *params,
                             const struct head_memory *head)
{
    /* Both lists have every parameter at most, and the sums the head's gradient. */
    size_t most = 2 * (size_t)params->count + 1;

    if (replicas->size == 1) {
        return STATUS_OK;
    }
    replicas->sums = calloc(most, sizeof(*replicas->sums));
    if (replicas->sums == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "lists of %d tensors over the replicas",
                           params->count);
    }
    replicas->weights = replicas->sums + params->count + 1;
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];

        if (param->sliced && !(replicas->by_layer && param->in_w)) {
            replicas->sums[replicas->sum_count++] = piece_of(param->grad, param->elems, DTYPE_FP32);
        }
        if (param->sliced && !param->scattered) {
            replicas->weights[replicas->weight_count++] =
                piece_of(param->weight, param->elems, param->type);
        }
    }
    /* Of a head without its embedding SYNC takes care. */
    if (head->elems > 0 && head->copy == NULL) {
        replicas->sums[replicas->sum_count++] = piece_of(head->gradient, head->elems, DTYPE_FP32);
    }
    return STATUS_OK;
}

static enum status scatter(const struct replicas *replicas, const struct comm_piece *pieces,
                           int32_t count, int64_t deadline_ns)
{
    if (replicas->group == NULL || count == 0) {
        return STATUS_OK;
    }
    control_waits(replicas->control, true);
    TRY(comm_reduce_scatter_pieces(replicas->group, pieces, count, replicas->cancel, deadline_ns));
    control_waits(replicas->control, false);
    return STATUS_OK;
}

static enum status gather(const struct replicas *replicas, const struct comm_piece *pieces,
                          int32_t count, int64_t deadline_ns)
{
    if (replicas->group == NULL || count == 0) {
        return STATUS_OK;
    }
    control_waits(replicas->control, true);
    TRY(comm_all_gather_pieces(replicas->group, pieces, count, replicas->cancel, deadline_ns));
    control_waits(replicas->control, false);
    return STATUS_OK;
}

static enum status sum(const struct replicas *replicas, float *gradients, size_t elems,
                       int64_t deadline_ns)
{
    control_waits(replicas->control, true);
    TRY(comm_all_reduce(replicas->group, gradients, elems, COMM_SUM, replicas->cancel,
                        deadline_ns));
    control_waits(replicas->control, false);
    return STATUS_OK;
}

/* What is summed as it lies: `elems` gradients from here on. */
static float *whole_gradients(const struct replicas *replicas, const struct params *params,
                              size_t *elems)
{
    const struct param *first = params->table;
    float *gradients = (float *)(void *)params->gradients.memory;

    *elems = params->gradients.planned_bytes / sizeof(float);
    if (params->count == 0 || replicas->shares_out) {
        *elems = 0;
    } else if (first->sliced) {
        /* The tied embedding comes first in the table; a position table follows it. */
        size_t tied = (size_t)(first[1].grad - gradients);

        gradients += tied;
        *elems -= tied;
    }
    return gradients;
}

enum status replicas_reduce(const struct replicas *replicas, const struct params *params,
                            int64_t deadline_ns)
{
    size_t elems = 0;
    float *gradients = whole_gradients(replicas, params, &elems);

    TRY(scatter(replicas, replicas->sums, replicas->sum_count, deadline_ns));
    return replicas->group == NULL || elems == 0 ? STATUS_OK
                                                 : sum(replicas, gradients, elems, deadline_ns);
}

size_t replicas_reduced(const struct replicas *replicas, const struct params *params)
{
    size_t elems = 0;

    (void)whole_gradients(replicas, params, &elems);
    for (int32_t i = 0; i < replicas->sum_count; i++) {
        elems += replicas->sums[i].elems;
    }
    return replicas->size > 1 ? elems * sizeof(float) : 0;
}

enum status replicas_gather(const struct replicas *replicas, int64_t deadline_ns)
{
    return gather(replicas, replicas->weights, replicas->weight_count, deadline_ns);
}

enum status replicas_reduce_tied(const struct replicas *replicas, float *gradient, size_t elems,
                                 int64_t deadline_ns)
{
    const struct comm_piece piece = piece_of(gradient, elems, DTYPE_FP32);

    return scatter(replicas, &piece, elems > 0 ? 1 : 0, deadline_ns);
}

enum status replicas_gather_tied(const struct replicas *replicas, void *weights, enum dtype type,
                                 size_t elems, int64_t deadline_ns)
{
    const struct comm_piece piece = piece_of(weights, elems, type);

    return gather(replicas, &piece, elems > 0 ? 1 : 0, deadline_ns);
}

void replicas_release(struct replicas *replicas)
{
    free(replicas->sums);
    replicas->sums = NULL;
    replicas->weights = NULL;
    replicas->sum_count = 0;
    replicas->weight_count = 0;
}
