#include "stages/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "scheduler/trace.h"
#include "stages/update.h"

/* Waits shorter than this are not worth a span of their own. */
#define WAIT_SPAN_NS 2000

static struct stage_worker *of(struct worker *worker)
{
    return (struct stage_worker *)worker;
}

static void put_span(struct stage_worker *worker, enum trace_kind kind, int64_t begin_ns,
                     int64_t end_ns, const struct action *action, int32_t index, uint64_t bytes)
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
            },
    };

    span_ring_put(worker->spans, &span);
}

static size_t message_bytes(const struct stage_worker *worker)
{
    const struct model_shape *shape = &worker->chunk->shape;

    return shape->B * shape->T * shape->C * sizeof(float);
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

static void note_sent(struct stage_worker *worker, struct worker_lane *lane)
{
    int64_t begin_ns = 0;
    int64_t end_ns = 0;

    if (lane->sending != NULL && comm_sent(lane->out)) {
        comm_last_copy(lane->out, &begin_ns, &end_ns);
        put_span(worker, TRACE_SEND, begin_ns, end_ns, lane->sending, lane->sending_index,
                 message_bytes(worker));
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
    return status_fail(status, "stage %d, step %lld: waiting for %s (%s) of stage %d: %s",
                       worker->stage, (long long)worker->run.step, what, text, action->peer,
                       status_text(status));
}

static enum status wait_received(struct stage_worker *worker, int32_t index, int64_t deadline_ns)
{
    const struct action *action = &worker->run.line->actions[index];
    struct lane *lane = worker->lanes[action->direction].in;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    enum status status = STATUS_OK;

    if (worker->received[index] != 0) {
        return STATUS_OK;
    }
    begin_ns = clock_now_ns();
    report(worker, index, true);
    status = comm_wait_arrival(lane, action->landing, message_tag(worker, action), worker->cancel,
                               deadline_ns);
    if (status < 0) {
        return wait_failed(worker, status, "the message", action);
    }
    end_ns = clock_now_ns();
    worker->received[index] = 1;
    if (end_ns - begin_ns > WAIT_SPAN_NS) {
        put_span(worker, TRACE_WAIT, begin_ns, end_ns, action, index, 0);
    }
    put_span(worker, TRACE_RECV, begin_ns, end_ns, action, index, message_bytes(worker));
    return STATUS_OK;
}

static enum status wait_sent(struct stage_worker *worker, int32_t index, int64_t deadline_ns)
{
    const struct action *action = &worker->run.line->actions[index];
    struct worker_lane *lane = &worker->lanes[action->direction];
    int64_t begin_ns = clock_now_ns();
    int64_t end_ns = 0;
    enum status status = STATUS_OK;

    /* A later SEND of the lane means that this one has left long ago. */
    if (lane->sending == action) {
        report(worker, index, true);
        status = comm_wait_sent(lane->out, worker->cancel, deadline_ns);
        if (status < 0) {
            return wait_failed(worker, status, "a landing buffer for", action);
        }
        end_ns = clock_now_ns();
        if (end_ns - begin_ns > WAIT_SPAN_NS) {
            put_span(worker, TRACE_WAIT, begin_ns, end_ns, action, index, 0);
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
    if (worker->comm != NULL) {
        (void)comm_progress(worker->comm);
        note_sent(worker, &worker->lanes[LANE_F]);
        note_sent(worker, &worker->lanes[LANE_B]);
    }
}

/* Adds a stretch of compute to the sums of the step; `which` is 0 F, 1 I, 2 W. */
static void add_time(struct stage_worker *worker, int which, int64_t begin_ns, int64_t end_ns)
{
    struct worker_times *times = &worker->times;

    times->busy_ns[which] += end_ns - begin_ns;
    times->count[which]++;
    if (times->first_begin_ns == 0) {
        times->first_begin_ns = begin_ns;
    }
    times->last_end_ns = end_ns;
}

static enum status run_forward(struct stage_worker *worker, const struct action *action,
                               int32_t index)
{
    const struct model_shape *shape = &worker->chunk->shape;
    const struct loader_batch *batch = &worker->run.batch;
    size_t rows = (size_t)action->microbatch * shape->B * shape->T;
    struct worker_lane *lane = &worker->lanes[LANE_F];
    struct chunk_io io = {
        .input = action->landing >= 0 ? comm_landing(lane->in, action->landing) : NULL,
        .output = lane->buffer,
        .tokens = batch->tokens != NULL ? batch->tokens + rows : NULL,
        .targets = batch->targets != NULL ? batch->targets + rows : NULL,
        .mask = batch->mask != NULL ? batch->mask + rows : NULL,
        .loss_seed = worker->run.loss_seed,
    };
    int64_t begin_ns = 0;
    int64_t end_ns = 0;

    worker->slot_landing[action->slot] = action->landing;
    if (worker->sync != NULL && worker->chunk->range.has_head) {
        TRY(embedding_sync_wait_version(worker->sync, worker->run.version,
                                        worker->run.deadline_ns));
    }
    begin_ns = clock_now_ns();
    if (worker->run.evaluation) {
        TRY(chunk_evaluate(worker->chunk, action->slot, &io));
    } else {
        TRY(chunk_forward(worker->chunk, action->slot, &io));
    }
    end_ns = clock_now_ns();
    worker->loss_sum += io.loss_sum;
    add_time(worker, 0, begin_ns, end_ns);
    put_span(worker, TRACE_F, begin_ns, end_ns, action, index, 0);
    if (worker->run.evaluation && action->landing >= 0) {
        comm_credit(lane->in, action->landing);
    }
    return STATUS_OK;
}

static struct chunk_io backward_io(const struct stage_worker *worker, const struct action *action)
{
    const struct worker_lane *lane = &worker->lanes[LANE_B];

    return (struct chunk_io){
        .doutput = action->landing >= 0 ? comm_landing(lane->in, action->landing) : NULL,
        .dinput = lane->buffer,
    };
}

/* I is the last reader of the message that F of the same micro-batch read in place. */
static void credit_input(struct stage_worker *worker, const struct action *action)
{
    int32_t landing = worker->slot_landing[action->slot];

    if (landing >= 0) {
        comm_credit(worker->lanes[LANE_F].in, landing);
    }
}

static enum status run_input_gradient(struct stage_worker *worker, const struct action *action,
                                      int32_t index)
{
    struct chunk_io io = backward_io(worker, action);
    int64_t begin_ns = clock_now_ns();
    int64_t end_ns = 0;

    TRY(chunk_backward_input(worker->chunk, action->slot, action->gradient, &io));
    end_ns = clock_now_ns();
    add_time(worker, 1, begin_ns, end_ns);
    put_span(worker, TRACE_I, begin_ns, end_ns, action, index, 0);
    credit_input(worker, action);
    return STATUS_OK;
}

static enum status run_weight_gradient(struct stage_worker *worker, const struct action *action,
                                       int32_t index)
{
    struct chunk_io io = backward_io(worker, action);
    int64_t begin_ns = clock_now_ns();
    int64_t end_ns = 0;

    TRY(chunk_backward_weight(worker->chunk, action->slot, action->gradient, &io));
    end_ns = clock_now_ns();
    add_time(worker, 2, begin_ns, end_ns);
    put_span(worker, TRACE_W, begin_ns, end_ns, action, index, 0);
    if (action->landing >= 0) {
        comm_credit(worker->lanes[LANE_B].in, action->landing);
    }
    return STATUS_OK;
}

static enum status run_send(struct stage_worker *worker, const struct action *action, int32_t index)
{
    struct worker_lane *lane = &worker->lanes[action->direction];

    note_sent(worker, lane);
    lane->sending = action;
    lane->sending_index = index;
    TRY(comm_post_send(lane->out, action->landing, message_tag(worker, action), lane->buffer,
                       message_bytes(worker)));
    note_sent(worker, lane);
    return STATUS_OK;
}

static enum status run_sync(struct stage_worker *worker, const struct action *action, int32_t index)
{
    int64_t begin_ns = clock_now_ns();

    if (worker->chunk->range.has_head) {
        TRY(embedding_sync_send_gradient(worker->sync, worker->run.step, worker->chunk->sums.head));
    } else {
        TRY(embedding_sync_wait_gradient(worker->sync, worker->run.step, worker->run.deadline_ns));
    }
    put_span(worker, TRACE_SYNC, begin_ns, clock_now_ns(), action, index,
             worker->chunk->shape.V * worker->chunk->shape.C * sizeof(float));
    return STATUS_OK;
}

/* STEP waits for all ranks, and a neighbour may still need what lies in an out buffer: nobody
 * retries a pending SEND inside the control round, so all have left before it. */
static enum status drain_sends(struct stage_worker *worker)
{
    for (int direction = LANE_F; direction < LANE_DIRECTIONS; direction++) {
        const struct worker_lane *lane = &worker->lanes[direction];
        enum status status = STATUS_OK;

        if (lane->sending != NULL) {
            status = wait_sent(worker, lane->sending_index, worker->run.deadline_ns);
        }
        if (status < 0) {
            return status;
        }
    }
    return STATUS_OK;
}

static enum status run_step(struct stage_worker *worker, const struct action *action, int32_t index)
{
    struct update_times times;

    TRY(drain_sends(worker));
    TRY(update_run(worker->update, worker, &times));
    put_span(worker, TRACE_OPTIMIZER, times.norm_begin_ns, times.round_begin_ns, action, index, 0);
    put_span(worker, TRACE_STEP, times.round_begin_ns, times.round_end_ns, action, index, 0);
    put_span(worker, TRACE_OPTIMIZER, times.round_end_ns, clock_now_ns(), action, index, 0);
    return STATUS_OK;
}

static enum status run_action(struct stage_worker *worker, const struct action *action,
                              int32_t index)
{
    switch (action->kind) {
    case ACTION_F:
        return run_forward(worker, action, index);
    case ACTION_I:
        return run_input_gradient(worker, action, index);
    case ACTION_W:
        return run_weight_gradient(worker, action, index);
    case ACTION_B:
        TRY(run_input_gradient(worker, action, index));
        return run_weight_gradient(worker, action, index);
    case ACTION_SEND:
        return run_send(worker, action, index);
    case ACTION_RECV:
        return STATUS_OK;
    case ACTION_SYNC:
        return run_sync(worker, action, index);
    case ACTION_STEP:
        return run_step(worker, action, index);
    default:
        return status_fail(STATUS_ERR_UNSUPPORTED, "action %s has no work on this rank",
                           action_kind_text((enum action_kind)action->kind));
    }
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
        worker->params->table[0].grad[0] = NAN;
    }
    TRY(run_action(worker, action, index));
    retry_sends(worker);
    *ticket_out = index;
    return STATUS_OK;
}

static enum status done(struct worker *base, worker_ticket ticket, bool *done_out)
{
    struct stage_worker *worker = of(base);
    const struct action *action = &worker->run.line->actions[ticket];
    struct worker_lane *lane = &worker->lanes[action->direction];

    retry_sends(worker);
    *done_out = true;
    if (action->kind == ACTION_SEND) {
        *done_out = lane->sending != action;
    } else if (action->kind == ACTION_RECV && worker->received[ticket] == 0) {
        enum status status = comm_arrived(lane->in, action->landing, message_tag(worker, action));

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

enum status stage_worker_init(struct stage_worker *worker, int32_t actions, int32_t slots)
{
    worker->base.ops = &stage_worker_ops;
    worker->capacity = actions;
    worker->received = calloc((size_t)actions, 1);
    worker->slot_landing = calloc((size_t)slots, sizeof(*worker->slot_landing));
    if (worker->received == NULL || worker->slot_landing == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "worker: %d actions, %d slots", actions, slots);
    }
    return STATUS_OK;
}

void stage_worker_begin(struct stage_worker *worker, const struct worker_run *run)
{
    ENSURE(run->line->count <= worker->capacity, "line of %d actions, room for %d",
           run->line->count, worker->capacity);
    worker->run = *run;
    worker->times = (struct worker_times){0};
    worker->loss_sum = 0.0;
    memset(worker->received, 0, (size_t)worker->capacity);
}

void stage_worker_release(struct stage_worker *worker)
{
    free(worker->received);
    free(worker->slot_landing);
    worker->received = NULL;
    worker->slot_landing = NULL;
}
