#include "stages/replicas.h"

#include "collectives/comm.h"
#include "collectives/control.h"

void replicas_slice(const struct replicas *replicas, const struct model_shape *shape,
                    struct params *params, struct head_memory *head)
{
    struct param *wte = params_find(params, "wte.weight");
    size_t first = 0;
    size_t elems = 0;

    if (!shape->tied) {
        return;
    }
    comm_slice(shape->vocab * shape->C, replicas->size, replicas->index, &first, &elems);
    head->own_first = first;
    head->own_elems = elems;
    if (wte != NULL && replicas->size > 1) {
        param_slice(wte, first, elems);
    }
}

enum status replicas_reduce_tied(const struct replicas *replicas, float *gradient, size_t elems,
                                 int64_t deadline_ns)
{
    if (replicas->group == NULL || elems == 0) {
        return STATUS_OK;
    }
    control_waits(replicas->control, true);
    TRY(comm_reduce_scatter(replicas->group, gradient, elems, replicas->cancel, deadline_ns));
    control_waits(replicas->control, false);
    return STATUS_OK;
}

enum status replicas_gather_tied(const struct replicas *replicas, float *weights, size_t elems,
                                 int64_t deadline_ns)
{
    if (replicas->group == NULL || elems == 0) {
        return STATUS_OK;
    }
    control_waits(replicas->control, true);
    TRY(comm_all_gather(replicas->group, weights, elems, replicas->cancel, deadline_ns));
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

enum status replicas_reduce(const struct replicas *replicas, const struct params *params,
                            const struct head_memory *head, int64_t deadline_ns)
{
    const struct param *first = params->table;
    float *gradients = (float *)(void *)params->gradients.memory;
    size_t elems = params->gradients.planned_bytes / sizeof(float);

    if (replicas->group == NULL || params->count == 0) {
        return STATUS_OK;
    }
    if (first->sliced) {
        /* The tied embedding comes first in the table; a position table follows it. */
        size_t tied = (size_t)(first[1].grad - gradients);

        TRY(replicas_reduce_tied(replicas, first->grad, first->elems, deadline_ns));
        /* Of no elements where the head is elsewhere. */
        TRY(replicas_reduce_tied(replicas, head->gradient, head->elems, deadline_ns));
        gradients += tied;
        elems -= tied;
    }
    return sum(replicas, gradients, elems, deadline_ns);
}
