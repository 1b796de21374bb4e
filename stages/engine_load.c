/* engine_load -- how the state of a job comes back from disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/folder.h"
#include "base/log.h"
#include "stages/checkpoint/cover.h"
#include "stages/checkpoint/shard.h"
#include "stages/engine.h"
#include "stages/engine_start.h"

#define PIECE_ELEMS (PIECE_BYTES / sizeof(float))

/* One file that is being loaded from. */
struct source {
    const struct shard *shard;
    const char *path;
    int32_t file; /* by rank */
};

/* What is loaded, and what of it has been. */
struct loading {
    const struct resume *resume;
    struct param *table; /* borrows */
    int32_t count;
    bool moments;
    int32_t own_file;        /* by rank; -1: it is not among them */
    const struct shard *own; /* lends: open already */
    struct piece_watch watch;
    struct cover *covers; /* owns; by parameter */
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

/* Whether the file has elements that this rank updates, and not all of the optimizer's moments of them. */
static bool lacks_moments(const struct param *param, const struct shard_tensor *tensor)
{
    bool meets = tensor->first < param->own_first + param->own_elems &&
                 param->own_first < tensor->first + tensor->elems;

    return meets && ((param->moment1 != NULL && tensor->moment1 == NULL) ||
                     (param->moment2 != NULL && tensor->moment2 == NULL));
}

static enum status put_piece(const struct loading *loading, struct param *param,
                             const struct shard_tensor *tensor, size_t done, size_t elems)
{
    size_t first = tensor->first + done;

    TRY(param_put(param, first, elems, tensor->main + done));
    if (loading->moments && tensor->moment1 != NULL) {
        TRY(param_put_moment(param, param->moment1, first, elems, tensor->moment1 + done));
    }
    if (loading->moments && tensor->moment2 != NULL) {
        TRY(param_put_moment(param, param->moment2, first, elems, tensor->moment2 + done));
    }
    return STATUS_OK;
}

static enum status put_pieces(const struct loading *loading, struct param *param,
                              const struct shard_tensor *tensor)
{
    size_t done = 0;

    while (done < tensor->elems) {
        size_t left = tensor->elems - done;
        size_t elems = left < PIECE_ELEMS ? left : PIECE_ELEMS;

        TRY(put_piece(loading, param, tensor, done, elems));
        done += elems;
        pieces_tell(&loading->watch);
    }
    return STATUS_OK;
}

/* What the file has of one parameter. */
static enum status load_param(const struct loading *loading, const struct source *source,
                              int32_t index)
{
    struct param *param = &loading->table[index];
    const struct shard_tensor *tensor = shard_find(source->shard, param->name);

    if (tensor == NULL) {
        return STATUS_OK;
    }
    if (tensor->rows != param->rows || tensor->cols != param->cols ||
        memcmp(&tensor->place, &param->shard, sizeof(param->shard)) != 0) {
        return refuse_place(source, param);
    }
    if (loading->moments && lacks_moments(param, tensor)) {
        return status_fail(STATUS_ERR_REFUSED, "%s: %s: a moment of the optimizer is missing",
                           source->path, param->name);
    }
    TRY(put_pieces(loading, param, tensor));
    return cover_add(&loading->covers[index], tensor->first, tensor->elems, source->file);
}

static enum status file_path(const struct resume *resume, int32_t rank, char *path)
{
    char name[SHARD_NAME_BYTES];

    manifest_shard_name(&resume->manifest.layout, rank, name);
    return folder_path(resume->place.path, name, path);
}

/* Its rank has summed it. */
static enum status load_file(const struct loading *loading, int32_t rank)
{
    char path[FILE_PATH_BYTES];
    struct shard *shard = NULL;
    struct source source = {.shard = loading->own, .path = path, .file = rank};
    enum status status = STATUS_OK;

    TRY(file_path(loading->resume, rank, path));
    if (rank != loading->own_file) {
        TRY(shard_open_unsummed(path, &shard));
        source.shard = shard;
    }
    for (int32_t i = 0; i < loading->count && status >= 0; i++) {
        status = load_param(loading, &source, i);
    }
    shard_close(&shard);
    return status;
}

static enum status check_covers(const struct loading *loading, int32_t tp)
{
    const struct resume *resume = loading->resume;

    for (int32_t i = 0; i < loading->count; i++) {
        const struct cover_whole whole = {
            .folder = resume->place.path,
            .layout = &resume->manifest.layout,
            .name = loading->table[i].name,
            .shard = resume->manifest.layout.tp > 1 ? tp : -1,
            .elems = loading->table[i].elems,
        };

        TRY(cover_check(&loading->covers[i], &whole));
    }
    return STATUS_OK;
}

/* From the files of all replicas of one stage and shard. */
static enum status load_stage(struct loading *loading, int32_t pp, int32_t tp)
{
    const struct grid_shape *layout = &loading->resume->manifest.layout;
    enum status status = STATUS_OK;

    loading->covers = calloc((size_t)loading->count + 1, sizeof(*loading->covers));
    if (loading->covers == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "loading %d tensors", loading->count);
    }
    for (int32_t dp = 0; dp < layout->dp && status >= 0; dp++) {
        status = load_file(loading, grid_rank_of(layout, pp, tp, dp));
    }
    if (status >= 0) {
        status = check_covers(loading, tp);
    }
    for (int32_t i = 0; i < loading->count; i++) {
        cover_release(&loading->covers[i]);
    }
    free(loading->covers);
    loading->covers = NULL;
    return status;
}

/* The copy of the tied embedding, from its owner's files. */
static enum status load_head_copy(struct engine *engine, const struct resume *resume)
{
    struct param wte;
    struct loading loading = {
        .resume = resume, .table = &wte, .count = 1, .own_file = -1, .watch = engine_watch(engine)};

    if (engine->head.copy == NULL) {
        return STATUS_OK;
    }
    parameters_head_copy(&engine->shape, &engine->params, &engine->head, &wte);
    wte.own_elems = 0;
    return load_stage(&loading, engine->plan->rank_of[0], engine->grid.tp);
}

static enum status load_all(struct engine *engine, const struct resume *resume,
                            const struct shard *own)
{
    struct loading loading = {
        .resume = resume,
        .table = engine->params.table,
        .count = engine->params.count,
        .moments = true,
        .own_file = engine->grid.rank,
        .own = own,
        .watch = engine_watch(engine),
    };

    TRY(load_stage(&loading, engine->grid.pp, engine->grid.tp));
    return load_head_copy(engine, resume);
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

/* Each rank sums its own file, all of it, before any reads from another's. */
static enum status sum_own(struct engine *engine, const struct resume *resume,
                           struct shard **own_out)
{
    const struct piece_watch watch = engine_watch(engine);
    int32_t rank = engine->grid.rank;
    char path[FILE_PATH_BYTES];

    TRY(file_path(resume, rank, path));
    return shard_open(path, &resume->manifest.files[rank], &watch, own_out);
}

/* Nobody goes on where one has failed, and all have its words. */
static enum status agree(struct engine *engine, const struct resume *resume, const char *name,
                         enum status own)
{
    if (own == STATUS_ERR_REFUSED) {
        resume_tell_older(resume, engine->config);
    }
    return engine_agree(engine, &(struct control_round){.name = name}, NULL, own);
}

enum status engine_load(struct engine *engine, const struct resume *resume)
{
    const struct grid_shape *now = &engine->grid.shape;
    const struct grid_shape *then = &resume->manifest.layout;
    struct shard *own = NULL;
    enum status status = STATUS_OK;

    /* resume_judge() refuses another one: of more files than ranks, some would be summed by nobody. */
    ENSURE(now->pp == then->pp && now->tp == then->tp && now->dp == then->dp,
           "a checkpoint of another layout");
    status = agree(engine, resume, "LOAD-SUMMED", sum_own(engine, resume, &own));
    if (status >= 0) {
        status = agree(engine, resume, "LOAD", load_all(engine, resume, own));
    }
    shard_close(&own);
    TRY(status);
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
