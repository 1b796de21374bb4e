/* engine_check -- what every rank finds out by itself, and what can be asked before any of them exists. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "scheduler/prove.h"
#include "stages/backends.h"
#include "stages/engine.h"
#include "stages/engine_start.h"
#include "tensor/stream.h"

enum status engine_make_plans(struct engine *engine)
{
    struct plan_shape shape;

    config_plan_shape(engine->config, &shape);
    TRY(plan_prove(&shape, engine->config->parallel.schedule_file, &engine->plan));
    return plan_prove_evaluation(engine->plan, &engine->evaluation);
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

bool engine_overlaps_reduce(const struct config *config, const struct device_backend *backend,
                            int32_t local_ranks)
{
    enum config_auto asked = config->parallel.overlap_grad_reduce;
    long busy = (long)local_ranks * (engine_threads(config, local_ranks) + 1);

    if (config->parallel.dp == 1 || config->parallel.zero_stage == 0 ||
        !device_backend_tensors_are_here(backend)) {
        return false;
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
    engine.replicas = replicas_of(config, engine.grid.dp);
    engine.buckets.overlaps = engine_overlaps_reduce(config, engine.backend, local_ranks);
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

enum status engine_check_backend(const struct config *config, const struct plan *plan,
                                 const struct device_backend *backend)
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
    if (config->parallel.embedding_sync == EMBEDDING_SYNC_DATA_PLANE && plan_syncs(plan) &&
        !device_backend_tensors_are_here(backend)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "parallel.embedding_sync: data_plane: on a GPU the tied embedding "
                           "travels by zmq");
    }
    return STATUS_OK;
}

enum status engine_check(const struct config *config, int32_t local_ranks)
{
    struct engine job = {
        .config = config,
        .grid = {.shape = config_grid_shape(config)},
    };
    const struct device_backend *backend = NULL;
    enum status status = backend_choose(config, &backend);

    if (status >= 0) {
        status = engine_make_plans(&job);
    }
    if (status >= 0) {
        status = engine_check_backend(config, job.plan, backend);
    }
    if (status >= 0 && config->train.memory_limit > 0) {
        status = check_memory(&job, local_ranks);
    }
    plan_destroy(&job.plan);
    plan_destroy(&job.evaluation);
    return status;
}
