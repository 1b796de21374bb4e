/* worker_compute -- F, I and W of a rank's chunks, and what the device tells of them. */
#include "base/clock.h"
#include "stages/worker.h"

/* In the order of `which`. */
static const enum trace_kind compute_kinds[] = {TRACE_F, TRACE_I, TRACE_W};

/* A stretch of compute begins or, `end`, ends where the device's stream is now. */
static enum status stamp(struct stage_worker *worker, bool end)
{
    return device_stamp(worker->device, 2 * worker->compute_count + (end ? 1 : 0));
}

/* Behind this, the device is at the action. */
static enum status begin_compute(struct stage_worker *worker)
{
    TRY(device_enter(worker->device));
    return stamp(worker, false);
}

/* Adds stretches of compute that have ended to the sums of the step, and to the trace. */
static void collect_times(struct stage_worker *worker)
{
    for (int32_t i = 0; i < worker->compute_count; i++) {
        const struct worker_compute *compute = &worker->computes[i];
        int64_t begin_ns = device_stamp_ns(worker->device, 2 * i);
        int64_t end_ns = device_stamp_ns(worker->device, 2 * i + 1);

        compute->chunk->times.busy_ns[compute->which] += end_ns - begin_ns;
        if (worker->first_begin_ns == 0) {
            worker->first_begin_ns = begin_ns;
        }
        worker->last_end_ns = end_ns;
        stage_worker_put_span(worker, compute_kinds[compute->which], begin_ns, end_ns,
                              compute->action, compute->index, 0);
    }
    worker->compute_count = 0;
}

/* The compute that began with stamp() has been asked for. On the CPU it has ended, and is told at once. */
static enum status end_compute(struct stage_worker *worker, struct worker_chunk *chunk, int which,
                               const struct action *action, int32_t index)
{
    TRY(stamp(worker, true));
    TRY(device_mark(worker->device, index));
    worker->computes[worker->compute_count++] =
        (struct worker_compute){.chunk = chunk, .action = action, .index = index, .which = which};
    chunk->times.count[which]++;
    if (device_tensors_are_here(worker->device)) {
        collect_times(worker);
    }
    return STATUS_OK;
}

/* The last reader of the message in landing buffer `landing` of the chunk has ended. */
static void give_credit(const struct stage_worker *worker, const struct action *action,
                        enum lane_direction direction, int32_t landing)
{
    const struct chunk_lanes *lanes = lanes_of(worker->lanes, action->chunk, direction);

    if (landing >= 0 && lanes->in != NULL) {
        comm_credit(lanes->in, lanes->in_first + landing);
    }
}

enum status stage_worker_forward(struct stage_worker *worker, const struct action *action,
                                 int32_t index)
{
    struct worker_chunk *own = &worker->chunks[action->chunk];
    const struct loader_batch *batch = &worker->run.batch;
    int32_t slices = action->slices > 0 ? action->slices : 1;
    int32_t microbatch = action->microbatch / slices;
    size_t rows = inputs_rows(worker->inputs, action->microbatch);
    struct chunk_io io = {
        .input = lanes_input(worker->lanes, action, LANE_F),
        .output = lanes_output(worker->lanes, action, LANE_F),
        .tokens = batch->tokens != NULL ? batch->tokens + rows : NULL,
        .types = batch->types != NULL ? batch->types + rows : NULL,
        .targets = batch->targets != NULL ? batch->targets + rows : NULL,
        .mask = batch->mask != NULL ? batch->mask + rows : NULL,
        .microbatch = microbatch,
        .slice = action->microbatch % slices,
        .first_sample = sampler_number(&worker->sampler, worker->run.consumed, microbatch, 0),
        .loss_seed = worker->run.loss_seed,
        .loss_sum = &worker->losses[action->microbatch],
    };
    int64_t begin_ns = 0;
    int64_t end_ns = 0;

    own->slot_landing[action->slot] = action->landing;
    begin_ns = clock_now_ns();
    if (own->chunk.range.has_head) {
        TRY(stage_worker_wait_head(worker, worker->run.version, worker->run.deadline_ns));
        end_ns = clock_now_ns();
        if (end_ns - begin_ns > STAGE_WORKER_WAIT_SPAN_NS) {
            stage_worker_put_span(worker, TRACE_SYNC, begin_ns, end_ns, action, index, 0);
        }
    }
    TRY(begin_compute(worker));
    TRY(worker->run.evaluation ? chunk_evaluate(&own->chunk, action->slot, &io)
                               : chunk_forward(&own->chunk, action->slot, &io));
    TRY(end_compute(worker, own, 0, action, index));
    if (worker->run.evaluation) {
        give_credit(worker, action, LANE_F, action->landing);
    }
    return STATUS_OK;
}

static struct chunk_io backward_io(const struct stage_worker *worker, const struct action *action)
{
    return (struct chunk_io){
        .doutput = lanes_input(worker->lanes, action, LANE_B),
        .dinput = action->kind == ACTION_W ? NULL : lanes_output(worker->lanes, action, LANE_B),
    };
}

enum status stage_worker_input_gradient(struct stage_worker *worker, const struct action *action,
                                        int32_t index)
{
    struct worker_chunk *own = &worker->chunks[action->chunk];
    struct chunk_io io = backward_io(worker, action);

    TRY(begin_compute(worker));
    TRY(chunk_backward_input(&own->chunk, action->slot, action->gradient, &io));
    TRY(end_compute(worker, own, 1, action, index));
    /* I is the last reader of what F of the same micro-batch read in place. */
    give_credit(worker, action, LANE_F, own->slot_landing[action->slot]);
    return STATUS_OK;
}

enum status stage_worker_weight_gradient(struct stage_worker *worker, const struct action *action,
                                         int32_t index)
{
    struct worker_chunk *own = &worker->chunks[action->chunk];
    struct chunk_io io = backward_io(worker, action);

    TRY(begin_compute(worker));
    /* The last W of the chunk in this step: its layers can become sums. */
    if (own->times.count[2] + 1 == worker->microbatches) {
        io.hook = buckets_hook(worker->buckets);
    }
    TRY(chunk_backward_weight(&own->chunk, action->slot, action->gradient, &io));
    TRY(end_compute(worker, own, 2, action, index));
    give_credit(worker, action, LANE_B, action->landing);
    return STATUS_OK;
}

void stage_worker_collect(struct stage_worker *worker)
{
    collect_times(worker);
    worker->loss_sum = 0.0;
    for (int32_t i = 0; i < worker->loss_count; i++) {
        worker->loss_sum += worker->losses[i];
    }
}

int32_t stage_worker_stamps(int32_t actions)
{
    /* B is two stretches, with two stamps each. */
    return 4 * actions;
}
