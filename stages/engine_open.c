/* engine_open -- how a stage process comes up: plan, control plane, memory, data plane, data. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "scheduler/prove.h"
#include "stages/checkpoint/weights.h"
#include "stages/engine.h"
#include "stages/engine_start.h"
#include "tensor/stream.h"

/* Spans of one step besides those of the line: waits, transfers, the parts of STEP. */
#define SPANS_MARGIN 1024

static enum status make_plans(struct engine *engine)
{
    struct plan_shape shape;

    config_plan_shape(engine->config, &shape);
    TRY(plan_prove(&shape, &engine->plan));
    shape.schedule = SCHEDULE_FORWARD_ONLY;
    return plan_prove(&shape, &engine->evaluation);
}

static int choose_threads(const struct engine_options *options)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = options->config->train.threads;

    if (threads == 0) {
        threads = cores / (options->local_ranks > 0 ? options->local_ranks : 1);
    }
    if (threads < 1) {
        threads = 1;
    }
    return threads > STREAM_MAX_THREADS ? STREAM_MAX_THREADS : (int)threads;
}

/* The plan as rank 0 tells it to the others: what it is made from, and one hash a line. */
static enum status plan_welcome(const struct engine *engine, char **text_out)
{
    const struct plan_shape *shape = &engine->plan->shape;
    size_t bytes = 256 + (size_t)shape->ranks * 18;
    char *text = malloc(bytes);
    int used = 0;

    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "welcome of %zu bytes", bytes);
    }
    used = snprintf(text, bytes,
                    "schedule %s, pp %d, num_microbatches %d, virtual_stages %d, lane_depth %d, "
                    "early_send %d, embedding_sync %d\n",
                    schedule_text(shape->schedule), shape->ranks, shape->microbatches,
                    shape->virtual_stages, shape->lane_depth, shape->early_send,
                    shape->embedding_sync);
    for (int32_t rank = 0; rank < shape->ranks; rank++) {
        used += snprintf(text + used, bytes - (size_t)used, "%016llx\n",
                         (unsigned long long)plan_line_hash(engine->plan, rank));
    }
    *text_out = text;
    return STATUS_OK;
}

static enum status compare_welcome(const struct engine *engine)
{
    size_t bytes = 0;
    const char *theirs = control_welcome(engine->control, &bytes);
    size_t own_bytes = strlen(engine->welcome);

    if (bytes == own_bytes && memcmp(theirs, engine->welcome, bytes) == 0) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "the plan of rank 0 is another one than rank %d makes: rank 0 has \"%.*s\", "
                       "rank %d \"%.*s\"; all ranks must run the same weir and configuration",
                       engine->grid.rank, (int)strcspn(theirs, "\n"), theirs, engine->grid.rank,
                       (int)strcspn(engine->welcome, "\n"), engine->welcome);
}

static void describe_progress(void *context, int32_t rank, const struct control_progress *progress,
                              char *text, size_t text_bytes)
{
    static const char *const phases[] = {"starting", "in", "evaluating after", "ending after"};
    const struct engine *engine = context;
    int32_t per_stage = engine->grid.shape.tp * engine->grid.shape.dp;
    int32_t stage = rank / per_stage;
    const struct plan *plan =
        progress->phase == UPDATE_PHASE_EVALUATION ? engine->evaluation : engine->plan;
    const char *phase = progress->phase >= 0 && progress->phase <= UPDATE_PHASE_END
                            ? phases[progress->phase]
                            : "in";
    int used = snprintf(text, text_bytes, "stage %d, %s", stage, phase);

    if (used < 0 || (size_t)used >= text_bytes || progress->phase == UPDATE_PHASE_START) {
        return;
    }
    used +=
        snprintf(text + used, text_bytes - (size_t)used, " step %lld", (long long)progress->step);
    if (progress->action >= 0 && stage < plan->shape.ranks &&
        progress->action < plan->lines[stage].count && (size_t)used < text_bytes) {
        char action[64];

        (void)action_print(&plan->lines[stage].actions[progress->action], action, sizeof(action));
        (void)snprintf(text + used, text_bytes - (size_t)used, ", action %d (%s)", progress->action,
                       action);
    }
}

static void abort_planes(void *context)
{
    struct engine *engine = context;
    struct comm *comm = __atomic_load_n(&engine->comm, __ATOMIC_ACQUIRE);

    if (comm != NULL) {
        comm_abort(comm);
    }
}

static enum status join(struct engine *engine, const struct engine_options *options)
{
    const struct config_control *control = &options->config->control;
    struct control_config config = {
        .job_directory = options->job_directory,
        .rank = options->rank,
        .world = options->world,
        .config_hash = config_hash(options->config),
        .variant = device_variant(engine->device),
        .device = "cpu",
        .heartbeat_s = control->heartbeat_s,
        .dead_after_s = control->dead_after_s,
        .stall_after_s =
            control->stall_after_s < 0.0 ? ENGINE_STALL_START_S : control->stall_after_s,
        .start_timeout_s = control->start_timeout_s,
        .cancel = options->cancel,
        .describe = describe_progress,
        .on_abort = abort_planes,
        .context = engine,
    };

    TRY(plan_welcome(engine, &engine->welcome));
    if (options->rank == 0) {
        config.welcome = engine->welcome;
        config.welcome_bytes = strlen(engine->welcome);
    }
    TRY(control_open(&config, &engine->control));
    engine->joined = true;
    return compare_welcome(engine);
}

static enum status plan_memory(struct engine *engine)
{
    const struct plan_buffers *buffers = plan_buffers_of(engine->plan, engine->grid.pp, 0);
    struct chunk_range range;
    size_t message = engine->shape.B * engine->shape.T * engine->shape.C * sizeof(float);
    size_t landings = (size_t)(buffers->landing_f + buffers->landing_b) * message;
    char text[512];

    chunk_range_of(engine->config, engine->grid.pp, &range);
    TRY(parameters_add(&engine->params, &engine->shape, &range));
    params_measure(&engine->params);
    TRY(chunk_init(&engine->chunk, &engine->shape, &range, buffers->slots, buffers->gradients,
                   engine->device));
    engine_carve(engine, true);
    memory_add(&engine->memory, "params", engine->params.weights.planned_bytes);
    memory_add(&engine->memory, "gradients", engine->params.gradients.planned_bytes);
    memory_add(&engine->memory, "moments", engine->params.moments.planned_bytes);
    memory_add(&engine->memory, "head", engine->head.arena.planned_bytes);
    memory_add(&engine->memory, "embedding landing", engine->landing.planned_bytes);
    memory_add(&engine->memory, "stashes", engine->chunk.stash.planned_bytes);
    memory_add(&engine->memory, "dY", engine->chunk.kept.planned_bytes);
    memory_add(&engine->memory, "workspace", engine->chunk.workspace.planned_bytes);
    memory_add(&engine->memory, "out buffers", engine->out_buffers.planned_bytes);
    memory_add(&engine->memory, "landing buffers", landings);
    memory_print(&engine->memory, engine->grid.pp, text, sizeof(text));
    log_info("%s", text);
    return memory_check(&engine->memory, engine->grid.pp, engine->config->train.memory_limit);
}

static enum status allocate(struct engine *engine)
{
    const struct chunk_range *range = &engine->chunk.range;

    TRY(params_allocate(&engine->params));
    TRY(arena_allocate(&engine->head.arena, true));
    TRY(arena_allocate(&engine->landing, true));
    TRY(arena_allocate(&engine->out_buffers, true));
    TRY(chunk_allocate(&engine->chunk));
    engine_carve(engine, false);
    TRY(chunk_tensors_init(&engine->chunk.weights, &engine->chunk.sums, &engine->params,
                           &engine->head, range));
    return span_ring_init(&engine->spans, 2 * (uint64_t)engine_longest_line(engine) + SPANS_MARGIN);
}

static enum status fill_weights(struct engine *engine)
{
    const struct config *config = engine->config;
    struct param wte;

    if (config->checkpoint.import[0] != '\0') {
        return weights_import(config->checkpoint.import, config->checkpoint.import_prefix,
                              &engine->params, &engine->head, &engine->shape);
    }
    params_initialize(&engine->params, config->train.seed);
    if (engine->head.copy != NULL) {
        parameters_word_embedding(&engine->shape, &wte);
        wte.weight = engine->head.copy;
        params_initialize(&(struct params){.table = &wte, .count = 1}, config->train.seed);
    }
    return STATUS_OK;
}

static enum status start_parts(struct engine *engine, const struct engine_options *options)
{
    TRY(fill_weights(engine));
    TRY(engine_start_planes(engine, options));
    TRY(engine_start_data(engine));
    TRY(engine_start_worker(engine, options));
    return engine_start_barrier(engine);
}

enum status engine_open(const struct engine_options *options, struct engine **engine_out)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    const struct config_parallel *parallel = &options->config->parallel;
    struct grid_shape shape = {
        .pp = (int32_t)parallel->pp, .tp = (int32_t)parallel->tp, .dp = (int32_t)parallel->dp};

    *engine_out = engine;
    if (engine == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "engine of rank %d", options->rank);
    }
    engine->config = options->config;
    engine->cancel = options->cancel;
    TRY(grid_init(&engine->grid, &shape, options->rank, options->world));
    TRY(make_plans(engine));
    model_shape_of(options->config, &engine->shape);
    TRY(device_open(DEVICE_CPU, choose_threads(options), &engine->device));
    TRY(join(engine, options));
    TRY(plan_memory(engine));
    TRY(allocate(engine));
    return start_parts(engine, options);
}
