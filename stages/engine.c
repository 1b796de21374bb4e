#include "stages/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "stages/checkpoint/weights.h"
#include "stages/engine_data.h"
#include "stages/engine_start.h"

static enum status take_batch(struct engine *engine, struct loader *loader,
                              struct loader_batch *batch_out)
{
    *batch_out = (struct loader_batch){0};
    if (loader == NULL) {
        return STATUS_OK;
    }
    return loader_take(loader, engine->cancel, clock_deadline(ENGINE_WAIT_S), batch_out);
}

/* A step that waits for its data says so in the trace. */
static enum status take_training_batch(struct engine *engine, struct loader_batch *batch_out)
{
    struct span span = {.begin_ns = clock_now_ns(), .kind = TRACE_DATA};

    TRY(take_batch(engine, engine->loader, batch_out));
    span.end_ns = clock_now_ns();
    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        span.args[arg] = ACTION_NONE;
    }
    span.args[TRACE_ARG_STEP] = (int32_t)engine->attempts;
    if (span.end_ns - span.begin_ns > STAGE_WORKER_WAIT_SPAN_NS) {
        span_ring_put(&engine->spans, &span);
    }
    return STATUS_OK;
}

static void report_phase(struct engine *engine, enum update_phase phase)
{
    struct control_progress progress = {
        .step = engine->attempts, .phase = (int32_t)phase, .action = ACTION_NONE};

    engine->phase = phase;
    engine->pieces = 0;
    control_progress(engine->control, &progress);
}

/* Another number in the place of the action: who moves files does not stand still. */
static void report_piece(void *context)
{
    struct engine *engine = context;
    struct control_progress progress = {
        .step = engine->attempts, .phase = (int32_t)engine->phase, .action = ++engine->pieces};

    control_progress(engine->control, &progress);
    fault_move(&engine->worker.fault, engine->grid.rank, engine->attempts, engine->pieces,
               engine->cancel);
}

struct piece_watch engine_watch(struct engine *engine)
{
    return (struct piece_watch){.moved = report_piece, .context = engine};
}

/* stall_after_s auto: rank 0 tells the control plane what a step of this run may take. */
static void allow_silence(struct engine *engine, bool in_steps)
{
    const struct update_outcome *outcome = &engine->update.outcome;
    double seconds = ENGINE_STALL_START_S;

    if (engine->config->control.stall_after_s >= 0.0 || engine->grid.rank != 0) {
        return;
    }
    if (in_steps) {
        for (int32_t stage = 0; stage < plan_stages(engine->plan); stage++) {
            engine->longest_action_s = fmax(engine->longest_action_s, outcome->F[stage]);
            engine->longest_action_s =
                fmax(engine->longest_action_s, outcome->I[stage] + outcome->W[stage]);
        }
        seconds = fmax(ENGINE_STALL_LEAST_S, ENGINE_STALL_ACTIONS * engine->longest_action_s);
    }
    control_stall_after(engine->control, seconds);
}

enum status engine_step(struct engine *engine)
{
    struct update *update = &engine->update;
    struct worker_run run = {
        .line = &engine->plan->lines[engine->grid.pp],
        .step = ++engine->attempts,
        .number = ++engine->runs,
        .consumed = engine->consumed,
        .version = update->updates,
        .deadline_ns = clock_deadline(ENGINE_WAIT_S),
    };

    report_phase(engine, UPDATE_PHASE_STEP);
    TRY(take_training_batch(engine, &run.batch));
    update->targets = update->outcome.next_targets;
    update->empty = update->targets == 0;
    run.loss_seed =
        update->empty ? 0.0F : (float)(update->scaler.state.scale / (double)update->targets);
    TRY(stage_worker_begin(&engine->worker, &run));
    if (update->empty) {
        struct update_times times;

        /* Nothing to learn from: no plan is run, but the round is, for the next step's count. */
        TRY(update_run(update, &engine->worker, &times));
    } else {
        struct traffic before;

        engine_read_traffic(engine, &before);
        TRY(executor_run(&engine->executor, run.line, &engine->worker.base, engine->cancel,
                         run.deadline_ns));
        engine_count_step(engine, &before);
    }
    allow_silence(engine, true);
    engine->consumed += engine->config->train.global_batch_size;
    return STATUS_OK;
}

enum {
    EVALUATE_LOSS,
    EVALUATE_TARGETS,
    EVALUATE_KEYS
};

static enum status reduce_evaluation(struct engine *engine, double *sums, double *loss_out)
{
    static const struct control_key keys[EVALUATE_KEYS] = {
        [EVALUATE_LOSS] = {"loss_sum", CONTROL_SUM},
        [EVALUATE_TARGETS] = {"targets", CONTROL_SUM},
    };
    struct control_value values[EVALUATE_KEYS] = {
        {.key = EVALUATE_LOSS, .number = sums[EVALUATE_LOSS]},
        {.key = EVALUATE_TARGETS, .number = sums[EVALUATE_TARGETS]},
    };
    struct control_round round = {
        .name = "EVALUATE",
        .number = engine->runs,
        .keys = keys,
        .key_count = EVALUATE_KEYS,
        .values = values,
        .value_count = EVALUATE_KEYS,
        .note = "",
    };
    double numbers[EVALUATE_KEYS];
    struct control_answer answer = {.numbers = numbers};

    TRY(control_reduce(engine->control, &round, &answer, clock_deadline(ENGINE_WAIT_S)));
    *loss_out =
        numbers[EVALUATE_TARGETS] > 0.0 ? numbers[EVALUATE_LOSS] / numbers[EVALUATE_TARGETS] : 0.0;
    return STATUS_OK;
}

/* One step of forwards alone, added to `sums`. */
static enum status evaluate_batch(struct engine *engine, struct engine_set *set, double *sums)
{
    struct worker_run run = {
        .line = &engine->evaluation->lines[engine->grid.pp],
        .step = engine->attempts,
        .number = ++engine->runs,
        .evaluation = true,
        .version = engine->update.updates,
        .deadline_ns = clock_deadline(ENGINE_WAIT_S),
    };

    TRY(take_batch(engine, set->loader, &run.batch));
    TRY(stage_worker_begin(&engine->worker, &run));
    TRY(executor_run(&engine->executor, run.line, &engine->worker.base, engine->cancel,
                     run.deadline_ns));
    TRY(stage_worker_end_evaluation(&engine->worker));
    if (engine->grid.tp == 0) {
        sums[EVALUATE_LOSS] += engine->worker.loss_sum;
        sums[EVALUATE_TARGETS] += (double)run.batch.target_count;
    }
    return STATUS_OK;
}

enum status engine_evaluate(struct engine *engine, enum engine_split split, double *loss_out)
{
    struct engine_set *set = &engine->sets[split];
    double sums[EVALUATE_KEYS] = {0.0, 0.0};

    ENSURE(set->batches > 0, "no such held-out set");
    report_phase(engine, UPDATE_PHASE_EVALUATION);
    if (set->loader != NULL) {
        TRY(loader_rewind(set->loader, 0));
    }
    for (int64_t i = 0; i < set->batches; i++) {
        TRY(evaluate_batch(engine, set, sums));
    }
    return reduce_evaluation(engine, sums, loss_out);
}

enum status engine_settle(struct engine *engine)
{
    TRY(stage_worker_wait_head(&engine->worker, engine->update.updates,
                               clock_deadline(ENGINE_WAIT_S)));
    return stage_worker_wait_sent(&engine->worker, clock_deadline(ENGINE_WAIT_S));
}

void engine_enter(struct engine *engine, enum update_phase phase)
{
    report_phase(engine, phase);
    allow_silence(engine, false);
}

enum status engine_tell_cause(struct engine *engine, enum status status)
{
    int32_t rank = -1;
    const char *cause = control_abort_cause(engine->control, &rank);

    if (cause[0] != '\0' && rank != engine->grid.rank) {
        return status_note(STATUS_ERR_PEER, "%s", cause);
    }
    if (status != STATUS_ERR_CANCELLED && status != STATUS_ERR_PEER) {
        control_abort(engine->control, status_last()->message);
    }
    return status;
}

enum status engine_meet(struct engine *engine, const char *name)
{
    return engine_agree(engine, &(struct control_round){.name = name}, NULL, STATUS_OK);
}

/* The answer is written through `numbers`. NOLINTNEXTLINE(readability-non-const-parameter) */
enum status engine_agree(struct engine *engine, const struct control_round *values, double *numbers,
                         enum status own)
{
    const struct status_record kept = *status_last();
    struct control_round round = *values;
    struct control_answer answer = {.numbers = numbers};

    round.number = (uint64_t)engine->attempts;
    round.note = own < 0 ? kept.message : "";
    TRY(control_reduce(engine->control, &round, &answer, clock_deadline(ENGINE_FILES_WAIT_S)));
    if (own < 0) {
        status_adopt(&kept);
        return own;
    }
    /* The rank that has failed tells the log, and then the job. */
    return answer.note_rank < 0
               ? STATUS_OK
               : status_note(STATUS_ERR_PEER, "rank %d: %s", (int)answer.note_rank, answer.note);
}

/* Rank 0, once every shard is there. */
static enum status export_index(struct engine *engine, const char *directory)
{
    int32_t stages = engine->grid.shape.pp;
    int32_t chunks = stages * (int32_t)engine->config->parallel.virtual_stages;
    int32_t *stage_of = calloc(engine->shape.L, sizeof(*stage_of));
    enum status status = STATUS_OK;

    if (stage_of == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "index of %zu layers", engine->shape.L);
    }
    for (int32_t chunk = 0; chunk < chunks; chunk++) {
        struct chunk_range range;

        chunk_range_of(engine->config, chunk, &range);
        for (int32_t i = 0; i < range.layers; i++) {
            stage_of[range.first_layer + i] = engine->plan->rank_of[chunk];
        }
    }
    status =
        weights_export_index(directory, &(struct weights_index){.stages = stages,
                                                                .stage_of = stage_of,
                                                                .shape = &engine->shape,
                                                                .model = &engine->config->model});
    free(stage_of);
    return status;
}

/* The shards and replicas of a stage fill its file together. */
static enum status export_stage(struct engine *engine, const struct weights_file *file)
{
    bool first = file->replica == 0 && file->shard == 0;

    TRY(first ? weights_export_begin(file, &engine->params) : STATUS_OK);
    TRY(engine_meet(engine, "EXPORT-BEGUN"));
    TRY(engine_agree(engine, &(struct control_round){.name = "EXPORT-WRITTEN"}, NULL,
                     weights_export_write(file, &engine->params)));
    TRY(first ? weights_export_end(file) : STATUS_OK);
    return engine_meet(engine, "EXPORT");
}

enum status engine_export(struct engine *engine, const char *directory)
{
    const struct piece_watch watch = engine_watch(engine);
    const struct weights_file file = {.directory = directory,
                                      .stage = engine->grid.pp,
                                      .stages = engine->grid.shape.pp,
                                      .shard = engine->grid.tp,
                                      .replica = engine->grid.dp,
                                      .watch = &watch};
    enum status status = STATUS_OK;

    engine_enter(engine, UPDATE_PHASE_END);
    status = export_stage(engine, &file);
    if (status < 0) {
        status = engine_tell_cause(engine, status);
        weights_export_discard(&file);
        return status;
    }
    return engine->grid.rank == 0 ? export_index(engine, directory) : STATUS_OK;
}

/* How long a rank that was stopped by others waits to hear why. */
#define CAUSE_WAIT_S 2.0

/* A failure of this rank is told to all. Where others failed first, their cause is what this rank
 * says: its own "cancelled" explains nothing. */
static void tell_failure(struct engine *engine, enum status status)
{
    bool stopped = status == STATUS_ERR_CANCELLED || status == STATUS_ERR_PEER;
    int64_t deadline_ns = clock_deadline(CAUSE_WAIT_S);
    int32_t rank = -1;
    const char *cause = control_abort_cause(engine->control, &rank);

    while (stopped && cause[0] == '\0' && clock_now_ns() < deadline_ns) {
        clock_sleep_ns(CLOCK_MS);
        cause = control_abort_cause(engine->control, &rank);
    }
    if (cause[0] == '\0') {
        control_abort(engine->control, status_last()->message);
    } else if (rank != engine->grid.rank) {
        log_error("the job has ended: %s", cause);
    }
}

/* How long a device may take to end what it is at when the job is over. */
#define DRAIN_WAIT_S 5.0

/* Whether the device has ended everything, so that memory can go back: a kernel that waits for a peer for ever has not. */
static bool device_is_done(struct engine *engine, enum status status)
{
    if (engine->device == NULL || device_tensors_are_here(engine->device)) {
        return true;
    }
    if (status < 0 && engine->comm != NULL) {
        comm_abort(engine->comm); /* what waits for a peer ends, and is waited for below */
        device_watch(engine->device, NULL, NULL);
    }
    if (device_wait(engine->device, NULL, clock_deadline(DRAIN_WAIT_S)) != STATUS_ERR_TIMEOUT) {
        return true;
    }
    log_error("rank %d: its GPU does not end what it is at, action %d was the last to end; its "
              "memory stays until the process ends",
              engine->grid.rank, (int)device_marked(engine->device));
    return false;
}

static enum status close_planes(struct engine *engine)
{
    embedding_sync_close(&engine->sync);
    return control_close(&engine->control);
}

enum status engine_close(struct engine **engine_ref, enum status status)
{
    struct engine *engine = *engine_ref;
    enum status left = STATUS_OK;
    struct comm *comm = NULL;

    if (engine == NULL) {
        return status;
    }
    *engine_ref = NULL;
    if (status < 0 && engine->joined) {
        tell_failure(engine, status);
    }
    if (!device_is_done(engine, status)) {
        /* What the device still uses stays as it is. */
        left = close_planes(engine);
        return status < 0 ? status : left;
    }
    engine_close_data(engine);
    left = close_planes(engine);
    comm = engine->comm;
    __atomic_store_n(&engine->comm, NULL, __ATOMIC_RELEASE);
    stage_worker_release(&engine->worker);
    update_release(&engine->update);
    executor_release(&engine->executor);
    span_ring_release(&engine->spans);
    engine_release_memory(engine);
    comm_close(&comm); /* the block that some of the arenas lay in goes with it */
    plan_destroy(&engine->plan);
    plan_destroy(&engine->evaluation);
    device_close(&engine->device);
    free(engine->welcome);
    free(engine);
    return status < 0 ? status : left;
}
