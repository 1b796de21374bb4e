#include "tests/stages/engine_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/engine.h"
#include "tensor/dtype.h"

struct rig;

struct rig_rank {
    struct rig *rig;
    int32_t rank;
    struct cancel cancel;
    struct config config;
    struct resume resume;
    struct engine *engine;
    enum status status;
    struct rig_result own;
    int64_t skipped;          /* of the whole run, */
    int64_t skipped_in_a_row; /* as train.c counts them */
    pthread_t thread;
};

struct rig {
    struct config *config;
    const struct rig_hooks *hooks;
    char directory[64];
    int32_t world;
    struct rig_rank ranks[RIG_RANKS_MOST];
    pthread_mutex_t mutex; /* of `result` */
    struct rig_result *result;
};

/* The tensor of that name, made at its first mention. */
static struct rig_tensor *find_or_make(struct rig_tensor *tensors, int32_t *count,
                                       const struct param *param)
{
    size_t elems = (size_t)(param->shard.whole_rows * param->shard.whole_cols);
    struct rig_tensor *tensor = tensors;

    while (tensor < tensors + *count && strcmp(tensor->name, param->name) != 0) {
        tensor++;
    }
    if (tensor == tensors + *count && *count < RIG_TENSORS_MOST) {
        (*count)++;
        (void)snprintf(tensor->name, sizeof(tensor->name), "%s", param->name);
        tensor->elems = elems;
        tensor->data = calloc(elems, sizeof(float));
        tensor->seen = calloc(elems, 1);
    }
    return tensor;
}

static void keep_element(struct rig_result *result, struct rig_tensor *tensor, size_t at,
                         float value)
{
    if (tensor->seen[at] == 0) {
        tensor->data[at] = value;
        tensor->seen[at] = 1;
    } else if (rig_bits((double)tensor->data[at]) != rig_bits((double)value)) {
        result->copies_disagree++;
    }
}

/* Elements `first` … of `data`, this rank's shard of the tensor, into their places. */
static void keep(struct rig_result *result, struct rig_tensor *tensors, int32_t *count,
                 const struct param *param, const float *data, size_t first, size_t elems)
{
    struct rig_tensor *tensor = find_or_make(tensors, count, param);

    for (int64_t r = 0; r < param_runs(param); r++) {
        struct param_run run = param_run_at(param, r);

        for (size_t e = 0; e < run.elems; e++) {
            if (run.here + e >= first && run.here + e < first + elems) {
                keep_element(result, tensor, run.whole + e, data[run.here + e]);
            }
        }
    }
}

/* A copy of what lies in the device's memory; the caller frees it. NULL where there is no room. */
static void *bring(struct device *device, const void *from, size_t bytes)
{
    void *here = malloc(bytes > 0 ? bytes : 1);

    if (here != NULL && device_copy(device, here, from, bytes) < 0) {
        free(here);
        here = NULL;
    }
    return here;
}

static void keep_gradients(struct rig_result *result, const struct params *params)
{
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        /* Of a sliced gradient only the own slice is the sum of all replicas. */
        float *own = bring(params->device, param_own_grad(param), param->own_elems * sizeof(*own));

        if (own != NULL) {
            keep(result, result->gradients, &result->gradient_count, param, own - param->own_first,
                 param->own_first, param->own_elems);
        }
        free(own);
    }
}

static void inspect(void *context, const struct params *params)
{
    struct rig_rank *rank = context;
    const struct rig_hooks *hooks = rank->rig->hooks;

    (void)pthread_mutex_lock(&rank->rig->mutex);
    if (rank->engine->attempts == 1) {
        keep_gradients(rank->rig->result, params);
    }
    if (hooks->on_gradients != NULL) {
        hooks->on_gradients(hooks->context, rank->engine);
    }
    (void)pthread_mutex_unlock(&rank->rig->mutex);
}

static enum status look(struct rig_rank *rank)
{
    const struct rig_hooks *hooks = rank->rig->hooks;

    if (hooks->on_step == NULL) {
        return STATUS_OK;
    }
    TRY(engine_settle(rank->engine));
    (void)pthread_mutex_lock(&rank->rig->mutex);
    hooks->on_step(hooks->context, rank->engine);
    (void)pthread_mutex_unlock(&rank->rig->mutex);
    return STATUS_OK;
}

static int count_holes(const struct rig_tensor *tensors, int32_t count)
{
    int holes = 0;

    for (int32_t i = 0; i < count; i++) {
        for (size_t e = 0; e < tensors[i].elems; e++) {
            holes += tensors[i].seen[e] == 0;
        }
    }
    return holes;
}

static enum status evaluate(struct rig_rank *rank, int64_t step)
{
    int64_t every = rank->rig->config->train.eval_every;

    if (every <= 0 || (step + 1) % every != 0) {
        return STATUS_OK;
    }
    return engine_evaluate(rank->engine, SPLIT_VALID, &rank->own.valid_loss[step]);
}

static enum status save(struct rig_rank *rank, int64_t step)
{
    const struct config_checkpoint *checkpoint = &rank->config.checkpoint;
    const struct engine_save saving = {
        .directory = checkpoint->dir,
        .keep = checkpoint->keep,
        .skipped = rank->skipped,
        .skipped_in_a_row = rank->skipped_in_a_row,
    };

    return checkpoint->every > 0 && (step + 1) % checkpoint->every == 0
               ? engine_save(rank->engine, &saving)
               : STATUS_OK;
}

static void count_skips(struct rig_rank *rank, int64_t step)
{
    const struct update_outcome *outcome = &rank->engine->update.outcome;

    rank->skipped += outcome->skipped ? 1 : 0;
    if (!outcome->empty) {
        rank->skipped_in_a_row = outcome->skipped ? rank->skipped_in_a_row + 1 : 0;
    }
    rank->own.skipped[step] = outcome->skipped ? 1 : 0;
    rank->own.skipped_in_a_row[step] = rank->skipped_in_a_row;
}

static enum status run_steps(struct rig_rank *rank)
{
    struct engine *engine = rank->engine;
    const struct config *config = rank->rig->config;

    rank->own.first = engine->attempts;
    rank->skipped = rank->resume.manifest.skipped;
    rank->skipped_in_a_row = rank->resume.manifest.skipped_in_a_row;
    for (int64_t step = engine->attempts; step < config->train.steps; step++) {
        TRY(engine_step(engine));
        rank->own.loss[step] = engine->update.outcome.loss;
        rank->own.norm[step] = engine->update.outcome.grad_norm;
        rank->own.lr[step] = engine->update.outcome.lr;
        rank->own.scale[step] = engine->update.outcome.loss_scale;
        count_skips(rank, step);
        TRY(evaluate(rank, step));
        TRY(look(rank));
        TRY(save(rank, step));
    }
    return engine_settle(engine);
}

/* A model's copy as fp32; the caller frees it. */
static float *widen(struct device *device, const void *there, enum dtype type, size_t elems)
{
    float *wide = calloc(elems > 0 ? elems : 1, sizeof(*wide));
    void *tensor = bring(device, there, elems * dtype_bytes(type));

    for (size_t e = 0; wide != NULL && tensor != NULL && e < elems; e++) {
        const void *at = dtype_const_at(tensor, type, e);
        uint16_t bits = 0;

        if (type == DTYPE_FP32) {
            memcpy(&wide[e], at, sizeof(float));
            continue;
        }
        memcpy(&bits, at, sizeof(bits));
        wide[e] = type == DTYPE_BF16 ? dtype_from_bf16(bits) : dtype_from_fp16(bits);
    }
    free(tensor);
    return wide;
}

/* What this rank updates, and has of the model's copy; keep() counts from the shard's beginning. */
static void keep_param(struct rig_result *result, const struct param *param)
{
    size_t first = param->scattered ? param->own_first : 0;
    size_t elems = param->scattered ? param->own_elems : param->elems;
    float *model = widen(param->device, param->weight, param->type, elems);
    float *own = bring(param->device, param->main, param->own_elems * sizeof(*own));

    if (model == NULL || own == NULL) {
        free(model);
        free(own);
        return;
    }
    keep(result, result->weights, &result->tensors, param, own - param->own_first, param->own_first,
         param->own_elems);
    keep(result, result->models, &result->model_count, param, model - first, first, elems);
    for (size_t e = 0; e < param->own_elems; e++) {
        result->copies_disagree += rig_bits((double)model[param->own_first - first + e]) !=
                                   rig_bits((double)dtype_round(param->type, own[e]));
    }
    free(model);
    free(own);
}

static void keep_copy(struct rig_result *result, const struct engine *engine)
{
    struct param wte;
    float *copy = NULL;

    parameters_head_copy(&engine->shape, &engine->params, &engine->head, &wte);
    copy = widen(engine->device, engine->head.copy, engine->shape.type, wte.elems);
    if (copy != NULL) {
        keep(result, result->copies, &result->copy_count, &wte, copy, 0, wte.elems);
    }
    free(copy);
}

static void keep_weights(struct rig_rank *rank)
{
    struct rig_result *result = rank->rig->result;
    const struct engine *engine = rank->engine;

    (void)pthread_mutex_lock(&rank->rig->mutex);
    for (int32_t i = 0; i < engine->params.count; i++) {
        keep_param(result, &engine->params.table[i]);
    }
    if (engine->head.copy != NULL) {
        keep_copy(result, engine);
    }
    (void)pthread_mutex_unlock(&rank->rig->mutex);
}

/* As train.c does it. */
static enum status find_checkpoint(struct rig_rank *rank)
{
    rank->config = *rank->rig->config;
    if (rank->config.checkpoint.resume != RESUME_MUST) {
        return STATUS_OK;
    }
    TRY(resume_find(&rank->config, &rank->resume));
    TRY(resume_judge(&rank->resume, &rank->config, false));
    resume_settle(&rank->resume, &rank->config);
    return STATUS_OK;
}

static bool ended_by_others(enum status status)
{
    return status == STATUS_ERR_PEER || status == STATUS_ERR_CANCELLED;
}

/* Of a rank that others have ended nothing is kept where one of them has come to its end: it may do so
 * first. */
static void keep_failure(struct rig_result *result, enum status status)
{
    if (result->status >= 0 || (ended_by_others(result->status) && !ended_by_others(status))) {
        result->status = status;
        (void)snprintf(result->message, sizeof(result->message), "%s", status_last()->message);
    }
}

static void *run_rank(void *context)
{
    struct rig_rank *rank = context;
    struct rig *rig = rank->rig;
    struct engine_options options = {
        .config = &rank->config,
        .rank = rank->rank,
        .world = rig->world,
        .local_ranks = rig->world,
        .job_directory = rig->world > 1 ? rig->directory : "",
        .cancel = &rank->cancel,
        .backend = rig->hooks->backend,
        .inspect = inspect,
        .inspect_context = rank,
    };
    enum status status = STATUS_OK;

    if (rig->hooks->on_begin != NULL) {
        rig->hooks->on_begin(rig->hooks->context);
    }
    status = find_checkpoint(rank);
    if (status >= 0) {
        options.resume = rank->resume.place.found ? &rank->resume : NULL;
        if (rig->hooks->on_open != NULL) {
            rig->hooks->on_open(rig->hooks->context, &options);
        }
        status = engine_open(&options, &rank->engine);
    }
    if (status >= 0) {
        status = run_steps(rank);
    }
    if (status >= 0) {
        keep_weights(rank);
    }
    status = engine_close(&rank->engine, status);
    (void)pthread_mutex_lock(&rig->mutex);
    if (status < 0) {
        keep_failure(rig->result, status);
    }
    (void)pthread_mutex_unlock(&rig->mutex);
    resume_release(&rank->resume);
    return NULL;
}

/* Sockets that a killed start or a closed one left. */
static void remove_directory(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *entry = NULL;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    (void)rmdir(path);
}

static void load_config(struct rig *rig, const char *yaml, const char *const *overrides, int count)
{
    char path[128];
    char *copies[64];
    FILE *file = NULL;

    (void)snprintf(path, sizeof(path), "%s/rig.yaml", rig->directory);
    file = fopen(path, "w");
    if (file == NULL) {
        return;
    }
    (void)fputs(yaml, file);
    (void)fclose(file);
    for (int i = 0; i < count; i++) {
        copies[i] = strdup(overrides[i]);
    }
    rig->result->status = config_load(path, copies, count, &rig->config);
    if (rig->result->status < 0) {
        (void)snprintf(rig->result->message, sizeof(rig->result->message), "%s",
                       status_last()->message);
    }
    for (int i = 0; i < count; i++) {
        free(copies[i]);
    }
    (void)unlink(path);
}

static void compare_ranks(struct rig *rig)
{
    struct rig_result *result = rig->result;

    result->first = rig->ranks[0].own.first;
    for (int64_t step = 0; step < result->steps; step++) {
        result->loss[step] = rig->ranks[0].own.loss[step];
        result->norm[step] = rig->ranks[0].own.norm[step];
        result->lr[step] = rig->ranks[0].own.lr[step];
        result->skipped[step] = rig->ranks[0].own.skipped[step];
        result->skipped_in_a_row[step] = rig->ranks[0].own.skipped_in_a_row[step];
        result->scale[step] = rig->ranks[0].own.scale[step];
        result->valid_loss[step] = rig->ranks[0].own.valid_loss[step];
        for (int32_t r = 1; r < rig->world; r++) {
            const struct rig_result *own = &rig->ranks[r].own;

            if (rig_bits(own->loss[step]) != rig_bits(result->loss[step]) ||
                rig_bits(own->norm[step]) != rig_bits(result->norm[step]) ||
                rig_bits(own->lr[step]) != rig_bits(result->lr[step]) ||
                rig_bits(own->scale[step]) != rig_bits(result->scale[step]) ||
                rig_bits(own->valid_loss[step]) != rig_bits(result->valid_loss[step]) ||
                own->skipped[step] != result->skipped[step]) {
                result->ranks_disagree++;
            }
        }
    }
}

void rig_run(const char *yaml, const char *const *overrides, int override_count,
             struct rig_result *result)
{
    rig_run_watched(yaml, overrides, override_count, NULL, result);
}

void rig_run_watched(const char *yaml, const char *const *overrides, int override_count,
                     const struct rig_hooks *hooks, struct rig_result *result)
{
    static const struct rig_hooks nobody = {.context = NULL};
    struct rig *rig = calloc(1, sizeof(*rig));

    memset(result, 0, sizeof(*result));
    if (rig == NULL) {
        result->status = STATUS_ERR_NO_MEMORY;
        return;
    }
    rig->result = result;
    rig->hooks = hooks != NULL ? hooks : &nobody;
    (void)pthread_mutex_init(&rig->mutex, NULL);
    (void)snprintf(rig->directory, sizeof(rig->directory), "/tmp/weir-rig-XXXXXX");
    if (mkdtemp(rig->directory) == NULL) {
        result->status = STATUS_ERR_IO;
        free(rig);
        return;
    }
    load_config(rig, yaml, overrides, override_count);
    if (result->status >= 0 && rig->config != NULL) {
        const struct config_parallel *parallel = &rig->config->parallel;

        rig->world = (int32_t)(parallel->pp * parallel->tp * parallel->dp);
        result->steps = rig->config->train.steps;
        for (int32_t r = 0; r < rig->world; r++) {
            rig->ranks[r].rig = rig;
            rig->ranks[r].rank = r;
            (void)pthread_create(&rig->ranks[r].thread, NULL, run_rank, &rig->ranks[r]);
        }
        for (int32_t r = 0; r < rig->world; r++) {
            (void)pthread_join(rig->ranks[r].thread, NULL);
        }
        compare_ranks(rig);
        result->holes = count_holes(result->weights, result->tensors) +
                        count_holes(result->models, result->model_count) +
                        count_holes(result->gradients, result->gradient_count) +
                        count_holes(result->copies, result->copy_count);
    }
    config_destroy(&rig->config);
    remove_directory(rig->directory);
    (void)pthread_mutex_destroy(&rig->mutex);
    free(rig);
}
