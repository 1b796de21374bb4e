/* engine_open -- how a stage process comes up: plan, control plane, memory, data plane, data. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "stages/checkpoint/weights.h"
#include "stages/engine.h"
#include "stages/engine_start.h"
#include "tensor/stream.h"

/* Spans of one step besides those of the line: waits, transfers, the parts of STEP. */
#define SPANS_MARGIN 1024

/* Where a rank's action counts pieces of files. */
static bool moves_files(int32_t phase)
{
    return phase == UPDATE_PHASE_START || phase == UPDATE_PHASE_SAVE || phase == UPDATE_PHASE_END;
}

static void describe_pieces(int32_t pieces, char *text, size_t text_bytes)
{
    if (pieces > 0) {
        (void)snprintf(text, text_bytes, ", %d pieces of files moved", pieces);
    }
}

static bool is_work(const struct action *action)
{
    return action->kind == ACTION_F || action->kind == ACTION_I || action->kind == ACTION_W ||
           action->kind == ACTION_B || action->kind == ACTION_STEP;
}

/* What the device is inside of, or behind. */
static void describe_device(const struct plan_line *line, const struct control_progress *progress,
                            char *text, size_t text_bytes)
{
    int32_t index = progress->device;
    char action[64];

    if (index == CONTROL_NO_DEVICE || index >= line->count) {
        return;
    }
    if (index >= 0 && line->actions[index].kind == ACTION_STEP) {
        index = -1; /* of the step before */
    }
    while (progress->inside && ++index < line->count && !is_work(&line->actions[index])) {
    }
    if (index >= 0 && index < line->count) {
        (void)action_print(&line->actions[index], action, sizeof(action));
        (void)snprintf(text, text_bytes, ", its device %s action %d (%s)",
                       progress->inside ? "inside" : "behind", index, action);
    } else {
        (void)snprintf(text, text_bytes, ", its device before the first action");
    }
}

static void describe_progress(void *context, int32_t rank, const struct control_progress *progress,
                              char *text, size_t text_bytes)
{
    static const char *const phases[] = {"starting", "in", "evaluating after", "saving after",
                                         "ending after"};
    const struct engine *engine = context;
    const struct grid_shape *shape = &engine->grid.shape;
    int32_t stage = rank / (shape->tp * shape->dp);
    const struct plan *plan =
        progress->phase == UPDATE_PHASE_EVALUATION ? engine->evaluation : engine->plan;
    const char *phase = progress->phase >= 0 && progress->phase <= UPDATE_PHASE_END
                            ? phases[progress->phase]
                            : "in";
    char place[GRID_PLACE_BYTES];
    int used = snprintf(text, text_bytes, "%s, %s",
                        grid_place_text(shape, rank, place, sizeof(place)), phase);

    if (used > 0 && (size_t)used < text_bytes && progress->phase != UPDATE_PHASE_START) {
        used += snprintf(text + used, text_bytes - (size_t)used, " step %lld",
                         (long long)progress->step);
    }
    if (used < 0 || (size_t)used >= text_bytes) {
        return;
    }
    if (moves_files(progress->phase)) {
        describe_pieces(progress->action, text + used, text_bytes - (size_t)used);
    } else if (progress->action >= 0 && stage < plan->shape.ranks &&
               progress->action < plan->lines[stage].count) {
        char action[64];

        (void)action_print(&plan->lines[stage].actions[progress->action], action, sizeof(action));
        used += snprintf(text + used, text_bytes - (size_t)used, ", action %d (%s)",
                         progress->action, action);
        if (used > 0 && (size_t)used < text_bytes) {
            describe_device(&plan->lines[stage], progress, text + used, text_bytes - (size_t)used);
        }
    }
}

/* Main threads run ahead of a device, and wait for it where they need a number. */
static void look_at_device(void *context, struct control_progress *progress)
{
    const struct engine *engine = context;
    const struct comm *comm = __atomic_load_n(&engine->comm, __ATOMIC_ACQUIRE);

    progress->device = device_marked(engine->device);
    progress->inside = device_is_inside(engine->device);
    progress->stands = device_is_awaited(engine->device) &&
                       (!progress->inside || (comm != NULL && comm_stands(comm)));
}

/* Of a rank that the fault switch puts on another host. */
static int64_t skewed_now(void *context)
{
    const struct engine *engine = context;

    return fault_clock_ns(&engine->worker.fault, clock_now_ns());
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
        .device = device_backend_kind(engine->backend) == DEVICE_CPU ? "cpu" : "cuda",
        .heartbeat_s = control->heartbeat_s,
        .dead_after_s = control->dead_after_s,
        .stall_after_s =
            control->stall_after_s < 0.0 ? ENGINE_STALL_START_S : control->stall_after_s,
        .start_timeout_s = control->start_timeout_s,
        .cancel = options->cancel,
        .describe = describe_progress,
        .on_abort = abort_planes,
        .look = device_tensors_are_here(engine->device) ? NULL : look_at_device,
        .now = fault_skews(&engine->worker.fault, options->rank) ? skewed_now : NULL,
        .context = engine,
    };

    TRY(engine_write_welcome(engine));
    if (options->rank == 0) {
        config.welcome = engine->welcome;
        config.welcome_bytes = strlen(engine->welcome);
    }
    TRY(control_open(&config, &engine->control));
    TRY(engine_compare_plans(engine));
    if (engine->grid.rank == 0) {
        return STATUS_OK; /* it tells of every rank what it is at */
    }
    TRY(plan_keep_line(engine->plan, engine->grid.pp));
    return plan_keep_line(engine->evaluation, engine->grid.pp);
}

static enum status fill_weights(struct engine *engine, const struct resume *resume)
{
    const struct config *config = engine->config;
    const struct piece_watch watch = engine_watch(engine);
    struct param wte;

    if (resume != NULL) {
        return engine_load(engine, resume);
    }
    if (config->checkpoint.import[0] != '\0') {
        /* Together: who is done waits in a round, and is not taken for one that hangs. */
        return engine_agree(engine, &(struct control_round){.name = "IMPORT"}, NULL,
                            weights_import(config->checkpoint.import,
                                           config->checkpoint.import_prefix, &engine->params,
                                           &engine->head, &engine->shape, &watch));
    }
    TRY(params_initialize(&engine->params, config->train.seed));
    if (engine->head.copy == NULL) {
        return STATUS_OK;
    }
    parameters_head_copy(&engine->shape, &engine->params, &engine->head, &wte);
    return params_initialize(&(struct params){.table = &wte, .count = 1}, config->train.seed);
}

/* All that is planned, and in it the weights. */
static enum status start_memory(struct engine *engine, const struct engine_options *options)
{
    TRY(engine_start_comm(engine, options));
    TRY(engine_allocate(engine));
    TRY(span_ring_init(&engine->spans, 2 * (uint64_t)engine_longest_line(engine) + SPANS_MARGIN));
    return fill_weights(engine, options->resume);
}

static enum status start_parts(struct engine *engine, const struct engine_options *options)
{
    TRY(start_memory(engine, options));
    TRY(engine_start_sync(engine, options));
    TRY(engine_start_data(engine, options->resume));
    TRY(engine_start_worker(engine, options));
    TRY(options->resume != NULL ? engine_restore(engine, options->resume) : STATUS_OK);
    return engine_start_barrier(engine, options->resume);
}

/* What it computes on, and what follows from it. */
static enum status open_device(struct engine *engine, const struct engine_options *options)
{
    TRY(engine_check_backend(options->config, engine->backend));
    TRY(engine_choose_plane(engine, options));
    engine->buckets.overlaps = engine_overlaps_reduce(engine, options->local_ranks);
    engine->threads = engine_threads(options->config, options->local_ranks);
    return device_open(
        engine->backend,
        &(struct device_config){.threads = engine->threads,
                                .type = options->config->precision.dtype,
                                .tf32 = options->config->precision.tf32,
                                .cancel = options->cancel,
                                .ordinal = options->ordinal,
                                .stamps = stage_worker_stamps(engine_longest_line(engine))},
        &engine->device);
}

enum status engine_open(const struct engine_options *options, struct engine **engine_out)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    struct grid_shape shape = config_grid_shape(options->config);

    *engine_out = engine;
    if (engine == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "engine of rank %d", options->rank);
    }
    engine->config = options->config;
    engine->cancel = options->cancel;
    TRY(fault_read(&engine->worker.fault));
    TRY(grid_init(&engine->grid, &shape, options->rank, options->world));
    TRY(engine_make_plans(engine, options->rank == 0 ? ENGINE_LINES_ALL : ENGINE_LINES_OWN,
                          options->local_ranks));
    model_shape_of(options->config, engine->grid.tp, &engine->shape);
    engine->replicas = replicas_of(options->config, engine->grid.dp);
    engine->replicas.cancel = options->cancel;
    engine->buckets.cancel = options->cancel;
    engine->backend = options->backend != NULL ? options->backend : device_cpu();
    engine->workspace.tp = (struct tensor_parallel){
        .size = engine->grid.shape.tp, .index = engine->grid.tp, .cancel = options->cancel};
    TRY(open_device(engine, options));
    TRY(join(engine, options));
    TRY(engine_plan_memory(engine));
    return start_parts(engine, options);
}
