/* worker_embedding -- the two ends of a tied embedding whose head is on another rank. */
#include "base/clock.h"
#include "stages/worker.h"

/* A wait for the other end of the embedding group that began at `begin_ns` has ended. */
static void count_wait(struct stage_worker *worker, int64_t begin_ns)
{
    int64_t sent_ns = 0;
    int64_t arrived_ns = 0;

    embedding_sync_last_transfer(worker->sync, &sent_ns, &arrived_ns);
    worker->sync_transfer_ns += arrived_ns - sent_ns;
    worker->sync_exposed_ns += clock_now_ns() - begin_ns;
}

enum status stage_worker_stage(const struct stage_worker *worker, void *staging, const void *from,
                               size_t bytes, const void **from_out)
{
    *from_out = from;
    if (staging == NULL) {
        return STATUS_OK;
    }
    *from_out = staging;
    TRY(device_copy(worker->device, staging, from, bytes));
    return device_wait_for(worker->device, "tied embedding", worker->cancel,
                           worker->run.deadline_ns);
}

/* The owner's slice, into the copy. */
static enum status bring_weights(const struct stage_worker *worker)
{
    const struct head_memory *head = worker->head;
    enum dtype type = worker->params->type;

    return worker->sync_in != NULL
               ? device_copy(worker->device, dtype_at(head->copy, type, head->own_first),
                             worker->sync_in, head->own_elems * dtype_bytes(type))
               : STATUS_OK;
}

enum status stage_worker_sync(struct stage_worker *worker, size_t *bytes_out)
{
    const struct param *wte = params_find(worker->params, "wte.weight");
    struct head_memory *head = worker->head;
    const struct worker_run *run = &worker->run;
    const void *gradient = NULL;
    int64_t begin_ns = clock_now_ns();

    if (wte != NULL) {
        control_waits(worker->control, true);
        TRY(embedding_sync_wait_gradient(worker->sync, run->step, run->deadline_ns));
        control_waits(worker->control, false);
        count_wait(worker, begin_ns);
        *bytes_out = wte->own_elems * sizeof(float);
        return STATUS_OK;
    }
    TRY(replicas_reduce_tied(worker->replicas, head->gradient, head->elems, run->deadline_ns));
    *bytes_out = head->own_elems * sizeof(float);
    TRY(stage_worker_stage(worker, worker->sync_out, head->gradient + head->own_first, *bytes_out,
                           &gradient));
    return embedding_sync_send_gradient(worker->sync, run->step, gradient);
}

enum status stage_worker_wait_head(struct stage_worker *worker, int64_t version,
                                   int64_t deadline_ns)
{
    int64_t begin_ns = 0;

    if (worker->sync == NULL || worker->head->copy == NULL || worker->head_version >= version) {
        return STATUS_OK;
    }
    begin_ns = clock_now_ns();
    control_waits(worker->control, true);
    TRY(embedding_sync_wait_version(worker->sync, version, deadline_ns));
    control_waits(worker->control, false);
    count_wait(worker, begin_ns);
    TRY(bring_weights(worker));
    TRY(replicas_gather_tied(worker->replicas, worker->head->copy, worker->params->type,
                             worker->head->elems, deadline_ns));
    worker->head_version = version;
    return STATUS_OK;
}

enum status stage_worker_wait_sent(struct stage_worker *worker, int64_t deadline_ns)
{
    enum status status = STATUS_OK;

    if (worker->sync == NULL) {
        return STATUS_OK;
    }
    control_waits(worker->control, true);
    status = embedding_sync_wait_sent(worker->sync, deadline_ns);
    control_waits(worker->control, false);
    return status;
}
