#include "stages/plan_search.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/generate.h"
#include "scheduler/prove.h"
#include "stages/engine.h"
#include "stages/model/chunk.h"
#include "stages/model/flops.h"

#define SEED 1

/* A rank of a CPU or a GPU does some ten operations while it moves a byte to a neighbour. */
#define FLOPS_A_BYTE 10.0

/* Actions of all timed orders together, some tenths of a second to a second of one core; and the most of
 * one plan. */
#define MOST_TIMED_ACTIONS INT64_C(30000000)
#define LEAST_EVALUATIONS  200
#define MOST_EVALUATIONS   50000
#define MOST_ACTIONS       INT64_C(3000000)

#define VARIANTS 2

/* What one placement costs and holds. */
struct placed {
    int32_t *rank_of; /* owns, with what follows; by virtual stage */
    double *F;
    double *I;
    double *W;
    int64_t *stash;
    int64_t *gradient;
    int64_t *landing;
    int64_t *fixed; /* by rank */
    int64_t *limit; /* by rank */
    void *memory;   /* owns all of the above */
};

/* False where memory is short. */
static bool placed_init(struct placed *placed, size_t stages, size_t ranks)
{
    size_t longs = 6 * stages + 2 * ranks;

    _Static_assert(sizeof(double) == sizeof(int64_t), "one size fits all");
    placed->memory = calloc(longs * sizeof(int64_t) + stages * sizeof(int32_t), 1);
    if (placed->memory == NULL) {
        return false;
    }
    placed->F = placed->memory;
    placed->I = placed->F + stages;
    placed->W = placed->I + stages;
    placed->stash = (int64_t *)(void *)(placed->W + stages);
    placed->gradient = placed->stash + stages;
    placed->landing = placed->gradient + stages;
    placed->fixed = placed->landing + stages;
    placed->limit = placed->fixed + ranks;
    placed->rank_of = (int32_t *)(void *)(placed->limit + ranks);
    return true;
}

/* Bytes of one slot and one gradient set of a virtual stage, on the shard that has most. */
static enum status measure_buffers(const struct config *config, int32_t stage,
                                   struct placed *placed)
{
    struct workspace workspace;
    struct model_shape shape;
    struct chunk_range range;
    struct chunk chunk;
    enum status status;

    memset(&workspace, 0, sizeof(workspace));
    memset(&chunk, 0, sizeof(chunk));
    model_shape_of(config, 0, &shape);
    chunk_range_of(config, stage, &range);
    status = chunk_init(&chunk, &shape, &range, 1, 1, 0, &workspace, NULL);
    placed->stash[stage] = (int64_t)chunk.stash.planned_bytes;
    placed->gradient[stage] = (int64_t)(chunk.kept.planned_bytes + chunk.again.planned_bytes);
    placed->landing[stage] = (int64_t)model_message_bytes(&shape);
    chunk_release(&chunk);
    return status;
}

static enum status fill_costs(const struct config *config, struct placed *placed, int32_t stages)
{
    for (int32_t stage = 0; stage < stages; stage++) {
        struct flops flops = flops_of_stage(config, stage);

        placed->F[stage] = flops.F;
        placed->I[stage] = flops.I;
        placed->W[stage] = flops.W;
        TRY(measure_buffers(config, stage, placed));
    }
    return STATUS_OK;
}

/* Of a rank, what no plan changes. */
static int64_t fixed_bytes(const struct memory_table *table)
{
    return (int64_t)(table->total_bytes - table->bytes[MEMORY_STASHES] - table->bytes[MEMORY_DY] -
                     table->bytes[MEMORY_RECOMPUTED] - table->bytes[MEMORY_LANDING]);
}

/* By pipeline rank, of the shard and replica that holds most. */
static void take_fixed(const struct config *config, const struct memory_table *tables,
                       struct placed *placed)
{
    struct grid_shape grid = config_grid_shape(config);
    int32_t of_stage = grid.tp * grid.dp;

    for (int32_t rank = 0; rank < grid.pp * of_stage; rank++) {
        int64_t bytes = fixed_bytes(&tables[rank]);
        int64_t *most = &placed->fixed[rank / of_stage];

        *most = bytes > *most ? bytes : *most;
    }
}

/* Measures a job with a plan on this placement; any will do. */
static enum status measure_fixed(const struct config *config, int32_t local_ranks,
                                 const struct plan *training, struct placed *placed)
{
    struct grid_shape grid = config_grid_shape(config);
    size_t world = (size_t)grid.pp * (size_t)grid.tp * (size_t)grid.dp;
    struct memory_table *tables = calloc(world, sizeof(*tables));
    struct plan *evaluation = NULL;
    int32_t largest = 0;
    enum status status;

    if (tables == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "schedule auto: the memory of %zu ranks", world);
    }
    TRY_OR(done, status, plan_prove_evaluation(training, &evaluation));
    TRY_OR(done, status,
           engine_measure_job(config, training, evaluation, local_ranks, tables, &largest));
    take_fixed(config, tables, placed);
done:
    plan_destroy(&evaluation);
    free(tables);
    return status;
}

static enum status fill_memory(const struct config *config, int32_t local_ranks,
                               const struct plan *training, struct placed *placed,
                               struct search_variant *variant)
{
    int32_t ranks = training->shape.ranks;

    variant->memory = (struct search_memory){.limit = placed->limit, .stash = placed->stash};
    if (config->train.memory_limit <= 0) {
        for (int32_t stage = 0; stage < plan_stages(training); stage++) {
            placed->limit[placed->rank_of[stage]] += (2 * ranks - 1) * placed->stash[stage];
        }
        return STATUS_OK;
    }
    TRY(measure_fixed(config, local_ranks, training, placed));
    for (int32_t rank = 0; rank < ranks; rank++) {
        placed->limit[rank] = config->train.memory_limit;
    }
    variant->memory.fixed = placed->fixed;
    variant->memory.gradient = placed->gradient;
    variant->memory.landing = placed->landing;
    return STATUS_OK;
}

/* One placement, from a plan that lies on it. */
static enum status make_variant(const struct config *config, int32_t local_ranks,
                                enum placement placement, struct placed *placed,
                                struct search_variant *variant)
{
    struct plan_shape shape;
    struct plan *training = NULL;
    size_t stages;
    enum status status;

    config_plan_shape(config, &shape);
    shape.schedule = SCHEDULE_BFS;
    shape.placement = placement;
    shape.extra_in_flight = 0;
    stages = (size_t)shape.ranks * (size_t)shape.virtual_stages;
    if (!placed_init(placed, stages, (size_t)shape.ranks)) {
        return status_fail(STATUS_ERR_NO_MEMORY, "schedule auto: no memory for %zu virtual stages",
                           stages);
    }
    TRY(plan_prove(&shape, NULL, &training));
    for (size_t stage = 0; stage < stages; stage++) {
        placed->rank_of[stage] = training->rank_of[stage];
    }
    *variant = (struct search_variant){.shape = shape,
                                       .rank_of = placed->rank_of,
                                       .costs = {.F = placed->F, .I = placed->I, .W = placed->W}};
    status = fill_costs(config, placed, (int32_t)stages);
    variant->costs.message = FLOPS_A_BYTE * (double)placed->landing[0];
    if (status >= 0) {
        status = fill_memory(config, local_ranks, training, placed, variant);
    }
    plan_destroy(&training);
    return status;
}

/* As many as take about the same time whatever the plan's size. */
static enum status count_evaluations(const struct config *config, int64_t *evaluations_out)
{
    int64_t actions =
        3 * config->parallel.pp * config->parallel.virtual_stages * config->train.num_microbatches;
    int64_t evaluations = MOST_TIMED_ACTIONS / actions;

    if (actions > MOST_ACTIONS) {
        return status_fail(STATUS_ERR_REFUSED,
                           "parallel.schedule: auto looks for a plan of at most %" PRId64
                           " actions, pp %" PRId64 " x virtual_stages %" PRId64
                           " x num_microbatches %" PRId64 " makes %" PRId64
                           "; name a schedule, interleaved_1f1b for one",
                           MOST_ACTIONS, config->parallel.pp, config->parallel.virtual_stages,
                           config->train.num_microbatches, actions);
    }
    evaluations = evaluations < LEAST_EVALUATIONS ? LEAST_EVALUATIONS : evaluations;
    *evaluations_out = evaluations > MOST_EVALUATIONS ? MOST_EVALUATIONS : evaluations;
    return STATUS_OK;
}

enum status plan_search_run(const struct config *config, int32_t local_ranks,
                            struct search_result *result_out)
{
    bool zigzag = config->parallel.virtual_stages % 2 == 0;
    struct search_options options = {.seed = SEED, .limit_name = "train.memory_limit"};
    struct search_variant variants[VARIANTS];
    struct placed placed[VARIANTS];
    enum status status;

    memset(placed, 0, sizeof(placed));
    TRY(count_evaluations(config, &options.evaluations));
    TRY_OR(done, status,
           make_variant(config, local_ranks, PLACEMENT_LOOP, &placed[0], &variants[0]));
    if (zigzag) {
        TRY_OR(done, status,
               make_variant(config, local_ranks, PLACEMENT_ZIGZAG, &placed[1], &variants[1]));
    }
    status = search_run(variants, zigzag ? 2 : 1, &options, result_out);
done:
    free(placed[0].memory);
    free(placed[1].memory);
    return status;
}

void plan_search_print(const struct search_result *result, const char *costs, char *text,
                       size_t text_bytes)
{
    /* What a bound leaves open in the last digit is nothing. */
    if (result->gap < 0.0005) {
        (void)snprintf(text, text_bytes, "%s; no order is shorter, %s (%" PRId64 " orders timed)",
                       result->origin, costs, result->evaluations);
        return;
    }
    (void)snprintf(text, text_bytes,
                   "%s; %.1f %% above what no order can beat, %s (%" PRId64 " orders timed)",
                   result->origin, 100.0 * result->gap, costs, result->evaluations);
}
