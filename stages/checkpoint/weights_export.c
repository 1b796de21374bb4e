/* The writing half of stages/checkpoint/weights.h. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/weights.h"

#define NAME_BYTES 64

/* Decimal digits that a double may need to read back to the same bits, and those that always fit. */
#define DIGITS_LEAST 15
#define DIGITS_MOST  17

static void file_name(int32_t stage, int32_t stages, char *name)
{
    if (stages == 1) {
        (void)snprintf(name, NAME_BYTES, "model.safetensors");
    } else {
        (void)snprintf(name, NAME_BYTES, "model-%05d-of-%05d.safetensors", stage + 1, stages);
    }
}

static enum status file_path(const struct weights_file *file, char *path)
{
    char name[NAME_BYTES];

    file_name(file->stage, file->stages, name);
    return folder_path(file->directory, name, path);
}

/* The file's layout, the same on every shard: names and whole shapes do not depend on it. */
static enum status make_layout(const char *path, const struct params *params,
                               struct safetensors_layout *layout)
{
    struct safetensors_entry *entries = calloc((size_t)params->count + 1, sizeof(*entries));
    enum status status = STATUS_OK;

    if (entries == NULL) {
        (void)status_fail(STATUS_ERR_NO_MEMORY, "writing weights: table of %d tensors",
                          params->count);
        return STATUS_ERR_NO_MEMORY;
    }
    for (int32_t i = 0; i < params->count; i++) {
        weights_entry(&params->table[i], &entries[i]);
    }
    status = safetensors_layout_make(path, entries, (size_t)params->count, NULL, 0, layout);
    free(entries);
    return status;
}

/* Closes the file whatever became of it; the first failure counts. */
static enum status close_after(struct file_shared *shared, enum status status)
{
    enum status closed = file_shared_close(shared);

    return status < 0 ? status : closed;
}

static enum status put_header(const char *path, const struct safetensors_layout *layout)
{
    struct file_shared shared = {.open = false};
    enum status status = file_shared_open(path, layout->file_bytes, &shared);

    if (status >= 0) {
        status = file_shared_put(&shared, 0, layout->header, layout->header_bytes);
    }
    return close_after(&shared, status);
}

enum status weights_export_begin(const struct weights_file *file, const struct params *params)
{
    char path[FILE_PATH_BYTES];
    struct safetensors_layout layout = {.header = NULL};
    enum status status = STATUS_OK;

    ENSURE(file->shard == 0 && file->replica == 0, "shard %d of replica %d makes the file",
           file->shard, file->replica);
    TRY(file_path(file, path));
    TRY(make_layout(path, params, &layout));
    status = file_shared_create(path, layout.file_bytes);
    if (status >= 0) {
        status = put_header(path, &layout);
    }
    if (status < 0) {
        file_shared_remove(path);
    }
    safetensors_layout_release(&layout);
    return status;
}

/* Shards of one configuration agree on every name and shape; anything else must not meet here. */
static enum status check_header(const struct file_shared *shared,
                                const struct safetensors_layout *layout)
{
    char *found = calloc(layout->header_bytes + 1, 1);
    enum status status = STATUS_OK;

    if (found == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing %s: no memory for its header",
                           shared->temporary);
    }
    status = file_shared_get(shared, 0, found, layout->header_bytes);
    if (status >= 0 && memcmp(found, layout->header, layout->header_bytes) != 0) {
        status = status_fail(STATUS_ERR_INVALID,
                             "writing %s: another shard began it with other tensors than this one "
                             "has",
                             shared->temporary);
    }
    free(found);
    return status;
}

/* This rank's part of the file as it is written. */
struct part {
    struct file_shared *shared;
    const struct piece_watch *watch;
    size_t undrained;           /* bytes that were not handed to the disk yet */
    struct piece_reader reader; /* of the main params' memory */
};

static enum status put_piece(struct part *part, size_t at, const void *bytes, size_t count)
{
    TRY(file_shared_put(part->shared, at, bytes, count));
    part->undrained += count;
    if (part->undrained >= PIECES_DRAIN_BYTES) {
        TRY(file_shared_drain(part->shared));
        part->undrained = 0;
    }
    pieces_tell(part->watch);
    return STATUS_OK;
}

static enum status put_bytes(struct part *part, size_t at, const void *from, size_t count)
{
    size_t done = 0;

    while (done < count) {
        size_t piece = pieces_next(count - done);
        const void *bytes = NULL;

        TRY(piece_read(&part->reader, (const char *)from + done, piece, &bytes));
        TRY(put_piece(part, at + done, bytes, piece));
        done += piece;
    }
    return STATUS_OK;
}

/* What this replica owns of a stretch, which may be nothing. */
static enum status put_run(struct part *part, size_t at, const struct param *param,
                           const struct param_run *run)
{
    size_t own_end = param->own_first + param->own_elems;
    size_t run_end = run->here + run->elems;
    size_t begin = run->here > param->own_first ? run->here : param->own_first;
    size_t end = run_end < own_end ? run_end : own_end;

    if (begin >= end) {
        return STATUS_OK;
    }
    return put_bytes(part, at + (run->whole + (begin - run->here)) * sizeof(float),
                     param->main + (begin - param->own_first), (end - begin) * sizeof(float));
}

static enum status put_param(struct part *part, size_t at, const struct param *param)
{
    for (int64_t r = 0; r < param_runs(param); r++) {
        struct param_run run = param_run_at(param, r);

        TRY(put_run(part, at, param, &run));
    }
    return STATUS_OK;
}

/* What every shard has, or every replica, is written by the first. */
static bool writes(const struct weights_file *file, const struct param *param)
{
    return (param->sharded || file->shard == 0) && (param->sliced || file->replica == 0);
}

/* This rank's part of the file. */
static enum status put_params(struct file_shared *shared, const struct safetensors_layout *layout,
                              const struct weights_file *file, const struct params *params)
{
    struct part part = {
        .shared = shared, .watch = file->watch, .reader = {.device = params->device}};
    enum status status = STATUS_OK;

    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];

        if (status >= 0 && writes(file, param)) {
            status = put_param(&part, layout->at[i], param);
        }
    }
    piece_reader_release(&part.reader);
    return status;
}

static enum status put_shard(const char *path, const struct weights_file *file,
                             const struct params *params)
{
    struct safetensors_layout layout = {.header = NULL};
    struct file_shared shared = {.open = false};
    enum status status = STATUS_OK;

    TRY(make_layout(path, params, &layout));
    TRY_OR(done, status, file_shared_open(path, layout.file_bytes, &shared));
    TRY_OR(done, status, check_header(&shared, &layout));
    status = put_params(&shared, &layout, file, params);
done:
    safetensors_layout_release(&layout);
    return close_after(&shared, status);
}

enum status weights_export_write(const struct weights_file *file, const struct params *params)
{
    char path[FILE_PATH_BYTES];

    TRY(file_path(file, path));
    return put_shard(path, file, params);
}

enum status weights_export_end(const struct weights_file *file)
{
    char path[FILE_PATH_BYTES];

    ENSURE(file->shard == 0 && file->replica == 0, "shard %d of replica %d ends the file",
           file->shard, file->replica);
    TRY(file_path(file, path));
    return file_shared_publish(path);
}

void weights_export_discard(const struct weights_file *file)
{
    char path[FILE_PATH_BYTES];

    if (file_path(file, path) == STATUS_OK) {
        file_shared_remove(path);
    }
}

/* Digits with which `real` reads back to the same bits; 1e-05 and not 1.0000000000000001e-05. */
static int digits_of(double real)
{
    char text[40];

    for (int digits = DIGITS_LEAST; digits < DIGITS_MOST; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, real);
        if (strtod(text, NULL) == real) {
            return digits;
        }
    }
    return DIGITS_MOST;
}

/* Takes `object`; its reals have `digits`. */
static enum status write_json(const char *directory, const char *name, json_t *object, int digits)
{
    char path[FILE_PATH_BYTES];
    char *text = object != NULL
                     ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)digits))
                     : NULL;
    enum status status = STATUS_OK;

    json_decref(object);
    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing %s/%s", directory, name);
    }
    status = folder_path(directory, name, path);
    if (status >= 0) {
        status = file_write(path, text, strlen(text));
    }
    free(text);
    return status;
}

static enum status export_config(const char *directory, const struct config_model *model)
{
    int eps_digits = digits_of(model->layer_norm_eps);
    int std_digits = digits_of(model->init_std);

    return write_json(
        directory, "config.json",
        json_pack("{s:s, s:[s], s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:b, "
                  "s:s}",
                  "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "vocab_size",
                  (json_int_t)model->vocab_size, "n_positions", (json_int_t)model->max_positions,
                  "n_embd", (json_int_t)model->hidden_size, "n_layer",
                  (json_int_t)model->num_layers, "n_head", (json_int_t)model->num_heads, "n_inner",
                  (json_int_t)model->ffn_hidden_size, "activation_function", "gelu_new",
                  "layer_norm_epsilon", model->layer_norm_eps, "initializer_range", model->init_std,
                  "embd_pdrop", model->dropout, "attn_pdrop", model->dropout, "resid_pdrop",
                  model->dropout, "tie_word_embeddings", model->tied_embeddings ? 1 : 0,
                  "torch_dtype", "float32"),
        eps_digits > std_digits ? eps_digits : std_digits);
}

/* The tensors of one stage; only names and whole sizes are asked, so that nothing is allocated. */
static enum status list_stage(const struct weights_index *index, int32_t stage,
                              struct params *params)
{
    const struct chunk_range ends = {.has_embedding = stage == 0,
                                     .has_head = stage == index->stages - 1};
    enum status status = parameters_add(params, index->shape, &ends);

    for (int32_t layer = 0; layer < (int32_t)index->shape->L && status >= 0; layer++) {
        const struct chunk_range one = {.first_layer = layer,
                                        .layers = index->stage_of[layer] == stage ? 1 : 0};

        status = parameters_add(params, index->shape, &one);
    }
    return status;
}

static enum status add_stage(const struct weights_index *index, int32_t stage, json_t *map,
                             int64_t *bytes)
{
    struct params params = {.table = NULL};
    char name[NAME_BYTES];
    enum status status = list_stage(index, stage, &params);

    file_name(stage, index->stages, name);
    for (int32_t i = 0; i < params.count && status >= 0; i++) {
        struct safetensors_entry entry;

        weights_entry(&params.table[i], &entry);
        *bytes += (int64_t)entry.bytes;
        (void)json_object_set_new(map, entry.name, json_string(name));
    }
    params_release(&params);
    return status;
}

enum status weights_export_index(const char *directory, const struct weights_index *index)
{
    json_t *map = NULL;
    int64_t bytes = 0;
    enum status status = STATUS_OK;

    if (index->stages == 1) {
        return export_config(directory, index->model);
    }
    map = json_object();
    if (map == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "index of the weights");
    }
    for (int32_t stage = 0; stage < index->stages && status >= 0; stage++) {
        status = add_stage(index, stage, map, &bytes);
    }
    if (status < 0) {
        json_decref(map);
        return status;
    }
    TRY(write_json(
        directory, "model.safetensors.index.json",
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map),
        DIGITS_MOST));
    return export_config(directory, index->model);
}
