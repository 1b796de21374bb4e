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

/* Lends what lies at `from`, of this rank's tensors, where the embedding sync can send it from: there, or, on a device, in
 * sync_out, to which it is fetched beside the stream. Nothing is waited for. */
static enum status stage(const struct stage_worker *worker, const void *from, size_t bytes,
                         const void **from_out)
{
    *from_out = from;
    if (worker->sync_out == NULL) {
        return STATUS_OK;
    }
    *from_out = worker->sync_out;
    /* Nothing of what lay there before is still on its way, nor asked for. */
    TRY(embedding_sync_wait_sent(worker->sync, worker->run.deadline_ns));
    return device_fetch(worker->device, worker->sync_out, from, bytes);
}

/* Owner. */
static enum status take_gradient(struct stage_worker *worker)
{
    const struct worker_run *run = &worker->run;
    const void *gradient = NULL; /* which STEP knows where to find */
    enum status status = STATUS_OK;
    int64_t begin_ns = 0;

    /* STEP waits for both. First for the own device, so that one that hangs is not taken for a head that is late. */
    if (worker->sync != NULL) {
        TRY(device_wait_for(worker->device, "gradients", worker->cancel, run->deadline_ns));
    }
    begin_ns = clock_now_ns();
    control_waits(worker->control, true);
    if (worker->sync != NULL) {
        status = embedding_sync_wait_gradient(worker->sync, run->step, run->deadline_ns);
    } else if (worker->tied->in != NULL) {
        status = tied_lanes_receive(worker->tied, run->step, run->deadline_ns, &gradient);
    }
    TRY(status);
    control_waits(worker->control, false);
    if (worker->sync != NULL) {
        count_wait(worker, begin_ns);
    }
    return STATUS_OK;
}

/* Head. */
static enum status send_gradient(struct stage_worker *worker)
{
    const struct head_memory *head = worker->head;
    const void *gradient = head->gradient + head->own_first;

    if (worker->tied->out != NULL) {
        return tied_lanes_send(worker->tied, worker->run.step, gradient);
    }
    if (worker->sync == NULL) {
        return STATUS_OK;
    }
    TRY(stage(worker, gradient, head->own_elems * sizeof(float), &gradient));
    return embedding_sync_send_gradient(worker->sync, worker->run.step, gradient);
}

enum status stage_worker_sync(struct stage_worker *worker, size_t *bytes_out)
{
    const struct param *wte = params_find(worker->params, "wte.weight");
    struct head_memory *head = worker->head;

    if (wte != NULL) {
        *bytes_out = wte->own_elems * sizeof(float);
        return take_gradient(worker);
    }
    *bytes_out = head->own_elems * sizeof(float);
    TRY(replicas_reduce_tied(worker->replicas, head->gradient, head->elems,
                             worker->run.deadline_ns));
    return send_gradient(worker);
}

enum status stage_worker_send_weights(struct stage_worker *worker, int64_t version)
{
    const struct param *wte = params_find(worker->params, "wte.weight");
    const void *weights = param_own_weight(wte);

    if (worker->tied->out != NULL) {
        return tied_lanes_send(worker->tied, version, weights);
    }
    if (worker->sync == NULL) {
        return STATUS_OK;
    }
    TRY(stage(worker, weights, wte->own_elems * dtype_bytes(wte->type), &weights));
    return embedding_sync_send_weights(worker->sync, version, weights);
}

/* The owner's slice, into the copy. */
static enum status put_weights(const struct stage_worker *worker, const void *weights)
{
    const struct head_memory *head = worker->head;
    enum dtype type = worker->params->type;

    return device_copy(worker->device, dtype_at(head->copy, type, head->own_first), weights,
                       head->own_elems * dtype_bytes(type));
}

/* Head: this replica's slice of the weights has come to the copy. */
static enum status take_weights(struct stage_worker *worker, int64_t version, int64_t deadline_ns)
{
    const void *weights = NULL;
    int64_t begin_ns = clock_now_ns();
    enum status status = STATUS_OK;

    control_waits(worker->control, true);
    if (worker->sync != NULL) {
        status = embedding_sync_wait_version(worker->sync, version, deadline_ns);
    } else if (worker->tied->in != NULL) {
        status = tied_lanes_receive(worker->tied, version, deadline_ns, &weights);
    }
    TRY(status);
    control_waits(worker->control, false);
    if (weights != NULL) {
        TRY(put_weights(worker, weights));
        tied_lanes_free_in(worker->tied);
        return STATUS_OK;
    }
    if (worker->sync != NULL) {
        count_wait(worker, begin_ns);
    }
    return worker->sync_in != NULL ? put_weights(worker, worker->sync_in) : STATUS_OK;
}

enum status stage_worker_wait_head(struct stage_worker *worker, int64_t version,
                                   int64_t deadline_ns)
{
    if (worker->head->copy == NULL || worker->head_version >= version) {
        return STATUS_OK;
    }
    TRY(take_weights(worker, version, deadline_ns));
    TRY(replicas_gather_tied(worker->replicas, worker->head->copy, worker->params->type,
                             worker->head->elems, deadline_ns));
    worker->head_version = version;
    return STATUS_OK;
}

enum status stage_worker_wait_sent(struct stage_worker *worker, int64_t deadline_ns)
{
    enum status status = STATUS_OK;

    control_waits(worker->control, true);
    if (worker->sync != NULL) {
        status = embedding_sync_wait_sent(worker->sync, deadline_ns);
    } else if (worker->tied->out != NULL) {
        status = tied_lanes_free_out(worker->tied, deadline_ns);
        status = status < 0 ? status
                            : device_wait_for(worker->device, "tied embedding", worker->cancel,
                                              deadline_ns);
    }
    control_waits(worker->control, false);
    return status;
}
