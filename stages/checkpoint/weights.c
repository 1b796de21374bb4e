#include "stages/checkpoint/weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Read from a file at a time: a few pages of the stack. */
#define BLOCK_ELEMS ((size_t)2048)

static void shape_text(const struct safetensors_entry *entry, char *text, size_t text_bytes)
{
    int used = snprintf(text, text_bytes, "[");

    for (int32_t i = 0; i < entry->dims && used > 0 && (size_t)used < text_bytes; i++) {
        used += snprintf(text + used, text_bytes - (size_t)used, "%s%lld", i > 0 ? ", " : "",
                         (long long)entry->shape[i]);
    }
    if (used > 0 && (size_t)used < text_bytes) {
        (void)snprintf(text + used, text_bytes - (size_t)used, "]");
    }
}

void weights_entry(const struct param *param, struct safetensors_entry *entry_out)
{
    const struct param_shard *shard = &param->shard;
    bool matrix = param->decays || shard->whole_rows != 1;

    *entry_out = (struct safetensors_entry){
        .dtype = SAFETENSORS_F32,
        .dims = matrix ? 2 : 1,
        .shape = {matrix ? shard->whole_rows : shard->whole_cols, matrix ? shard->whole_cols : 0},
        .bytes = (size_t)shard->whole_rows * (size_t)shard->whole_cols * sizeof(float),
    };
    (void)snprintf(entry_out->name, sizeof(entry_out->name), "%s", param->name);
}

static bool entries_match(const struct safetensors_entry *found,
                          const struct safetensors_entry *expected)
{
    return found->dtype == expected->dtype && found->dims == expected->dims &&
           memcmp(found->shape, expected->shape, (size_t)found->dims * sizeof(found->shape[0])) ==
               0;
}

/* The entry of a parameter; NULL after a status_fail() where there is none that fits. */
static const struct safetensors_entry *find_param(const struct safetensors *file, const char *path,
                                                  const char *prefix, const struct param *param)
{
    char name[SAFETENSORS_NAME_BYTES];
    char found[96];
    const struct safetensors_entry *entry = NULL;
    struct safetensors_entry expected;

    weights_entry(param, &expected);
    (void)snprintf(name, sizeof(name), "%s%s", prefix, param->name);
    entry = safetensors_find(file, name);
    if (entry == NULL) {
        (void)status_fail(STATUS_ERR_REFUSED,
                          "%s: no tensor %s (checkpoint.import_prefix is \"%s\"; the file has %zu "
                          "tensors)",
                          path, name, prefix, safetensors_count(file));
        return NULL;
    }
    if (!entries_match(entry, &expected)) {
        shape_text(entry, found, sizeof(found));
        (void)status_fail(STATUS_ERR_REFUSED, "%s: %s: expected F32 %lld × %lld, found %s%s", path,
                          name, (long long)param->shard.whole_rows,
                          (long long)param->shard.whole_cols,
                          entry->dtype == SAFETENSORS_F32 ? "F32 " : "another type, ", found);
        return NULL;
    }
    return entry;
}

/* One file that is read. */
struct import {
    const struct safetensors *file;
    const char *path;
    const char *prefix;
    const struct piece_watch *watch;
    size_t untold; /* bytes since the watch was told */
};

static void count_bytes(struct import *import, size_t bytes)
{
    import->untold += bytes;
    if (import->untold >= PIECE_BYTES) {
        import->untold = 0;
        pieces_tell(import->watch);
    }
}

/* In blocks, because a file's data may begin at any byte. */
static enum status put_run(struct import *import, struct param *param, const struct param_run *run,
                           const void *data)
{
    float values[BLOCK_ELEMS];

    for (size_t done = 0; done < run->elems; done += BLOCK_ELEMS) {
        size_t count = run->elems - done < BLOCK_ELEMS ? run->elems - done : BLOCK_ELEMS;

        memcpy(values, (const char *)data + (run->whole + done) * sizeof(float),
               count * sizeof(float));
        TRY(param_put(param, run->here + done, count, values));
        count_bytes(import, count * sizeof(float));
    }
    return STATUS_OK;
}

static enum status import_param(struct import *import, struct param *param)
{
    const struct safetensors_entry *entry =
        find_param(import->file, import->path, import->prefix, param);

    if (entry == NULL) {
        return STATUS_ERR_REFUSED;
    }
    for (int64_t r = 0; r < param_runs(param); r++) {
        struct param_run run = param_run_at(param, r);

        TRY(put_run(import, param, &run, entry->data));
    }
    return STATUS_OK;
}

enum status weights_check_import(const char *path, const char *prefix,
                                 const struct model_shape *shape)
{
    const struct chunk_range all = {
        .layers = (int32_t)shape->L, .has_embedding = true, .has_head = true};
    struct params params = {.count = 0};
    struct safetensors *file = NULL;
    enum status status = STATUS_OK;

    if (access(path, R_OK) != 0) {
        return status_fail(STATUS_ERR_REFUSED, "checkpoint.import: cannot read %s: %s", path,
                           strerror(errno));
    }
    TRY(safetensors_open(path, &file));
    status = parameters_add(&params, shape, &all);
    for (int32_t i = 0; i < params.count && status >= 0; i++) {
        if (find_param(file, path, prefix, &params.table[i]) == NULL) {
            status = STATUS_ERR_REFUSED;
        }
    }
    params_release(&params);
    safetensors_close(&file);
    return status;
}

enum status weights_import(const char *path, const char *prefix, struct params *params,
                           const struct head_memory *head, const struct model_shape *shape,
                           const struct piece_watch *watch)
{
    struct import import = {.path = path, .prefix = prefix, .watch = watch};
    struct safetensors *file = NULL;
    struct param wte;
    enum status status = STATUS_OK;

    TRY(safetensors_open(path, &file));
    import.file = file;
    for (int32_t i = 0; i < params->count && status >= 0; i++) {
        status = import_param(&import, &params->table[i]);
    }
    if (status >= 0 && head->copy != NULL) {
        parameters_head_copy(shape, params, head, &wte);
        status = import_param(&import, &wte);
    }
    safetensors_close(&file);
    return status;
}
