/* engine_checkpoint -- how the state of a job goes to disk and comes back. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/log.h"
#include "stages/checkpoint/shard.h"
#include "stages/checkpoint/store.h"
#include "stages/engine.h"
#include "stages/engine_start.h"

/* What each rank tells of its file: its size, and its sum in two halves that a double holds. */
enum {
    SUM_BYTES,
    SUM_HIGH,
    SUM_LOW,
    SUM_KEYS
};

_Static_assert(SUM_KEYS *CONFIG_RANKS_MOST <= CONTROL_KEYS_MOST, "a round has room for all files");

static int32_t world_of(const struct engine *engine)
{
    const struct grid_shape *shape = &engine->grid.shape;

    return shape->pp * shape->tp * shape->dp;
}

static enum status write_own(struct engine *engine, const char *folder, struct manifest_sum *sum)
{
    const struct fault_writing fault = {
        .fault = &engine->worker.fault, .rank = engine->grid.rank, .step = engine->attempts};
    char name[SHARD_NAME_BYTES];
    char path[FILE_PATH_BYTES];
    const struct shard_writing writing = {
        .path = path,
        .params = &engine->params,
        .replica = engine->grid.dp,
        .fault = &fault,
    };

    manifest_shard_name(&engine->grid.shape, engine->grid.rank, name);
    TRY(folder_path(folder, name, path));
    return shard_write(&writing, sum);
}

/* All ranks have written, this one with `written`: every rank gets the sums of all files. */
static enum status exchange_sums(struct engine *engine, enum status written,
                                 const struct manifest_sum *own, struct control_key *keys,
                                 double *numbers)
{
    int32_t world = world_of(engine);
    int32_t first = SUM_KEYS * engine->grid.rank;
    const struct control_value values[SUM_KEYS] = {
        {.key = first + SUM_BYTES, .number = (double)own->bytes},
        {.key = first + SUM_HIGH, .number = (double)(own->xxh3 >> 32)},
        {.key = first + SUM_LOW, .number = (double)(uint32_t)own->xxh3},
    };
    const struct control_round round = {
        .name = "SAVE-WRITTEN",
        .keys = keys,
        .key_count = SUM_KEYS * world,
        .values = values,
        .value_count = SUM_KEYS,
    };

    for (int32_t i = 0; i < SUM_KEYS * world; i++) {
        keys[i] = (struct control_key){"sum of a file", CONTROL_ONCE};
    }
    return engine_agree(engine, &round, numbers, written);
}

static enum status collect_sums(struct engine *engine, enum status written,
                                const struct manifest_sum *own, struct manifest_sum *files)
{
    int32_t world = world_of(engine);
    size_t count = SUM_KEYS * (size_t)world;
    struct control_key *keys = calloc(count, sizeof(*keys));
    double *numbers = calloc(count, sizeof(*numbers));
    enum status status = STATUS_OK;

    if (keys == NULL || numbers == NULL) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: sums of %d files", world);
        goto done;
    }
    TRY_OR(done, status, exchange_sums(engine, written, own, keys, numbers));
    for (int32_t rank = 0; rank < world; rank++) {
        const double *of = &numbers[SUM_KEYS * (size_t)rank];

        files[rank] = (struct manifest_sum){
            .bytes = (uint64_t)of[SUM_BYTES],
            .xxh3 = (uint64_t)of[SUM_HIGH] << 32 | (uint64_t)of[SUM_LOW],
        };
    }
done:
    free(keys);
    free(numbers);
    return status;
}

static enum status write_manifest(const struct engine *engine, const struct engine_save *save,
                                  const char *folder, struct manifest_sum *files)
{
    struct manifest manifest = {
        .step = engine->attempts,
        .updates = engine->update.updates,
        .consumed = engine->consumed,
        .sequences = dataset_samples(engine->dataset),
        .skipped = save->skipped,
        .skipped_in_a_row = save->skipped_in_a_row,
        .scale = engine->update.scaler.state,
        .threads = engine->threads,
        .layout = engine->grid.shape,
        .files = files,
    };
    enum status status = STATUS_OK;

    (void)snprintf(manifest.variant, sizeof(manifest.variant), "%s",
                   device_variant(engine->device));
    TRY(config_write_json(engine->config, &manifest.config));
    status = manifest_write(folder, &manifest);
    free(manifest.config);
    return status;
}

static void tell_saved(const struct engine *engine, const struct engine_save *save,
                       const struct manifest_sum *files, int64_t begin_ns)
{
    char name[STORE_NAME_BYTES];
    uint64_t bytes = 0;

    for (int32_t rank = 0; rank < world_of(engine); rank++) {
        bytes += files[rank].bytes;
    }
    store_name(engine->attempts, name);
    log_info("saved %s/%s: %.1f MiB in %.0f ms", save->directory, name, (double)bytes / (1 << 20),
             (double)(clock_now_ns() - begin_ns) * 1e-6);
}

/* Rank 0, when the files of all ranks are there. */
static enum status finish(struct engine *engine, const struct engine_save *save, const char *folder,
                          struct manifest_sum *files, int64_t begin_ns)
{
    TRY(write_manifest(engine, save, folder, files));
    TRY(store_publish(save->directory, engine->attempts));
    tell_saved(engine, save, files, begin_ns);
    /* The new one is whole: that an old one cannot be removed ends no run. */
    (void)store_prune(save->directory, engine->attempts, save->keep);
    return STATUS_OK;
}

static enum status write_all(struct engine *engine, const struct engine_save *save,
                             struct manifest_sum *files)
{
    bool first = engine->grid.rank == 0;
    int64_t begin_ns = clock_now_ns();
    struct manifest_sum own = {.bytes = 0};
    enum status written = STATUS_OK;
    char folder[FILE_PATH_BYTES];

    TRY(store_partial_path(save->directory, engine->attempts, folder));
    TRY(first ? store_begin(save->directory, engine->attempts) : STATUS_OK);
    TRY(engine_meet(engine, "SAVE-BEGUN"));
    written = write_own(engine, folder, &own);
    TRY(collect_sums(engine, written, &own, files));
    TRY(first ? finish(engine, save, folder, files, begin_ns) : STATUS_OK);
    return engine_meet(engine, "SAVE");
}

enum status engine_save(struct engine *engine, const struct engine_save *save)
{
    struct manifest_sum *files = calloc((size_t)world_of(engine), sizeof(*files));
    enum status status = STATUS_OK;

    if (files == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "checkpoint: sums of %d files", world_of(engine));
    }
    engine_enter(engine, UPDATE_PHASE_SAVE);
    status = write_all(engine, save, files);
    if (status < 0) {
        /* Each rank: the one that has failed may be rank 0, and be gone. */
        store_discard(save->directory, engine->attempts);
    }
    free(files);
    return status;
}

/* One file that is being loaded from. */
struct source {
    const struct shard *shard;
    const char *path;
};

static enum status refuse_place(const struct source *source, const struct param *param)
{
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: %s: it holds another part of the tensor than this rank has (%lld × "
                       "%lld from row %lld, column %lld of %lld × %lld)",
                       source->path, param->name, (long long)param->rows, (long long)param->cols,
                       (long long)param->shard.first_row, (long long)param->shard.first_col,
                       (long long)param->shard.whole_rows, (long long)param->shard.whole_cols);
}

/* The parameter's main params, as far as the file has them, into it; *elems counts them. */
static enum status load_main(const struct source *source, struct param *param, size_t *elems)
{
    const struct shard_tensor *tensor = shard_find(source->shard, param->name);

    if (tensor == NULL) {
        return STATUS_OK;
    }
    if (tensor->rows != param->rows || tensor->cols != param->cols ||
        memcmp(&tensor->place, &param->shard, sizeof(param->shard)) != 0) {
        return refuse_place(source, param);
    }
    param_put(param, tensor->first, tensor->elems, tensor->main);
    *elems += tensor->elems;
    return STATUS_OK;
}

/* Elements of `values`, which are those of `tensor`, that this rank owns. */
static enum status load_moment(const struct source *source, const struct param *param,
                               const struct shard_tensor *tensor, const float *values,
                               float *moment)
{
    size_t own_end = param->own_first + param->own_elems;
    size_t end = tensor->first + tensor->elems < own_end ? tensor->first + tensor->elems : own_end;
    size_t begin = tensor->first > param->own_first ? tensor->first : param->own_first;

    if (moment == NULL || begin >= end) {
        return STATUS_OK;
    }
    if (values == NULL) {
        return status_fail(STATUS_ERR_REFUSED, "%s: %s: a moment of the optimizer is missing",
                           source->path, param->name);
    }
    memcpy(moment + (begin - param->own_first), values + (begin - tensor->first),
           (end - begin) * sizeof(*moment));
    return STATUS_OK;
}

static enum status load_moments(const struct source *source, const struct param *param)
{
    const struct shard_tensor *tensor = shard_find(source->shard, param->name);

    if (tensor == NULL) {
        return STATUS_OK;
    }
    TRY(load_moment(source, param, tensor, tensor->moment1, param->moment1));
    return load_moment(source, param, tensor, tensor->moment2, param->moment2);
}

/* What is loaded, and how much of each has been. */
struct loading {
    const struct resume *resume;
    struct param *table; /* borrows */
    int32_t count;
    bool moments;
    size_t *elems; /* owns; by parameter */
};

static enum status load_from(const struct loading *loading, const struct source *source)
{
    for (int32_t i = 0; i < loading->count; i++) {
        TRY(load_main(source, &loading->table[i], &loading->elems[i]));
        TRY(loading->moments ? load_moments(source, &loading->table[i]) : STATUS_OK);
    }
    return STATUS_OK;
}

static enum status load_file(const struct loading *loading, int32_t rank)
{
    const struct manifest *manifest = &loading->resume->manifest;
    char name[SHARD_NAME_BYTES];
    char path[FILE_PATH_BYTES];
    struct shard *shard = NULL;
    enum status status = STATUS_OK;

    manifest_shard_name(&manifest->layout, rank, name);
    TRY(folder_path(loading->resume->place.path, name, path));
    TRY(shard_open(path, &manifest->files[rank], &shard));
    status = load_from(loading, &(struct source){.shard = shard, .path = path});
    shard_close(&shard);
    return status;
}

/* From the files of all replicas of one stage and shard. */
static enum status load_stage(struct loading *loading, int32_t pp, int32_t tp)
{
    const struct grid_shape *layout = &loading->resume->manifest.layout;
    enum status status = STATUS_OK;

    loading->elems = calloc((size_t)loading->count + 1, sizeof(*loading->elems));
    if (loading->elems == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "loading %d tensors", loading->count);
    }
    for (int32_t dp = 0; dp < layout->dp && status >= 0; dp++) {
        status = load_file(loading, grid_rank_of(layout, pp, tp, dp));
    }
    for (int32_t i = 0; i < loading->count && status >= 0; i++) {
        if (loading->elems[i] != loading->table[i].elems) {
            status = status_fail(STATUS_ERR_REFUSED,
                                 "%s: the files of stage %d, shard %d have %zu of the %zu elements "
                                 "of %s; were its layers somewhere else then?",
                                 loading->resume->place.path, pp, tp, loading->elems[i],
                                 loading->table[i].elems, loading->table[i].name);
        }
    }
    free(loading->elems);
    loading->elems = NULL;
    return status;
}

/* The copy of the tied embedding, from its owner's files. */
static enum status load_head_copy(struct engine *engine, const struct resume *resume)
{
    struct param wte;
    struct loading loading = {.resume = resume, .table = &wte, .count = 1};

    if (engine->head.copy == NULL) {
        return STATUS_OK;
    }
    parameters_word_embedding(&engine->shape, &wte);
    wte.type = engine->params.type;
    wte.weight = engine->head.copy;
    wte.own_elems = 0;
    return load_stage(&loading, engine->plan->rank_of[0], engine->grid.tp);
}

static void tell_variant(const struct engine *engine, const struct resume *resume)
{
    const char *variant = device_variant(engine->device);

    if (engine->grid.rank == 0 && strcmp(variant, resume->manifest.variant) != 0) {
        log_warn("resumed with other kernels: %s → %s; the bits of what follows are those of the "
                 "new ones",
                 resume->manifest.variant, variant);
    }
}

enum status engine_load(struct engine *engine, const struct resume *resume)
{
    struct loading loading = {
        .resume = resume,
        .table = engine->params.table,
        .count = engine->params.count,
        .moments = true,
    };
    enum status status = load_stage(&loading, engine->grid.pp, engine->grid.tp);

    if (status >= 0) {
        status = load_head_copy(engine, resume);
    }
    if (status < 0) {
        resume_tell_older(resume, engine->config);
        return status;
    }
    tell_variant(engine, resume);
    engine->attempts = resume->manifest.step;
    engine->consumed = resume->manifest.consumed;
    return STATUS_OK;
}

enum status engine_restore(struct engine *engine, const struct resume *resume)
{
    struct grad_scaler *scaler = &engine->update.scaler;
    const struct grad_scaler_state *kept = &resume->manifest.scale;

    engine->update.updates = resume->manifest.updates;
    engine->worker.head_version = resume->manifest.updates;
    TRY(grad_scaler_restore(scaler, kept));
    if (engine->grid.rank == 0 && scaler->config.dynamic && !kept->dynamic) {
        log_info("the loss scale was %.10g, constant, and is dynamic now: it begins with %.10g "
                 "(precision.initial_scale)",
                 kept->scale, scaler->state.scale);
    }
    return STATUS_OK;
}
