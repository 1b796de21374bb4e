/* engine_memory -- what a stage process holds: planned, checked, allocated. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "mixedprec/grad_norm.h"
#include "scheduler/sequences.h"
#include "stages/engine_data.h"
#include "stages/engine_start.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"

/* Buffers that whichever plan needs more of them asks for. */
static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static enum status plan_chunk(struct engine *engine, int32_t stage)
{
    int32_t place = engine->plan->chunk_of[stage];
    struct worker_chunk *own = &engine->chunks[place];
    const struct plan_buffers *training = plan_buffers_of(engine->plan, engine->grid.pp, place);
    const struct plan_buffers *evaluating =
        plan_buffers_of(engine->evaluation, engine->grid.pp, place);
    int32_t sequences = larger(plan_sequences(engine->plan, engine->grid.pp, place),
                               plan_sequences(engine->evaluation, engine->grid.pp, place));
    struct chunk_range range;

    own->virtual_stage = stage;
    chunk_range_of(engine->config, stage, &range);
    TRY(parameters_add(&engine->params, &engine->shape, &range));
    return chunk_init(&own->chunk, &engine->shape, &range,
                      larger(training->slots, evaluating->slots), training->gradients, sequences,
                      &engine->workspace, engine->device);
}

static enum status plan_chunks(struct engine *engine)
{
    engine->chunk_count = engine->plan->shape.virtual_stages;
    engine->chunks = calloc((size_t)engine->chunk_count, sizeof(*engine->chunks));
    if (engine->chunks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%d chunks", engine->chunk_count);
    }
    for (int32_t stage = 0; stage < plan_stages(engine->plan); stage++) {
        bool own = engine->plan->rank_of[stage] == engine->grid.pp;

        TRY(own ? plan_chunk(engine, stage) : STATUS_OK);
    }
    return STATUS_OK;
}

/* Of the chunk that leaves out most. */
static enum recompute most_recompute(const struct engine *engine)
{
    enum recompute most = RECOMPUTE_NONE;

    for (int32_t i = 0; i < engine->chunk_count; i++) {
        enum recompute recompute = engine->chunks[i].chunk.range.recompute;

        most = recompute > most ? recompute : most;
    }
    return most;
}

/* What the embedding group sends, and what a head gets, on its way between the host and the device. */
static void carve_staging(struct engine *engine, const struct param *wte)
{
    size_t weight_bytes = dtype_bytes(engine->shape.type);

    if (engine_has_embedding(engine)) {
        engine->sync_out = arena_take(&engine->landing, wte->own_elems, weight_bytes);
    } else if (engine_has_head(engine)) {
        engine->sync_out = arena_take_floats(&engine->landing, engine->head.own_elems);
        engine->sync_in = arena_take(&engine->landing, engine->head.own_elems, weight_bytes);
    }
}

/* Measures, or places: what belongs to no chunk. */
static void carve_embedding(struct engine *engine)
{
    const struct param *wte = params_find(&engine->params, "wte.weight");

    head_memory_carve(&engine->head, &engine->shape, engine_has_embedding(engine),
                      engine_has_head(engine));
    if (!plan_syncs(engine->plan) || engine_ties_by_lanes(engine)) {
        return; /* a landing buffer of a lane takes what arrives */
    }
    if (engine_has_embedding(engine)) {
        engine->head_landing = arena_take_floats(&engine->landing, wte->own_elems);
    }
    if (!device_backend_tensors_are_here(engine->backend)) {
        carve_staging(engine, wte);
    }
}

/* Measures, or places. */
static void carve_results(struct engine *engine)
{
    engine->loss_count =
        larger(engine->plan->shape.microbatches, engine->evaluation->shape.microbatches);
    engine->losses =
        arena_take(&engine->results, (size_t)engine->loss_count, sizeof(*engine->losses));
    engine->norm_results = arena_take(&engine->results, grad_norm_result_bytes(&engine->params), 1);
}

static void add_chunk_rows(struct engine *engine)
{
    size_t stashes = 0;
    size_t kept = 0;
    size_t again = 0;
    size_t keys = 0;
    size_t key_sums = 0;

    for (int32_t i = 0; i < engine->chunk_count; i++) {
        stashes += engine->chunks[i].chunk.stash.planned_bytes;
        kept += engine->chunks[i].chunk.kept.planned_bytes;
        again += engine->chunks[i].chunk.again.planned_bytes;
        keys += engine->chunks[i].chunk.sequence_keys.planned_bytes;
        key_sums += engine->chunks[i].chunk.key_sums.planned_bytes;
    }
    memory_add(&engine->memory, MEMORY_STASHES, stashes);
    memory_add(&engine->memory, MEMORY_DY, kept);
    memory_add(&engine->memory, MEMORY_RECOMPUTED, again);
    memory_add(&engine->memory, MEMORY_KEYS, keys);
    memory_add(&engine->memory, MEMORY_KEY_SUMS, key_sums);
}

/* Told once for the job: what there is, and where. */
static void tell_model(const struct engine *engine)
{
    const struct config_parallel *parallel = &engine->config->parallel;
    char split[256] = "";
    char note[512];
    int used = 0;

    if (engine->grid.rank != 0) {
        return;
    }
    for (int32_t i = 0; i < plan_stages(engine->plan) && (size_t)used < sizeof(split); i++) {
        used += snprintf(split + used, sizeof(split) - (size_t)used, " %" PRId64,
                         parallel->layers_per_stage[i]);
    }
    log_info("model: %" PRIu64 " parameters, %zu layers; layers by virtual stage:%s",
             model_parameters(&engine->shape), engine->shape.L, split);
    for (int32_t i = 0; config_note(engine->config, i, note, sizeof(note)); i++) {
        log_warn("%s", note);
    }
}

static enum status fill_table(struct engine *engine)
{
    struct memory_table *memory = &engine->memory;
    size_t data_bytes = 0;
    size_t tied_out = 0;
    size_t tied_in = 0;

    engine_tied_bytes(engine, &tied_out, &tied_in);
    TRY(engine_plan_data(engine, &data_bytes));
    memory->parameters = engine->params.elems;
    memory_add(memory, MEMORY_LIBRARY,
               device_scratch_bytes(engine->backend, &(struct device_config){
                                                         .threads = engine->threads,
                                                         .type = engine->config->precision.dtype}));
    memory_add(memory, MEMORY_PARAMS, engine->params.weights.planned_bytes);
    memory_add(memory, MEMORY_MAIN_PARAMS, engine->params.main.planned_bytes);
    memory_add(memory, MEMORY_GRADIENTS, engine->params.gradients.planned_bytes);
    memory_add(memory, MEMORY_MOMENTS, engine->params.moments.planned_bytes);
    memory_add(memory, MEMORY_HEAD, engine->head.arena.planned_bytes);
    memory_add(memory, MEMORY_EMBEDDING, engine->landing.planned_bytes + tied_in);
    add_chunk_rows(engine);
    memory_add(memory, MEMORY_BUCKETS, engine->buckets.arena.planned_bytes);
    memory_add(memory, MEMORY_GATHERED, engine->gathered.arena.planned_bytes);
    memory_add(memory, MEMORY_WORKSPACE,
               engine->workspace.arena.planned_bytes + engine->results.planned_bytes);
    memory_add(memory, MEMORY_SHARED, engine->workspace.shared.planned_bytes);
    memory_add(memory, MEMORY_OUT, engine->lanes.arena.planned_bytes);
    memory_add(memory, MEMORY_LANDING,
               (size_t)engine->lanes.landings * engine->lanes.message_bytes);
    memory_add(memory, MEMORY_DATA, data_bytes + engine->inputs.arena.planned_bytes);
    return STATUS_OK;
}

/* Replicas of a stage have the same layers, so they all decide alike. */
static void decide_buckets(struct engine *engine)
{
    int32_t layers = 0;
    int32_t most = 0;

    for (int32_t i = 0; i < engine->chunk_count; i++) {
        int32_t own = engine->chunks[i].chunk.range.layers;

        layers += own;
        most = own > most ? own : most;
    }
    engine->replicas.scatters_gradients =
        engine->replicas.scatters_gradients &&
        buckets_save(&engine->buckets, layers, most, engine->replicas.size);
}

enum status engine_measure_memory(struct engine *engine)
{
    bool has_head = engine_has_head(engine);

    params_init(&engine->params, engine->shape.type,
                optimizer_moments(engine->config->optimizer.name));
    TRY(plan_chunks(engine));
    workspace_measure(&engine->workspace, &engine->shape, has_head, most_recompute(engine),
                      device_backend_kernels(engine->backend), engine->threads);
    arena_measure(&engine->head.arena, "head");
    arena_measure(&engine->landing, "embedding landing");
    arena_measure(&engine->results, "results");
    decide_buckets(engine);
    replicas_slice(&engine->replicas, &engine->shape, &engine->params, &engine->head);
    params_measure(&engine->params);
    gathered_measure(&engine->gathered, &engine->params, &engine->shape);
    buckets_measure(&engine->buckets, &engine->params, &engine->shape);
    carve_embedding(engine);
    carve_results(engine);
    engine_plan_inputs(engine);
    TRY(lanes_init(&engine->lanes, engine->plan, engine->evaluation, engine->grid.pp,
                   model_message_bytes(&engine->shape)));
    return fill_table(engine);
}

enum status engine_plan_memory(struct engine *engine)
{
    char place[GRID_PLACE_BYTES];
    char text[512];

    TRY(engine_measure_memory(engine));
    (void)grid_place_text(&engine->grid.shape, engine->grid.rank, place, sizeof(place));
    memory_print(&engine->memory, place, text, sizeof(text));
    tell_model(engine);
    log_info("%s", text);
    return memory_check(&engine->memory, place, engine->config->train.memory_limit);
}

/* The second pass of the arenas has taken what it needed, and nothing is taken after it. */
size_t engine_used_bytes(const struct engine *engine)
{
    const struct stream *stream = device_stream(engine->device);
    size_t bytes = engine->params.weights.used_bytes + engine->params.main.used_bytes +
                   engine->params.gradients.used_bytes + engine->params.moments.used_bytes +
                   engine->head.arena.used_bytes + engine->landing.used_bytes +
                   engine->workspace.arena.used_bytes + engine->workspace.shared.used_bytes +
                   engine->lanes.arena.used_bytes + engine->gathered.arena.used_bytes +
                   engine->buckets.arena.used_bytes + engine->results.used_bytes +
                   engine->inputs.arena.used_bytes + engine_data_bytes(engine);

    for (int32_t i = 0; i < engine->chunk_count; i++) {
        const struct chunk *chunk = &engine->chunks[i].chunk;

        bytes += chunk->stash.used_bytes + chunk->kept.used_bytes + chunk->again.used_bytes +
                 chunk->sequence_keys.used_bytes + chunk->key_sums.used_bytes;
    }
    bytes += (size_t)stream_threads(stream) * stream_scratch_floats(stream) * sizeof(float);
    return bytes + (engine->comm != NULL ? comm_reserved_bytes(engine->comm) : 0);
}

void engine_release_memory(struct engine *engine)
{
    for (int32_t i = 0; i < engine->chunk_count && engine->chunks != NULL; i++) {
        chunk_release(&engine->chunks[i].chunk);
    }
    free(engine->chunks);
    engine->chunks = NULL;
    workspace_release(&engine->workspace);
    gathered_release(&engine->gathered);
    buckets_release(&engine->buckets);
    lanes_release(&engine->lanes);
    replicas_release(&engine->replicas);
    params_release(&engine->params);
    arena_release(&engine->head.arena);
    arena_release(&engine->landing);
    arena_release(&engine->results);
    inputs_release(&engine->inputs);
}

/* What peers read, in the order in which it lies in the block; the same on all ranks of a stage. */
static int list_shared(struct engine *engine, struct arena **arenas)
{
    int count = 0;

    if (engine->shape.shards > 1) {
        arenas[count++] = &engine->workspace.shared;
    }
    if (engine_shares_params(engine)) {
        arenas[count++] = &engine->params.weights;
        arenas[count++] = &engine->params.gradients;
        arenas[count++] = &engine->head.arena;
        arenas[count++] = &engine->buckets.arena;
    }
    if (gathered_any(&engine->gathered) && !device_backend_tensors_are_here(engine->backend)) {
        arenas[count++] = &engine->gathered.arena;
    }
    ENSURE(count <= ENGINE_SHARED_MOST, "%d arenas that peers read", count);
    return count;
}

size_t engine_shared_bytes(struct engine *engine)
{
    struct arena *arenas[ENGINE_SHARED_MOST];
    int count = list_shared(engine, arenas);
    size_t bytes = 0;

    for (int i = 0; i < count; i++) {
        bytes += arenas[i]->planned_bytes;
    }
    return bytes;
}

static void place_shared(struct engine *engine)
{
    struct arena *arenas[ENGINE_SHARED_MOST];
    int count = list_shared(engine, arenas);
    unsigned char *at = engine->comm != NULL ? comm_shared(engine->comm) : NULL;

    /* A stage without layers may have nothing to show. */
    for (int i = 0; at != NULL && i < count; i++) {
        size_t bytes = arenas[i]->planned_bytes;

        arena_place(arenas[i], at);
        at += bytes;
    }
}

static enum status allocate_rest(struct engine *engine, struct arena *arena,
                                 enum device_memory kind)
{
    if (arena->memory != NULL) {
        return STATUS_OK;
    }
    arena_put_on(arena, engine->device, kind);
    return arena_allocate(arena, true);
}

static enum status allocate_chunks(struct engine *engine)
{
    for (int32_t i = 0; i < engine->chunk_count; i++) {
        struct chunk *chunk = &engine->chunks[i].chunk;

        TRY(chunk_allocate(chunk));
        TRY(chunk_tensors_init(&chunk->weights, &chunk->sums, &engine->params, &engine->head,
                               &chunk->range));
        if (gathered_any(&engine->gathered)) {
            chunk->gathered = &engine->gathered;
            gathered_point(&engine->gathered, &chunk->weights, &chunk->range);
        }
        buckets_point(&engine->buckets, &chunk->sums, &chunk->range);
    }
    return STATUS_OK;
}

static enum status prepare_gathered(struct engine *engine)
{
    engine->gathered.device = engine->device;
    engine->gathered.comm = engine->comm;
    engine->gathered.group = engine->replicas.group;
    engine->gathered.cancel = engine->cancel;
    engine->gathered.replicas = engine->replicas.size;
    engine->gathered.index = engine->replicas.index;
    (void)grid_group_ranks(&engine->grid, GRID_DATA, engine->gathered.ranks);
    return gathered_prepare(&engine->gathered, &engine->params, &engine->shape);
}

static enum status allocate_arenas(struct engine *engine)
{
    engine->params.device = engine->device;
    TRY(params_place(&engine->params));
    TRY(allocate_rest(engine, &engine->head.arena, DEVICE_TENSORS));
    /* Messages of the control plane arrive in it. */
    TRY(allocate_rest(engine, &engine->landing, DEVICE_HOST));
    TRY(allocate_rest(engine, &engine->results, DEVICE_HOST));
    TRY(allocate_rest(engine, &engine->workspace.arena, DEVICE_TENSORS));
    TRY(allocate_rest(engine, &engine->workspace.shared, DEVICE_TENSORS));
    return inputs_allocate(&engine->inputs, engine->device);
}

enum status engine_allocate(struct engine *engine)
{
    place_shared(engine);
    engine->workspace.scratch.device = engine->device;
    TRY(allocate_arenas(engine));
    workspace_place(&engine->workspace, &engine->shape, engine_has_head(engine),
                    most_recompute(engine), device_backend_kernels(engine->backend),
                    engine->threads);
    carve_embedding(engine);
    carve_results(engine);
    TRY(prepare_gathered(engine));
    engine->buckets.device = engine->device;
    TRY(buckets_prepare(&engine->buckets, &engine->params, &engine->shape));
    engine->replicas.by_layer = buckets_any(&engine->buckets);
    TRY(replicas_prepare(&engine->replicas, &engine->params, &engine->head));
    TRY(lanes_allocate(&engine->lanes, engine->device));
    return allocate_chunks(engine);
}
