#include "tests/stages/engine_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/engine.h"

struct rig;

struct rig_rank {
    struct rig *rig;
    int32_t rank;
    struct cancel cancel;
    struct engine *engine;
    enum status status;
    struct rig_result own;
    pthread_t thread;
};

struct rig {
    struct config *config;
    char directory[64];
    int32_t world;
    struct rig_rank ranks[RIG_RANKS_MOST];
    pthread_mutex_t mutex; /* of `result` */
    struct rig_result *result;
    int failed;
};

uint64_t rig_bits(double value)
{
    uint64_t bits = 0;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void keep(struct rig_tensor *tensors, int32_t *count, const struct param *param,
                 const float *data)
{
    struct rig_tensor *tensor = &tensors[(*count)++];

    (void)snprintf(tensor->name, sizeof(tensor->name), "%s", param->name);
    tensor->elems = param->elems;
    tensor->data = malloc(param->elems * sizeof(float));
    if (tensor->data != NULL) {
        memcpy(tensor->data, data, param->elems * sizeof(float));
    }
}

static void inspect(void *context, const struct params *params)
{
    struct rig_rank *rank = context;
    struct rig_result *result = rank->rig->result;
    int32_t first = 0;

    if (rank->engine == NULL || rank->engine->attempts != 1) {
        return;
    }
    (void)pthread_mutex_lock(&rank->rig->mutex);
    while (first < RIG_TENSORS_MOST && result->gradients[first].data != NULL) {
        first++;
    }
    for (int32_t i = 0; i < params->count; i++) {
        keep(result->gradients, &first, &params->table[i], params->table[i].grad);
    }
    (void)pthread_mutex_unlock(&rank->rig->mutex);
}

static enum status evaluate(struct rig_rank *rank, int64_t step)
{
    int64_t every = rank->rig->config->train.eval_every;

    if (every <= 0 || (step + 1) % every != 0) {
        return STATUS_OK;
    }
    return engine_evaluate(rank->engine, SPLIT_VALID, &rank->own.valid_loss[step]);
}

static enum status run_steps(struct rig_rank *rank)
{
    struct engine *engine = rank->engine;
    const struct config *config = rank->rig->config;

    for (int64_t step = 0; step < config->train.steps; step++) {
        TRY(engine_step(engine));
        rank->own.loss[step] = engine->update.outcome.loss;
        rank->own.norm[step] = engine->update.outcome.grad_norm;
        rank->own.lr[step] = engine->update.outcome.lr;
        rank->own.skipped[step] = engine->update.outcome.skipped ? 1 : 0;
        TRY(evaluate(rank, step));
    }
    if (engine->sync != NULL && engine->head.copy != NULL) {
        TRY(embedding_sync_wait_version(engine->sync, engine->update.updates, INT64_MAX));
    }
    return STATUS_OK;
}

static void keep_weights(struct rig_rank *rank)
{
    struct rig_result *result = rank->rig->result;
    const struct engine *engine = rank->engine;
    int32_t copies = 0;

    (void)pthread_mutex_lock(&rank->rig->mutex);
    for (int32_t i = 0; i < engine->params.count; i++) {
        keep(result->weights, &result->tensors, &engine->params.table[i],
             engine->params.table[i].weight);
    }
    if (engine->head.copy != NULL) {
        struct param wte;

        parameters_word_embedding(&engine->shape, &wte);
        keep(result->copies, &copies, &wte, engine->head.copy);
    }
    (void)pthread_mutex_unlock(&rank->rig->mutex);
}

static void *run_rank(void *context)
{
    struct rig_rank *rank = context;
    struct rig *rig = rank->rig;
    struct engine_options options = {
        .config = rig->config,
        .rank = rank->rank,
        .world = rig->world,
        .local_ranks = rig->world,
        .job_directory = rig->world > 1 ? rig->directory : "",
        .cancel = &rank->cancel,
        .inspect = inspect,
        .inspect_context = rank,
    };
    enum status status = engine_open(&options, &rank->engine);

    if (status >= 0) {
        status = run_steps(rank);
    }
    if (status >= 0) {
        keep_weights(rank);
    }
    status = engine_close(&rank->engine, status);
    (void)pthread_mutex_lock(&rig->mutex);
    if (status < 0 && rig->failed++ == 0) {
        rig->result->status = status;
        (void)snprintf(rig->result->message, sizeof(rig->result->message), "%s",
                       status_last()->message);
    }
    (void)pthread_mutex_unlock(&rig->mutex);
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

    for (int64_t step = 0; step < result->steps; step++) {
        result->loss[step] = rig->ranks[0].own.loss[step];
        result->norm[step] = rig->ranks[0].own.norm[step];
        result->lr[step] = rig->ranks[0].own.lr[step];
        result->skipped[step] = rig->ranks[0].own.skipped[step];
        result->valid_loss[step] = rig->ranks[0].own.valid_loss[step];
        for (int32_t r = 1; r < rig->world; r++) {
            const struct rig_result *own = &rig->ranks[r].own;

            if (rig_bits(own->loss[step]) != rig_bits(result->loss[step]) ||
                rig_bits(own->norm[step]) != rig_bits(result->norm[step])) {
                result->ranks_disagree++;
            }
        }
    }
}

void rig_run(const char *yaml, const char *const *overrides, int override_count,
             struct rig_result *result)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    memset(result, 0, sizeof(*result));
    if (rig == NULL) {
        result->status = STATUS_ERR_NO_MEMORY;
        return;
    }
    rig->result = result;
    (void)pthread_mutex_init(&rig->mutex, NULL);
    (void)snprintf(rig->directory, sizeof(rig->directory), "/tmp/weir-rig-XXXXXX");
    if (mkdtemp(rig->directory) == NULL) {
        result->status = STATUS_ERR_IO;
        free(rig);
        return;
    }
    load_config(rig, yaml, overrides, override_count);
    if (result->status >= 0 && rig->config != NULL) {
        rig->world = (int32_t)rig->config->parallel.pp;
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
    }
    config_destroy(&rig->config);
    remove_directory(rig->directory);
    (void)pthread_mutex_destroy(&rig->mutex);
    free(rig);
}

const struct rig_tensor *rig_find(const struct rig_tensor *tensors, int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

void rig_release(struct rig_result *result)
{
    for (int32_t i = 0; i < RIG_TENSORS_MOST; i++) {
        free(result->gradients[i].data);
        free(result->weights[i].data);
    }
    free(result->copies[0].data);
    memset(result, 0, sizeof(*result));
}
