#include "stages/engine_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/comm_staged.h"
#include "collectives/cuda/comm_nccl.h"
#include "stages/engine_data.h"

/* For comm and embedding_sync to find their peers. */
static int64_t start_deadline(const struct engine *engine)
{
    return clock_deadline(engine->config->control.start_timeout_s);
}

bool engine_has_embedding(const struct engine *engine)
{
    return engine->plan->rank_of[0] == engine->grid.pp;
}

bool engine_has_head(const struct engine *engine)
{
    return engine->plan->rank_of[plan_stages(engine->plan) - 1] == engine->grid.pp;
}

int32_t engine_longest_line(const struct engine *engine)
{
    int32_t training = engine->plan->lines[engine->grid.pp].count;
    int32_t evaluation = engine->evaluation->lines[engine->grid.pp].count;

    return training > evaluation ? training : evaluation;
}

/* The embedding group is on two ranks, and this is one of them. */
static bool syncs(const struct engine *engine)
{
    return plan_syncs(engine->plan) && (engine_has_embedding(engine) || engine_has_head(engine));
}

/* Each end reads the other's block. */
static bool reads_peer(const struct engine *engine)
{
    return syncs(engine) && device_backend_tensors_are_here(engine->backend) &&
           engine_ties_over_plane(engine);
}

bool engine_shares_params(const struct engine *engine)
{
    return engine->grid.shape.dp > 1 || reads_peer(engine);
}

/* The rank at the other end of the embedding group. */
static int32_t sync_peer(const struct engine *engine)
{
    int32_t last = plan_stages(engine->plan) - 1;
    int32_t stage = engine->plan->rank_of[engine_has_embedding(engine) ? last : 0];

    return grid_stage_rank(&engine->grid, stage);
}

static enum status open_group(const struct engine *engine, enum grid_group kind, bool aside,
                              struct group **group_out)
{
    int32_t size = grid_group_size(&engine->grid.shape, kind);
    int32_t *ranks = calloc((size_t)size, sizeof(*ranks));
    struct group_config config = {.ranks = ranks, .count = size, .aside = aside};
    enum status status = STATUS_OK;

    if (ranks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "group of %d ranks", size);
    }
    (void)grid_group_ranks(&engine->grid, kind, ranks);
    if (size > 1) {
        status = comm_group_open(engine->comm, &config, group_out);
    }
    free(ranks);
    return status;
}

static enum status open_groups(struct engine *engine)
{
    struct group *pair = NULL;

    TRY(open_group(engine, GRID_TENSOR, false, &engine->workspace.tp.group));
    TRY(open_group(engine, GRID_DATA, false, &engine->replicas.group));
    engine->buckets.group = engine->replicas.group;
    TRY(engine->buckets.overlaps ? open_group(engine, GRID_DATA, true, &engine->buckets.group)
                                 : STATUS_OK);
    /* A group only so that both ends of the embedding map each other's block. */
    return reads_peer(engine) ? open_group(engine, GRID_EMBEDDING, false, &pair) : STATUS_OK;
}

_Static_assert(CONFIG_GROUP_MOST <= COMM_GROUP_MEMBERS, "a legal tp or dp makes a group");

static enum status open_device_comm(const struct engine *engine,
                                    const struct engine_options *options,
                                    const struct comm_config *host, struct comm **comm_out)
{
    const struct comm_nccl_config config = {
        .rank = options->rank,
        .world = options->world,
        .waves = engine->lanes.waves.count + (engine_ties_by_lanes(engine) ? 1 : 0),
        .device = engine->device,
        .control = engine->control,
    };

    return engine->nccl ? options->open_nccl(&config, comm_out)
                        : comm_staged_open(host, engine->device, comm_out);
}

void engine_tied_bytes(const struct engine *engine, size_t *out_bytes, size_t *in_bytes)
{
    const size_t elems = syncs(engine) && engine_ties_by_lanes(engine) ? engine->head.own_elems : 0;
    const size_t gradient = elems * sizeof(float);
    const size_t weights = elems * dtype_bytes(engine->shape.type);
    const bool owner = engine_has_embedding(engine);

    *out_bytes = owner ? weights : gradient;
    *in_bytes = owner ? gradient : weights;
}

static enum status open_tied(struct engine *engine, struct comm *comm)
{
    size_t out_bytes = 0;
    size_t in_bytes = 0;

    engine_tied_bytes(engine, &out_bytes, &in_bytes);
    engine->tied.cancel = engine->cancel;
    return out_bytes > 0 ? tied_lanes_open(&engine->tied, comm, sync_peer(engine),
                                           engine->lanes.waves.count, out_bytes, in_bytes)
                         : STATUS_OK;
}

enum status engine_start_comm(struct engine *engine, const struct engine_options *options)
{
    struct comm_config config = {
        .job_directory = options->job_directory,
        .rank = options->rank,
        .world = options->world,
        .crowded = engine_is_crowded(options),
    };
    size_t shared_bytes = engine_shared_bytes(engine);
    struct comm *comm = NULL;

    if (options->world == 1) {
        return STATUS_OK;
    }
    TRY(device_tensors_are_here(engine->device)
            ? comm_shm_open(&config, &comm)
            : open_device_comm(engine, options, &config, &comm));
    /* From here on an abort of the job reaches the data plane too (engine_open.c). */
    __atomic_store_n(&engine->comm, comm, __ATOMIC_RELEASE);
    TRY(lanes_open(&engine->lanes, engine->plan, engine->evaluation, &engine->grid, comm));
    TRY(open_tied(engine, comm));
    TRY(open_groups(engine));
    if (shared_bytes > 0) {
        TRY(comm_share(comm, shared_bytes));
    }
    return comm_connect(comm, options->cancel, start_deadline(engine));
}

/* Head: straight into its copy, where messages can arrive there. */
static void *weights_landing(const struct engine *engine)
{
    return engine->sync_in != NULL
               ? engine->sync_in
               : dtype_at(engine->head.copy, engine->shape.type, engine->head.own_first);
}

/* On a device what is sent comes to the host while frames of it leave already (stage_worker_stage()). */
static enum status look_what_came(void *context, size_t *bytes_out)
{
    return device_fetched(context, bytes_out);
}

enum status engine_start_sync(struct engine *engine, const struct engine_options *options)
{
    bool owner = engine_has_embedding(engine);
    const struct param *wte = params_find(&engine->params, "wte.weight");
    const struct head_memory *head = &engine->head;
    char name[32];
    struct embedding_sync_config sync = {
        .role = owner ? EMBEDDING_OWNER : EMBEDDING_HEAD,
        .job_directory = options->job_directory,
        .name = name,
        .weight_bytes = dtype_bytes(engine->shape.type),
        .cancel = options->cancel,
        .deadline_ns = start_deadline(engine),
    };

    if (!syncs(engine) || engine_ties_by_lanes(engine)) {
        return STATUS_OK;
    }
    (void)snprintf(name, sizeof(name), "tp%d-dp%d", engine->grid.tp, engine->grid.dp);
    sync.elems = owner ? wte->own_elems : head->own_elems;
    sync.landing = owner ? engine->head_landing : weights_landing(engine);
    if (engine->sync_out != NULL) {
        sync.come = look_what_came;
        sync.come_context = engine->device;
    }
    if (reads_peer(engine)) {
        const void *outgoing =
            owner ? param_own_weight(wte) : (const void *)(head->gradient + head->own_first);

        sync.comm = engine->comm;
        sync.peer = sync_peer(engine);
        sync.shared_offset =
            (size_t)((const char *)outgoing - (const char *)comm_shared(engine->comm));
    }
    return embedding_sync_open(&sync, &engine->sync);
}

/* The head's gradient as the owner adds it: what has arrived, or what lies on the same rank. */
static float *head_gradient(const struct engine *engine)
{
    if (!engine->shape.tied || !engine_has_embedding(engine)) {
        return NULL;
    }
    if (syncs(engine) && engine_ties_by_lanes(engine)) {
        return engine->tied.in != NULL ? comm_landing(engine->tied.in, 0) : NULL;
    }
    return engine->head_landing != NULL ? engine->head_landing
                                        : engine->head.gradient + engine->head.own_first;
}

static struct grad_scaler_config scaler_config(const struct config_precision *precision)
{
    return (struct grad_scaler_config){
        .dynamic = precision->dynamic_scale,
        .initial_scale =
            precision->dynamic_scale ? precision->initial_scale : precision->loss_scale,
        .growth_factor = precision->growth_factor,
        .backoff_factor = precision->backoff_factor,
        .growth_interval = precision->growth_interval,
        .hysteresis = precision->hysteresis,
        .min_scale = precision->min_scale,
    };
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
                .kind = optimizer->name,
                .beta1 = optimizer->beta1,
                .beta2 = optimizer->beta2,
                .eps = optimizer->eps,
                .momentum = optimizer->momentum,
                .weight_decay = {.kind = optimizer->weight_decay_schedule,
                                 .start = optimizer->weight_decay,
                                 .end = optimizer->end_weight_decay,
                                 .updates = optimizer->weight_decay_steps},
            },
        .scaler = scaler_config(&engine->config->precision),
        .log_num_zeros = engine->config->train.log_num_zeros,
        .log_params_norm = engine->config->train.log_params_norm,
        .grad_clip = optimizer->grad_clip,
        .norm_keys = norm_key_count(&engine->shape),
        .stages = plan_stages(engine->plan),
        .ranks = options->world,
        .copy = {.first_shard = engine->grid.tp == 0,
                 .replicas = engine->grid.shape.dp,
                 .replica = engine->grid.dp},
    };
    struct update *update = &engine->update;

    TRY(update_init(update, &config));
    update->params = &engine->params;
    update->device = engine->device;
    update->norm_results = engine->norm_results;
    update->control = engine->control;
    update->sync = engine->sync;
    update->tied = &engine->tied;
    update->head = &engine->head;
    update->replicas = &engine->replicas;
    update->head_gradient = head_gradient(engine);
    update->loader = engine_has_head(engine) ? engine->loader : NULL;
    update->inspect = options->inspect;
    update->inspect_context = options->inspect_context;
    update->mem_bytes = (int64_t)engine->memory.total_bytes;
    return STATUS_OK;
}

enum status engine_start_worker(struct engine *engine, const struct engine_options *options)
{
    struct stage_worker *worker = &engine->worker;
    int32_t longest = engine_longest_line(engine);

    engine->replicas.control = engine->control;
    engine->buckets.control = engine->control;
    engine->buckets.comm = engine->comm;
    engine->workspace.tp.control = engine->control;
    TRY(executor_init(&engine->executor, longest));
    TRY(start_update(engine, options));
    worker->rank = engine->grid.rank;
    (void)grid_place_text(&engine->grid.shape, engine->grid.rank, worker->place,
                          sizeof(worker->place));
    worker->chunks = engine->chunks;
    worker->chunk_count = engine->chunk_count;
    worker->device = engine->device;
    worker->ranges = engine->config->trace.nvtx;
    worker->inputs = &engine->inputs;
    worker->losses = engine->losses;
    worker->loss_count = engine->loss_count;
    worker->sync_out = engine->sync_out;
    worker->sync_in = engine->sync_in;
    worker->gathered = &engine->gathered;
    worker->workspace = &engine->workspace;
    worker->params = &engine->params;
    worker->head = &engine->head;
    worker->comm = engine->comm;
    worker->lanes = &engine->lanes;
    worker->replicas = &engine->replicas;
    worker->buckets = &engine->buckets;
    worker->microbatches = engine->plan->shape.microbatches;
    worker->sampler = (struct sampler){.micro_batch_size = engine->config->train.micro_batch_size,
                                       .replicas = engine->replicas.size,
                                       .replica = engine->replicas.index};
    worker->control = engine->control;
    worker->sync = engine->sync;
    worker->tied = &engine->tied;
    worker->update = &engine->update;
    worker->spans = &engine->spans;
    worker->cancel = engine->cancel;
    return stage_worker_init(worker, longest);
}

/* Keys of BARRIER: the first step's targets, time 0 of the traces (the last rank's arrival), the
 * checkpoint that all go on from, then one a pipeline rank: the hash of its line. */
enum {
    BARRIER_TARGETS,
    BARRIER_ORIGIN,
    BARRIER_CHECKPOINT,
    BARRIER_LINES,
    BARRIER_GIVES = BARRIER_LINES + 1 /* values that a rank gives */
};

/* Of the key of a pipeline rank, so that a refusal says whose line differs. */
struct barrier_name {
    char text[48];
};

static enum status barrier_round(struct engine *engine, const struct resume *resume,
                                 struct control_key *keys, struct barrier_name *names,
                                 struct control_answer *answer)
{
    struct control_value values[BARRIER_GIVES] = {
        {.key = BARRIER_TARGETS},
        {.key = BARRIER_ORIGIN, .number = (double)clock_now_ns()},
        {.key = BARRIER_CHECKPOINT, .bits = resume != NULL ? resume->manifest.xxh3 : 0},
        {.key = BARRIER_LINES + engine->grid.pp,
         .bits = plan_line_hash(engine->plan, engine->grid.pp)},
    };
    struct control_round round = {
        .name = "BARRIER",
        .keys = keys,
        .key_count = BARRIER_LINES + engine->grid.shape.pp,
        .values = values,
        .value_count = BARRIER_GIVES,
        .note = "",
    };
    int64_t targets = 0;

    keys[BARRIER_TARGETS] = (struct control_key){"targets of step 1", CONTROL_SUM};
    keys[BARRIER_ORIGIN] = (struct control_key){"time of the start", CONTROL_MAX};
    keys[BARRIER_CHECKPOINT] =
        (struct control_key){"checkpoint that the run goes on from", CONTROL_SAME};
    for (int32_t stage = 0; stage < engine->grid.shape.pp; stage++) {
        (void)snprintf(names[stage].text, sizeof(names[stage].text), "line of pipeline rank %d",
                       stage);
        keys[BARRIER_LINES + stage] = (struct control_key){names[stage].text, CONTROL_SAME};
    }
    if (engine_has_head(engine) && engine->grid.tp == 0) {
        TRY(loader_peek_targets(engine->loader, engine->cancel, start_deadline(engine), &targets));
    }
    values[0].number = (double)targets;
    TRY(control_reduce(engine->control, &round, answer, start_deadline(engine)));
    engine->update.outcome.next_targets = (int64_t)answer->numbers[BARRIER_TARGETS];
    engine->origin_ns = (int64_t)answer->numbers[BARRIER_ORIGIN];
    return STATUS_OK;
}

enum status engine_start_barrier(struct engine *engine, const struct resume *resume)
{
    size_t count = (size_t)BARRIER_LINES + (size_t)engine->grid.shape.pp;
    struct control_key *keys = calloc(count, sizeof(*keys));
    struct barrier_name *names = calloc((size_t)engine->grid.shape.pp, sizeof(*names));
    struct control_answer answer = {.numbers = calloc(count, sizeof(double))};
    enum status status = STATUS_OK;

    if (keys == NULL || names == NULL || answer.numbers == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "barrier of %zu values", count);
    } else {
        (void)fault_strike(&engine->worker.fault, engine->grid.rank, FAULT_STEP_START, 0,
                           engine->cancel);
        status = barrier_round(engine, resume, keys, names, &answer);
    }
    free(keys);
    free(names);
    free(answer.numbers);
    return status;
}
