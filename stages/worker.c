#include "stages/worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "scheduler/trace.h"
#include "stages/update.h"

static struct stage_worker *of(struct worker *worker)
{
    return (struct stage_worker *)worker;
}

void stage_worker_put_span(struct stage_worker *worker, enum trace_kind kind, int64_t begin_ns,
                           int64_t end_ns, const struct action *action, int32_t index,
                           uint64_t bytes)
{
    struct span span = {
        .begin_ns = begin_ns,
        .end_ns = end_ns,
        .bytes = bytes,
        .kind = (uint32_t)kind,
        .args =
            {
                [TRACE_ARG_STEP] = (int32_t)worker->run.step,
                [TRACE_ARG_MICROBATCH] = action->microbatch,
                [TRACE_ARG_VIRTUAL_STAGE] = action->virtual_stage,
                [TRACE_ARG_PEER] = action->peer,
                [TRACE_ARG_SEQUENCE] = action->sequence,
                [TRACE_ARG_DIRECTION] = action->direction,
                [TRACE_ARG_INDEX] = index,
                [TRACE_ARG_EVALUATION] = worker->run.evaluation ? 1 : 0,
                [TRACE_ARG_SLICES] = action->slices > 0 ? action->slices : ACTION_NONE,
            },
    };

    span_ring_put(worker->spans, &span);
}

/* Of a slice its own, which may be less than the buffers that it goes through have. */
static size_t message_bytes(const struct stage_worker *worker, const struct action *action)
{
    struct model_shape shape = worker->chunks[0].chunk.shape;

    if (action->slices == 0) {
        return worker->lanes->message_bytes;
    }
    model_shape_enter(&shape, (size_t)(action->microbatch % action->slices));
    return model_message_bytes(&shape);
}

/* What a message is, so that one in the wrong place is seen: run, direction, receiving stage and
 * micro-batch. */
static uint64_t message_tag(const struct stage_worker *worker, const struct action *action)
{
    /* A SEND F of stage s and its RECV F of stage s + 1 must give the same tag. */
    int32_t sends = action->kind == ACTION_SEND ? 1 : 0;
    int32_t receiver = action->virtual_stage + (action->direction == LANE_F ? sends : -sends);

    return ((worker->run.number & 0xFFFFFFULL) << 40) | ((uint64_t)action->direction << 39) |
           (((uint64_t)receiver & 0x7FFFULL) << 24) | ((uint64_t)action->microbatch & 0xFFFFFFULL);
}

static void note_sent(struct stage_worker *worker, struct lane_out *lane)
{
    int64_t begin_ns = 0;
    int64_t end_ns = 0;

    if (lane->sending != NULL && comm_sent(lane->lane)) {
        comm_last_copy(lane->lane, &begin_ns, &end_ns);
        if (end_ns > 0) { /* else the host does not know when it travelled */
            stage_worker_put_span(worker, TRACE_SEND, begin_ns, end_ns, lane->sending,
                                  lane->sending_index, message_bytes(worker, lane->sending));
        }
        lane->sending = NULL;
    }
}

/* Tells the control thread what this rank is at; `waits` while it stands still for another one. */
static void report(struct stage_worker *worker, int32_t index, bool waits)
{
    struct control_progress progress = {
        .step = worker->run.step,
        .phase = worker->run.evaluation ? UPDATE_PHASE_EVALUATION : UPDATE_PHASE_STEP,
        .action = index,
        .waits = waits,
    };

    control_progress(worker->control, &progress);
}

static enum status wait_failed(const struct stage_worker *worker, enum status status,
                               const char *what, const struct action *action)
{
    char text[64];

    (void)action_print(action, text, sizeof(text));
    if (status == STATUS_ERR_CANCELLED) {
        return status_note(status, "cancelled while waiting for %s (%s) of stage %d", what, text,
                           action->peer);
    }
    return status_fail(status, "%s, step %lld: waiting for %s (%s) of stage %d: %s", worker->place,
                       (long long)worker->run.step, what, text, action->peer, status_text(status));
}

static const struct chunk_lanes *lanes_at(const struct stage_worker *worker,
                                          const struct action *action)
{
    return lanes_of(worker->lanes, action->chunk, (enum lane_direction)action->direction);
}

static enum status wait_received(struct stage_worker *worker, int32_t index, int64_t deadline_ns)
{
    const struct action *action = &worker->run.line->actions[index];
    const struct chunk_lanes *lanes = lanes_at(worker, action);
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    enum status status = STATUS_OK;

    if (worker->received[index] != 0) {
        return STATUS_OK;
    }
    begin_ns = clock_now_ns();
    report(worker, index, true);
    status = comm_wait_arrival(lanes->in, lanes->in_first + action->landing,
                               message_tag(worker, action), worker->cancel, deadline_ns);
    if (status < 0) {
        return wait_failed(worker, status, "the message", action);
    }
    end_ns = clock_now_ns();
    worker->received[index] = 1;
    if (end_ns - begin_ns > STAGE_WORKER_WAIT_SPAN_NS) {
        stage_worker_put_span(worker, TRACE_WAIT, begin_ns, end_ns, action, index, 0);
    }
    stage_worker_put_span(worker, TRACE_RECV, begin_ns, end_ns, action, index,
                          message_bytes(worker, action));
    return STATUS_OK;
}

static enum status wait_sent(struct stage_worker *worker, int32_t index, int64_t deadline_ns)
{
    const struct action *action = &worker->run.line->actions[index];
    struct lane_out *lane = lanes_at(worker, action)->out;
    int64_t begin_ns = clock_now_ns();
    int64_t end_ns = 0;
    enum status status = STATUS_OK;

    /* A later SEND of the lane means that this one has left long ago. */
    if (lane->sending == action) {
        report(worker, index, true);
        status = comm_wait_sent(lane->lane, worker->cancel, deadline_ns);
        if (status < 0) {
            return wait_failed(worker, status, "a landing buffer for", action);
        }
        end_ns = clock_now_ns();
        if (end_ns - begin_ns > STAGE_WORKER_WAIT_SPAN_NS) {
            stage_worker_put_span(worker, TRACE_WAIT, begin_ns, end_ns, action, index, 0);
        }
    }
    note_sent(worker, lane);
    return STATUS_OK;
}

static enum status wait_ticket(struct stage_worker *worker, worker_ticket ticket,
                               int64_t deadline_ns)
{
    switch (worker->run.line->actions[ticket].kind) {
    case ACTION_RECV:
        return wait_received(worker, (int32_t)ticket, deadline_ns);
    case ACTION_SEND:
        return wait_sent(worker, (int32_t)ticket, deadline_ns);
    default:
        return STATUS_OK; /* compute has ended when issue() returns */
    }
}

static void retry_sends(struct stage_worker *worker)
{
    if (worker->comm == NULL) {
        return;
    }
    (void)comm_progress(worker->comm);
    for (int32_t i = 0; i < worker->lanes->out_count; i++) {
        note_sent(worker, &worker->lanes->outs[i]);
    }
}

static enum status run_send(struct stage_worker *worker, const struct action *action, int32_t index)
{
    const struct chunk_lanes *lanes = lanes_at(worker, action);
    struct lane_out *lane = lanes->out;

    note_sent(worker, lane);
    lane->sending = action;
    lane->sending_index = index;
    TRY(comm_post_send(lane->lane, lanes->out_first + action->landing, message_tag(worker, action),
                       lane->buffer, message_bytes(worker, action)));
    note_sent(worker, lane);
    return STATUS_OK;
}

static enum status run_receive(struct stage_worker *worker, const struct action *action)
{
    const struct chunk_lanes *lanes = lanes_at(worker, action);

    return comm_post_receive(lanes->in, lanes->in_first + action->landing,
                             message_tag(worker, action));
}

/* Layers that have become sums while W still ran. */
static void put_layer_sums(struct stage_worker *worker, const struct action *action, int32_t index)
{
    for (int32_t i = 0; i < worker->buckets->sum_count; i++) {
        const struct bucket_sum *sum = &worker->buckets->sums[i];

        stage_worker_put_span(worker, TRACE_REDUCE, sum->begin_ns, sum->end_ns, action, index,
                              sum->bytes);
    }
}

/* SYNC, GATHER or REDUCE. */
static enum status run_transfer(struct stage_worker *worker, const struct action *action,
                                int32_t index)
{
    int64_t begin_ns = clock_now_ns();
    enum trace_kind kind = TRACE_SYNC;
    size_t bytes = 0;

    if (action->kind == ACTION_SYNC) {
        TRY(stage_worker_sync(worker, &bytes));
    } else if (action->kind == ACTION_GATHER) {
        kind = TRACE_GATHER;
        TRY(chunk_gather(&worker->chunks[action->chunk].chunk, action->direction == LANE_B,
                         !worker->run.evaluation, &bytes));
    } else {
        kind = TRACE_REDUCE;
        TRY(stage_worker_reduce(worker, &bytes));
        put_layer_sums(worker, action, index);
    }
    stage_worker_put_span(worker, kind, begin_ns, clock_now_ns(), action, index, bytes);
    return STATUS_OK;
}

/* STEP waits for all ranks, and a neighbour may still need what lies in an out buffer: nobody
 * retries a pending SEND inside the control round, so all have left before it. */
static enum status drain_sends(struct stage_worker *worker)
{
    for (int32_t i = 0; i < worker->lanes->out_count; i++) {
        const struct lane_out *lane = &worker->lanes->outs[i];

        TRY(lane->sending != NULL ? wait_sent(worker, lane->sending_index, worker->run.deadline_ns)
                                  : STATUS_OK);
    }
    /* STEP changes what the tied embedding's lane has sent last: a gradient, or weights. */
    control_waits(worker->control, true);
    TRY(tied_lanes_free_out(worker->tied, worker->run.deadline_ns));
    control_waits(worker->control, false);
    return STATUS_OK;
}

static enum status run_step(struct stage_worker *worker, const struct action *action, int32_t index)
{
    struct update_times times;

    TRY(drain_sends(worker));
    TRY(device_enter(worker->device));
    TRY(update_run(worker->update, worker, &times));
    TRY(device_mark(worker->device, index));
    stage_worker_put_span(worker, TRACE_OPTIMIZER, times.norm_begin_ns, times.round_begin_ns,
                          action, index, 0);
    stage_worker_put_span(worker, TRACE_STEP, times.round_begin_ns, times.round_end_ns, action,
                          index, 0);
    stage_worker_put_span(worker, TRACE_OPTIMIZER, times.round_end_ns, clock_now_ns(), action,
                          index, 0);
    return STATUS_OK;
}

static enum status run_action(struct stage_worker *worker, const struct action *action,
                              int32_t index)
{
    switch (action->kind) {
    case ACTION_F:
        return stage_worker_forward(worker, action, index);
    case ACTION_I:
        return stage_worker_input_gradient(worker, action, index);
    case ACTION_W:
        return stage_worker_weight_gradient(worker, action, index);
    case ACTION_B:
        TRY(stage_worker_input_gradient(worker, action, index));
        return stage_worker_weight_gradient(worker, action, index);
    case ACTION_SEND:
        return run_send(worker, action, index);
    case ACTION_RECV:
        return run_receive(worker, action);
    case ACTION_SYNC:
    case ACTION_GATHER:
    case ACTION_REDUCE:
        return run_transfer(worker, action, index);
    case ACTION_RELEASE:
        chunk_give_back(&worker->chunks[action->chunk].chunk);
        return STATUS_OK;
    case ACTION_STEP:
        return run_step(worker, action, index);
    default:
        return status_fail(STATUS_ERR_UNSUPPORTED, "action %s has no work on this rank",
                           action_kind_text((enum action_kind)action->kind));
    }
}

/* As one range of a profiler, "2F0", "SEND F …". */
static enum status run_in_range(struct stage_worker *worker, const struct action *action,
                                int32_t index)
{
    enum status status = STATUS_OK;
    char name[64];

    (void)action_print(action, name, sizeof(name));
    device_begin_range(worker->device, name);
    status = run_action(worker, action, index);
    device_end_range(worker->device);
    return status;
}

static enum status issue(struct worker *base, const struct action *action, int32_t index,
                         const worker_ticket *dependencies, int32_t count,
                         worker_ticket *ticket_out)
{
    struct stage_worker *worker = of(base);

    for (int32_t i = 0; i < count; i++) {
        TRY(wait_ticket(worker, dependencies[i], worker->run.deadline_ns));
    }
    report(worker, index, false);
    if (!worker->run.evaluation &&
        fault_strike(&worker->fault, worker->rank, worker->run.step, index, worker->cancel)) {
        TRY(stage_worker_spoil(worker));
    }
    TRY(worker->ranges ? run_in_range(worker, action, index) : run_action(worker, action, index));
    retry_sends(worker);
    *ticket_out = index;
    return STATUS_OK;
}

static enum status done(struct worker *base, worker_ticket ticket, bool *done_out)
{
    struct stage_worker *worker = of(base);
    const struct action *action = &worker->run.line->actions[ticket];

    retry_sends(worker);
    *done_out = true;
    if (action->kind == ACTION_SEND) {
        *done_out = lanes_at(worker, action)->out->sending != action;
    } else if (action->kind == ACTION_RECV && worker->received[ticket] == 0) {
        const struct chunk_lanes *lanes = lanes_at(worker, action);
        enum status status =
            comm_arrived(lanes->in, lanes->in_first + action->landing, message_tag(worker, action));

        if (status < 0) {
            return status;
        }
        *done_out = status == STATUS_OK;
    }
    return STATUS_OK;
}

static enum status wait(struct worker *base, worker_ticket ticket, int64_t deadline_ns)
{
    return wait_ticket(of(base), ticket, deadline_ns);
}

static const struct worker_ops stage_worker_ops = {
    .issue = issue,
    .done = done,
    .wait = wait,
};

enum status stage_worker_init(struct stage_worker *worker, int32_t actions)
{
    worker->base.ops = &stage_worker_ops;
    worker->capacity = actions;
    worker->received = calloc((size_t)actions, 1);
    worker->computes = calloc((size_t)stage_worker_stamps(actions) / 2, sizeof(*worker->computes));
    if (worker->received == NULL || worker->computes == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "worker: %d actions", actions);
    }
    for (int32_t i = 0; i < worker->chunk_count; i++) {
        struct worker_chunk *own = &worker->chunks[i];

        own->slot_landing = calloc((size_t)own->chunk.slot_count, sizeof(*own->slot_landing));
        if (own->slot_landing == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "worker: %d slots", own->chunk.slot_count);
        }
    }
    return STATUS_OK;
}

enum status stage_worker_begin(struct stage_worker *worker, const struct worker_run *run)
{
    ENSURE(run->line->count <= worker->capacity, "line of %d actions, room for %d",
           run->line->count, worker->capacity);
    worker->run = *run;
    worker->workspace->tp.deadline_ns = run->deadline_ns;
    worker->gathered->deadline_ns = run->deadline_ns;
    buckets_begin(worker->buckets, run->deadline_ns);
    worker->first_begin_ns = 0;
    worker->last_end_ns = 0;
    worker->compute_count = 0;
    for (int32_t i = 0; i < worker->chunk_count; i++) {
        worker->chunks[i].times = (struct worker_times){.count = {0}};
    }
    worker->loss_sum = 0.0;
    /* Of the run before, whose end the device has been waited for. */
    memset(worker->losses, 0, (size_t)worker->loss_count * sizeof(*worker->losses));
    memset(worker->received, 0, (size_t)worker->capacity);
    return inputs_bring(worker->inputs, worker->device, &worker->run.batch);
}

enum status stage_worker_end_evaluation(struct stage_worker *worker)
{
    TRY(device_wait_for(worker->device, "evaluation", worker->cancel, worker->run.deadline_ns));
    stage_worker_collect(worker);
    return STATUS_OK;
}

void stage_worker_release(struct stage_worker *worker)
{
    free(worker->received);
    worker->received = NULL;
    free(worker->computes);
    worker->computes = NULL;
    for (int32_t i = 0; i < worker->chunk_count && worker->chunks != NULL; i++) {
        free(worker->chunks[i].slot_landing);
        worker->chunks[i].slot_landing = NULL;
    }
}
