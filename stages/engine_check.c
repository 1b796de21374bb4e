/* engine_check -- what every rank finds out by itself, and what can be asked before any of them exists. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "scheduler/prove.h"
#include "stages/backends.h"
#include "stages/engine.h"
#include "stages/engine_start.h"
#include "stages/plan_search.h"
#include "tensor/stream.h"

/* Every rank looks for the plan itself, and finds the same one. */
static enum status find_plan(struct engine *engine, int32_t local_ranks)
{
    struct search_result found;
    char text[256];
    enum status status;

    TRY(plan_search_run(engine->config, local_ranks, &found));
    plan_search_print(&found, "by FLOPs", text, sizeof(text));
    if (engine->grid.rank == 0) {
        log_info("schedule auto: %s", text);
    }
    status = plan_prove_made(&found.plan, &engine->plan);
    search_result_release(&found);
    return status;
}

static enum status make_training(struct engine *engine, enum engine_lines lines,
                                 int32_t local_ranks)
{
    const char *path = engine->config->parallel.schedule_file;
    int32_t own = engine->grid.pp;
    struct plan_shape shape;

    config_plan_shape(engine->config, &shape);
    if (shape.schedule == SCHEDULE_AUTO) {
        return find_plan(engine, local_ranks);
    }
    switch (lines) {
    case ENGINE_LINES_PROVED:
        return plan_prove_keeping(&shape, path, own, &engine->plan);
    case ENGINE_LINES_OWN:
        /* A file is nobody's word: every rank proves what it reads, and all lines are compared. */
        return shape.schedule == SCHEDULE_FILE ? plan_prove(&shape, path, &engine->plan)
                                               : plan_make_line(&shape, path, own, &engine->plan);
    default:
        return plan_prove(&shape, path, &engine->plan);
    }
}

enum status engine_make_plans(struct engine *engine, enum engine_lines lines, int32_t local_ranks)
{
    int32_t own = engine->grid.pp;

    TRY(make_training(engine, lines, local_ranks));
    switch (lines) {
    case ENGINE_LINES_PROVED:
        return plan_prove_evaluation_keeping(engine->plan, own, &engine->evaluation);
    case ENGINE_LINES_OWN:
        return plan_make_evaluation_line(engine->plan, own, &engine->evaluation);
    default:
        return plan_prove_evaluation(engine->plan, &engine->evaluation);
    }
}

int engine_threads(const struct config *config, int32_t local_ranks)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = config->train.threads;

    if (threads == 0) {
        threads = cores / (local_ranks > 0 ? local_ranks : 1);
    }
    if (threads < 1) {
        threads = 1;
    }
    return threads > STREAM_MAX_THREADS ? STREAM_MAX_THREADS : (int)threads;
}

/* The same on every rank, where hosts are alike. */
enum status engine_choose_plane(struct engine *engine, const struct engine_options *options)
{
    const bool device = !device_backend_tensors_are_here(engine->backend);

    engine->nccl = device && (options->plane == ENGINE_PLANE_NCCL ||
                              (options->plane == ENGINE_PLANE_AUTO && options->open_nccl != NULL &&
                               options->gpus >= options->local_ranks));
    return !engine->nccl || options->open_nccl != NULL
               ? STATUS_OK
               : status_fail(STATUS_ERR_UNSUPPORTED,
                             "the data plane of rank %d: NCCL, which this build is without",
                             options->rank);
}

/* embedding_sync auto: the data plane where a pair sends more than this each way in a step. */
#define ZMQ_MOST_BYTES ((size_t)64 << 20)

/* Of the first shard and replica, which have no smaller slice than another: so all decide alike. */
bool engine_ties_over_plane(const struct engine *engine)
{
    const enum config_embedding_sync way = engine->config->parallel.embedding_sync;
    const bool here = device_backend_tensors_are_here(engine->backend);
    const size_t shards = engine->shape.shards;
    size_t first = 0;
    size_t elems = 0;

    if (!plan_syncs(engine->plan) || way == EMBEDDING_SYNC_ZMQ) {
        return false;
    }
    comm_slice((engine->shape.V + shards - 1) / shards * engine->shape.C, engine->grid.shape.dp, 0,
               &first, &elems);
    return way == EMBEDDING_SYNC_DATA_PLANE ||
           ((here || engine->nccl) && elems * sizeof(float) > ZMQ_MOST_BYTES);
}

bool engine_ties_by_lanes(const struct engine *engine)
{
    return !device_backend_tensors_are_here(engine->backend) && engine_ties_over_plane(engine);
}

bool engine_overlaps_reduce(const struct engine *engine, int32_t local_ranks)
{
    const struct config *config = engine->config;
    enum config_auto asked = config->parallel.overlap_grad_reduce;
    long busy = (long)local_ranks * (engine_threads(config, local_ranks) + 1);

    if (config->parallel.dp == 1 || config->parallel.zero_stage == 0) {
        return false;
    }
    if (!device_backend_tensors_are_here(engine->backend)) {
        return engine->nccl && asked != CONFIG_FALSE;
    }
    return asked == CONFIG_AUTO ? busy <= sysconf(_SC_NPROCESSORS_ONLN) : asked == CONFIG_TRUE;
}

enum status engine_measure_rank(const struct config *config, const struct plan *training,
                                const struct plan *evaluation, int32_t local_ranks, int32_t rank,
                                struct memory_table *table_out)
{
    struct grid_shape shape = config_grid_shape(config);
    /* Measuring only reads them. */
    struct engine engine = {.config = config,
                            .plan = (struct plan *)training,
                            .evaluation = (struct plan *)evaluation,
                            .backend = backend_planned(config),
                            .threads = engine_threads(config, local_ranks)};
    enum status status = STATUS_OK;

    TRY(grid_init(&engine.grid, &shape, rank, shape.pp * shape.tp * shape.dp));
    engine.nccl = backend_plans_nccl(engine.backend, local_ranks);
    engine.replicas = replicas_of(config, engine.grid.dp);
    engine.buckets.overlaps = engine_overlaps_reduce(&engine, local_ranks);
    engine.workspace.tp = (struct tensor_parallel){.size = shape.tp, .index = engine.grid.tp};
    model_shape_of(config, engine.grid.tp, &engine.shape);
    status = engine_measure_memory(&engine);
    *table_out = engine.memory;
    engine_release_memory(&engine);
    return status;
}

enum status engine_measure_job(const struct config *config, const struct plan *training,
                               const struct plan *evaluation, int32_t local_ranks,
                               struct memory_table *tables, int32_t *largest_out)
{
    struct grid_shape shape = config_grid_shape(config);
    int32_t largest = 0;

    for (int32_t rank = 0; rank < shape.pp * shape.tp * shape.dp; rank++) {
        TRY(engine_measure_rank(config, training, evaluation, local_ranks, rank, &tables[rank]));
        if (tables[rank].total_bytes > tables[largest].total_bytes) {
            largest = rank;
        }
    }
    *largest_out = largest;
    return STATUS_OK;
}

static enum status check_memory(const struct engine *job, int32_t local_ranks)
{
    const struct grid_shape *shape = &job->grid.shape;
    int32_t ranks = shape->pp * shape->tp * shape->dp;
    struct memory_table *tables = calloc((size_t)ranks, sizeof(*tables));
    char place[GRID_PLACE_BYTES];
    int32_t largest = 0;
    enum status status = STATUS_OK;

    if (tables == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "the memory of %d ranks", ranks);
    }
    status =
        engine_measure_job(job->config, job->plan, job->evaluation, local_ranks, tables, &largest);
    if (status >= 0) {
        (void)grid_place_text(shape, largest, place, sizeof(place));
        status = memory_check(&tables[largest], place, job->config->train.memory_limit);
    }
    free(tables);
    return status;
}

enum status engine_check_backend(const struct config *config, const struct device_backend *backend)
{
    int64_t heads = config->model.num_heads;
    size_t head_size = (size_t)(config->model.hidden_size / heads);
    size_t most = device_backend_most_head_size(backend);

    if (most > 0 && head_size > most) {
        return status_fail(STATUS_ERR_REFUSED,
                           "model.num_heads: %" PRId64 ": heads of %zu, on a GPU they have at most "
                           "%zu",
                           heads, head_size, most);
    }
    if (config->parallel.sequence_slices > 1 && !device_backend_tensors_are_here(backend)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "parallel.sequence_slices: %" PRId64
                           ": on a GPU sequences are whole; set it to 1, or parallel.device to cpu",
                           config->parallel.sequence_slices);
    }
    if (config->trace.nvtx && !device_backend_has_ranges(backend)) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "trace.nvtx: true: NVIDIA's profilers look at GPUs, and this run computes "
            "on CPUs; legal here: false");
    }
    if (config->precision.tf32 && device_backend_kind(backend) != DEVICE_CUDA) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "precision.tf32: true: CPUs multiply in fp32 alone, and this run computes on "
            "CPUs; legal here: false");
    }
    return STATUS_OK;
}

enum status engine_check(const struct config *config, int32_t local_ranks, bool proves)
{
    enum engine_lines lines = proves ? ENGINE_LINES_PROVED : ENGINE_LINES_OWN;
    struct engine job = {
        .config = config,
        .grid = {.shape = config_grid_shape(config)},
    };
    const struct device_backend *backend = NULL;
    enum status status = backend_choose(config, &backend);

    if (status >= 0) {
        /* Whose memory is measured has its buffers and its line counted. */
        lines = config->train.memory_limit > 0 ? ENGINE_LINES_ALL : lines;
        status = engine_make_plans(&job, lines, local_ranks);
    }
    if (status >= 0) {
        status = engine_check_backend(config, backend);
    }
    if (status >= 0 && config->train.memory_limit > 0) {
        status = check_memory(&job, local_ranks);
    }
    plan_destroy(&job.plan);
    plan_destroy(&job.evaluation);
    return status;
}
