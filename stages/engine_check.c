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

/* Of stage `stage`, the rank that holds most: first shards and first slices are the largest. */
static enum status measure_stage(const struct engine *job, int32_t stage,
                                 struct memory_table *table_out)
{
    struct engine engine = {
        .config = job->config,
        .grid = {.shape = job->grid.shape,
                 .rank = grid_rank_of(&job->grid.shape, stage, 0, 0),
                 .pp = stage},
        .plan = job->plan,
        .evaluation = job->evaluation,
        .replicas = {.size = job->grid.shape.dp},
        .workspace = {.tp = {.size = job->grid.shape.tp}},
        .threads = job->threads,
    };
    enum status status = STATUS_OK;

    model_shape_of(job->config, 0, &engine.shape);
    status = engine_measure_memory(&engine);
    *table_out = engine.memory;
    engine_release_memory(&engine);
    return status;
}

static enum status check_memory(const struct engine *job)
{
    struct memory_table largest = {.count = 0};
    char place[GRID_PLACE_BYTES];
    int32_t where = 0;

    for (int32_t stage = 0; stage < job->grid.shape.pp; stage++) {
        struct memory_table table;

        TRY(measure_stage(job, stage, &table));
        if (table.total_bytes > largest.total_bytes) {
            largest = table;
            where = stage;
        }
    }
    (void)grid_place_text(&job->grid.shape, grid_rank_of(&job->grid.shape, where, 0, 0), place,
                          sizeof(place));
    return memory_check(&largest, place, job->config->train.memory_limit);
}

enum status engine_check(const struct config *config, int32_t local_ranks)
{
    struct engine job = {
        .config = config,
        .grid = {.shape = config_grid_shape(config)},
        .threads = engine_threads(config, local_ranks),
    };
    enum status status = engine_make_plans(&job);

    if (status >= 0 && config->train.memory_limit > 0) {
        status = check_memory(&job);
    }
    plan_destroy(&job.plan);
    plan_destroy(&job.evaluation);
    return status;
}
