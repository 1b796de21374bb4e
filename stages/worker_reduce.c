/* worker_reduce -- how gradients become sums, at the end of a rank's backward, and how they are spoilt. */
#include <math.h>

#include "stages/model/own_rows.h"
#include "stages/worker.h"

enum status stage_worker_reduce(struct stage_worker *worker, size_t *bytes_out)
{
    const struct params *params = worker->params;

    *bytes_out = own_rows_reduced(params) * sizeof(float);
    *bytes_out += replicas_reduced(worker->replicas, params);
    TRY(own_rows_reduce(&worker->chunks[0].chunk.shape, &worker->workspace->scratch, params));
    TRY(buckets_finish(worker->buckets));
    return replicas_reduce(worker->replicas, params, worker->run.deadline_ns);
}

enum status stage_worker_spoil(struct stage_worker *worker)
{
    const struct params *params = worker->params;
    const float spoilt = worker->fault.kind == FAULT_POISON ? NAN : INFINITY;
    int32_t i = 0;

    while (i < params->count && params->table[i].own_grad) {
        i++;
    }
    return i < params->count
               ? device_copy(worker->device, params->table[i].grad, &spoilt, sizeof(spoilt))
               : STATUS_OK;
}
