/* engine_check -- what every rank finds out by itself, and what can be asked before any of them exists. */
#include <unistd.h>

#include "scheduler/prove.h"
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

enum status engine_measure_rank(const struct config *config, const struct plan *training,
                                const struct plan *evaluation, int32_t local_ranks, int32_t rank,
                                struct memory_table *table_out)
{
    struct grid_shape shape = config_grid_shape(config);
    /* Measuring only reads them. */
    struct engine engine = {.config = config,
                            .plan = (struct plan *)training,
                            .evaluation = (struct plan *)evaluation,
                            .threads = engine_threads(config, local_ranks)};
    enum status status = STATUS_OK;

    TRY(grid_init(&engine.grid, &shape, rank, shape.pp * shape.tp * shape.dp));
    engine.replicas = replicas_of(config, engine.grid.dp);
    engine.workspace.tp = (struct tensor_parallel){.size = shape.tp, .index = engine.grid.tp};
    model_shape_of(config, engine.grid.tp, &engine.shape);
    status = engine_measure_memory(&engine);
    *table_out = engine.memory;
    engine_release_memory(&engine);
    return status;
}

/* Of a stage, its first rank holds most: first shards and first slices are the largest. */
static enum status check_memory(const struct engine *job, int32_t local_ranks)
{
    const struct grid_shape *shape = &job->grid.shape;
    struct memory_table largest = {.total_bytes = 0};
    char place[GRID_PLACE_BYTES];
    int32_t where = 0;

    for (int32_t stage = 0; stage < shape->pp; stage++) {
        int32_t rank = grid_rank_of(shape, stage, 0, 0);
        struct memory_table table;

        TRY(engine_measure_rank(job->config, job->plan, job->evaluation, local_ranks, rank,
                                &table));
        if (table.total_bytes > largest.total_bytes) {
            largest = table;
            where = rank;
        }
    }
    (void)grid_place_text(shape, where, place, sizeof(place));
    return memory_check(&largest, place, job->config->train.memory_limit);
}

enum status engine_check(const struct config *config, int32_t local_ranks)
{
    struct engine job = {
        .config = config,
        .grid = {.shape = config_grid_shape(config)},
    };
    enum status status = engine_make_plans(&job);

    if (status >= 0 && config->train.memory_limit > 0) {
        status = check_memory(&job, local_ranks);
    }
    plan_destroy(&job.plan);
    plan_destroy(&job.evaluation);
    return status;
}
