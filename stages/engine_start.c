#include "stages/engine_start.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stages/engine_data.h"

/* For comm and embedding_sync to find their peers. */
static int64_t start_deadline(const struct engine *engine)
{
    return clock_deadline(engine->config->control.start_timeout_s);
}

static bool is_first(const struct engine *engine)
{
    return engine->grid.pp == 0;
}

static bool is_last(const struct engine *engine)
{
    return engine->grid.pp == engine->grid.shape.pp - 1;
}

int32_t engine_longest_line(const struct engine *engine)
{
    int32_t training = engine->plan->lines[engine->grid.pp].count;
    int32_t evaluation = engine->evaluation->lines[engine->grid.pp].count;

    return training > evaluation ? training : evaluation;
}

void engine_carve(struct engine *engine, bool measure)
{
    size_t message = engine->shape.B * engine->shape.T * engine->shape.C;

    if (measure) {
        arena_measure(&engine->head.arena, "head");
        arena_measure(&engine->landing, "embedding landing");
        arena_measure(&engine->out_buffers, "out buffers");
    }
    head_memory_carve(&engine->head, &engine->shape, &engine->chunk.range);
    if (is_first(engine) && !is_last(engine)) {
        engine->head_landing =
            arena_take_floats(&engine->landing, engine->shape.V * engine->shape.C);
    }
    if (!is_last(engine)) {
        engine->worker.lanes[LANE_F].buffer = arena_take_floats(&engine->out_buffers, message);
    }
    if (!is_first(engine)) {
        engine->worker.lanes[LANE_B].buffer = arena_take_floats(&engine->out_buffers, message);
    }
}

static enum status open_lane(struct engine *engine, int32_t neighbour,
                             enum lane_direction direction, bool sends, struct lane **lane_out)
{
    const struct plan_buffers *buffers =
        plan_buffers_of(engine->plan, sends ? neighbour : engine->grid.pp, 0);
    struct lane_config config = {
        .peer = grid_stage_rank(&engine->grid, neighbour),
        .direction = (int32_t)direction,
        .sends = sends,
        .landings = direction == LANE_F ? buffers->landing_f : buffers->landing_b,
        .landing_bytes = engine->shape.B * engine->shape.T * engine->shape.C * sizeof(float),
    };

    return comm_lane_open(engine->comm, &config, lane_out);
}

static enum status open_lanes(struct engine *engine)
{
    struct worker_lane *lanes = engine->worker.lanes;
    int32_t stage = engine->grid.pp;

    if (!is_first(engine)) {
        TRY(open_lane(engine, stage - 1, LANE_F, false, &lanes[LANE_F].in));
        TRY(open_lane(engine, stage - 1, LANE_B, true, &lanes[LANE_B].out));
    }
    if (!is_last(engine)) {
        TRY(open_lane(engine, stage + 1, LANE_F, true, &lanes[LANE_F].out));
        TRY(open_lane(engine, stage + 1, LANE_B, false, &lanes[LANE_B].in));
    }
    return STATUS_OK;
}

enum status engine_start_planes(struct engine *engine, const struct engine_options *options)
{
    struct comm_config config = {
        .job_directory = options->job_directory,
        .rank = options->rank,
        .world = options->world,
        .crowded = engine_is_crowded(options),
    };
    struct embedding_sync_config sync = {
        .role = is_first(engine) ? EMBEDDING_OWNER : EMBEDDING_HEAD,
        .job_directory = options->job_directory,
        .name = "tp0-dp0",
        .elems = engine->shape.V * engine->shape.C,
        .landing = is_first(engine) ? engine->head_landing : engine->head.copy,
        .cancel = options->cancel,
        .deadline_ns = start_deadline(engine),
    };
    struct comm *comm = NULL;

    if (engine->grid.shape.pp == 1) {
        return STATUS_OK;
    }
    TRY(comm_shm_open(&config, &comm));
    /* From here on an abort of the job reaches the data plane too (engine_open.c). */
    __atomic_store_n(&engine->comm, comm, __ATOMIC_RELEASE);
    TRY(open_lanes(engine));
    TRY(comm_connect(engine->comm, options->cancel, start_deadline(engine)));
    if (is_first(engine) || is_last(engine)) {
        TRY(embedding_sync_open(&sync, &engine->sync));
    }
    return STATUS_OK;
}

static enum status start_update(struct engine *engine, const struct engine_options *options)
{
    const struct config_optimizer *optimizer = &engine->config->optimizer;
    struct update_config config = {
        .lr =
            {
                .kind = optimizer->lr_schedule,
                .max = optimizer->lr,
                .min = optimizer->min_lr,
                .warmup_updates = optimizer->warmup_steps,
                .decay_updates = optimizer->decay_steps,
                .wsd_decay_updates = optimizer->wsd_decay_steps,
            },
        .optimizer =
            {
                .beta1 = optimizer->beta1,
                .beta2 = optimizer->beta2,
                .eps = optimizer->eps,
                .weight_decay = optimizer->weight_decay,
            },
        .grad_clip = optimizer->grad_clip,
        .norm_keys = norm_key_count(&engine->shape),
        .stages = plan_stages(engine->plan),
        .ranks = engine->grid.shape.pp,
    };
    struct update *update = &engine->update;

    TRY(update_init(update, &config));
    update->params = &engine->params;
    update->device = engine->device;
    update->control = engine->control;
    update->sync = engine->sync;
    update->head = &engine->head;
    if (is_first(engine)) {
        update->head_gradient = is_last(engine) ? engine->head.gradient : engine->head_landing;
    }
    update->loader = is_last(engine) ? engine->loader : NULL;
    update->inspect = options->inspect;
    update->inspect_context = options->inspect_context;
    update->mem_bytes = (int64_t)engine->memory.total_bytes;
    return STATUS_OK;
}

enum status engine_start_worker(struct engine *engine, const struct engine_options *options)
{
    struct stage_worker *worker = &engine->worker;
    int32_t longest = engine_longest_line(engine);

    TRY(executor_init(&engine->executor, longest));
    TRY(start_update(engine, options));
    worker->rank = engine->grid.rank;
    worker->stage = engine->grid.pp;
    worker->chunk = &engine->chunk;
    worker->params = &engine->params;
    worker->comm = engine->comm;
    worker->control = engine->control;
    worker->sync = engine->sync;
    worker->update = &engine->update;
    worker->spans = &engine->spans;
    worker->cancel = engine->cancel;
    TRY(fault_read(&worker->fault));
    return stage_worker_init(worker, longest, engine->chunk.slot_count);
}

/* Keys of BARRIER: the first step's targets, time 0 of the traces (the last rank's arrival), then
 * one a pipeline rank: the hash of its line. */
enum {
    BARRIER_TARGETS,
    BARRIER_ORIGIN,
    BARRIER_LINES
};

static enum status barrier_round(struct engine *engine, struct control_key *keys,
                                 struct control_answer *answer)
{
    struct control_value values[3] = {
        {.key = BARRIER_TARGETS},
        {.key = BARRIER_ORIGIN, .number = (double)clock_now_ns()},
        {.key = BARRIER_LINES + engine->grid.pp,
         .bits = plan_line_hash(engine->plan, engine->grid.pp)},
    };
    struct control_round round = {
        .name = "BARRIER",
        .keys = keys,
        .key_count = BARRIER_LINES + engine->grid.shape.pp,
        .values = values,
        .value_count = 3,
        .note = "",
    };
    int64_t targets = 0;

    keys[BARRIER_TARGETS] = (struct control_key){"targets of step 1", CONTROL_SUM};
    keys[BARRIER_ORIGIN] = (struct control_key){"time of the start", CONTROL_MAX};
    for (int32_t stage = 0; stage < engine->grid.shape.pp; stage++) {
        keys[BARRIER_LINES + stage] =
            (struct control_key){"hash of a line of the plan", CONTROL_SAME};
    }
    if (is_last(engine)) {
        TRY(loader_peek_targets(engine->loader, engine->cancel, start_deadline(engine), &targets));
    }
    values[0].number = (double)targets;
    TRY(control_reduce(engine->control, &round, answer, start_deadline(engine)));
    engine->update.outcome.next_targets = (int64_t)answer->numbers[BARRIER_TARGETS];
    engine->origin_ns = (int64_t)answer->numbers[BARRIER_ORIGIN];
    return STATUS_OK;
}

enum status engine_start_barrier(struct engine *engine)
{
    size_t count = (size_t)BARRIER_LINES + (size_t)engine->grid.shape.pp;
    struct control_key *keys = calloc(count, sizeof(*keys));
    struct control_answer answer = {.numbers = calloc(count, sizeof(double))};
    enum status status = STATUS_OK;

    if (keys == NULL || answer.numbers == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "barrier of %zu values", count);
    } else {
        (void)fault_strike(&engine->worker.fault, engine->grid.rank, FAULT_STEP_START, 0,
                           engine->cancel);
        status = barrier_round(engine, keys, &answer);
    }
    free(keys);
    free(answer.numbers);
    return status;
}
