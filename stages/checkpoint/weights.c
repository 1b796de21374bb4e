#include "stages/checkpoint/weights.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "stages/checkpoint/safetensors.h"

#define PATH_BYTES 1024

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

static int32_t param_dims(const struct param *param)
{
    return param->rows == 1 && !param->decays ? 1 : 2;
}

static bool shape_matches(const struct safetensors_entry *entry, const struct param *param)
{
    if (entry->dims != param_dims(param)) {
        return false;
    }
    if (entry->dims == 1) {
        return entry->shape[0] == param->cols;
    }
    return entry->shape[0] == param->rows && entry->shape[1] == param->cols;
}

/* The entry of a parameter; NULL after a status_fail() where there is none that fits. */
static const struct safetensors_entry *find_param(const struct safetensors *file, const char *path,
                                                  const char *prefix, const struct param *param)
{
    char name[SAFETENSORS_NAME_BYTES];
    char found[96];
    const struct safetensors_entry *entry = NULL;

    (void)snprintf(name, sizeof(name), "%s%s", prefix, param->name);
    entry = safetensors_find(file, name);
    if (entry == NULL) {
        (void)status_fail(STATUS_ERR_REFUSED,
                          "%s: no tensor %s (checkpoint.import_prefix is \"%s\"; the file has %zu "
                          "tensors)",
                          path, name, prefix, safetensors_count(file));
        return NULL;
    }
    if (entry->dtype != SAFETENSORS_F32 || !shape_matches(entry, param)) {
        shape_text(entry, found, sizeof(found));
        (void)status_fail(STATUS_ERR_REFUSED, "%s: %s: expected F32 %lld × %lld, found %s%s", path,
                          name, (long long)param->rows, (long long)param->cols,
                          entry->dtype == SAFETENSORS_F32 ? "F32 " : "another type, ", found);
        return NULL;
    }
    return entry;
}

static enum status import_param(const struct safetensors *file, const char *path,
                                const char *prefix, const struct param *param, float *weight)
{
    const struct safetensors_entry *entry = find_param(file, path, prefix, param);

    if (entry == NULL) {
        return STATUS_ERR_REFUSED;
    }
    memcpy(weight, entry->data, param->elems * sizeof(float));
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
                           const struct head_memory *head, const struct model_shape *shape)
{
    struct safetensors *file = NULL;
    struct param wte;
    enum status status = STATUS_OK;

    TRY(safetensors_open(path, &file));
    for (int32_t i = 0; i < params->count && status >= 0; i++) {
        status = import_param(file, path, prefix, &params->table[i], params->table[i].weight);
    }
    if (status >= 0 && head->copy != NULL) {
        parameters_word_embedding(shape, &wte);
        status = import_param(file, path, prefix, &wte, head->copy);
    }
    safetensors_close(&file);
    return status;
}

static void shard_name(char *name, size_t name_bytes, int32_t stage, int32_t stages)
{
    if (stages == 1) {
        (void)snprintf(name, name_bytes, "model.safetensors");
    } else {
        (void)snprintf(name, name_bytes, "model-%05d-of-%05d.safetensors", stage + 1, stages);
    }
}

enum status weights_export(const char *directory, int32_t stage, int32_t stages,
                           const struct params *params)
{
    char path[PATH_BYTES];
    char name[64];
    struct safetensors_entry *entries = calloc((size_t)params->count + 1, sizeof(*entries));
    enum status status = STATUS_OK;

    if (entries == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing weights: table of %d tensors",
                           params->count);
    }
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        int32_t dims = param_dims(param);

        (void)snprintf(entries[i].name, sizeof(entries[i].name), "%s", param->name);
        entries[i].dtype = SAFETENSORS_F32;
        entries[i].dims = dims;
        entries[i].shape[0] = dims == 1 ? param->cols : param->rows;
        entries[i].shape[1] = dims == 1 ? 0 : param->cols;
        entries[i].bytes = param->elems * sizeof(float);
        entries[i].data = param->weight;
    }
    shard_name(name, sizeof(name), stage, stages);
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    status = safetensors_write(path, entries, (size_t)params->count, NULL, 0);
    free(entries);
    return status;
}

static enum status write_json(const char *directory, const char *name, json_t *object)
{
    char path[PATH_BYTES];
    char *text = object != NULL ? json_dumps(object, JSON_INDENT(2)) : NULL;
    enum status status = STATUS_OK;

    json_decref(object);
    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing %s/%s", directory, name);
    }
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    status = file_write(path, text, strlen(text));
    free(text);
    return status;
}

static enum status export_config(const char *directory, const struct model_shape *shape)
{
    return write_json(
        directory, "config.json",
        json_pack("{s:s, s:[s], s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:b, "
                  "s:s}",
                  "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "vocab_size",
                  (json_int_t)shape->V, "n_positions", (json_int_t)shape->positions, "n_embd",
                  (json_int_t)shape->C, "n_layer", (json_int_t)shape->L, "n_head",
                  (json_int_t)shape->H, "n_inner", (json_int_t)shape->F, "activation_function",
                  "gelu_new", "layer_norm_epsilon", (double)shape->eps, "initializer_range",
                  (double)shape->init_std, "embd_pdrop", 0.0, "attn_pdrop", 0.0, "resid_pdrop", 0.0,
                  "tie_word_embeddings", 1, "torch_dtype", "float32"));
}

static void map_params(json_t *map, const struct params *params, int32_t stage, int32_t stages)
{
    char name[64];

    shard_name(name, sizeof(name), stage, stages);
    for (int32_t i = 0; i < params->count; i++) {
        (void)json_object_set_new(map, params->table[i].name, json_string(name));
    }
}

/* The table of one stage, without memory: only names and sizes are asked. */
static enum status add_stage(json_t *map, double *bytes, int32_t stage, int32_t stages,
                             const int32_t *stage_of, const struct model_shape *shape)
{
    struct params params = {.table = NULL};
    struct chunk_range range = {
        .has_embedding = stage == 0,
        .has_head = stage == stages - 1,
    };
    enum status status = STATUS_OK;

    for (int32_t layer = (int32_t)shape->L - 1; layer >= 0; layer--) {
        if (stage_of[layer] == stage) {
            range.first_layer = layer;
            range.layers++;
        }
    }
    status = parameters_add(&params, shape, &range);
    if (status >= 0) {
        map_params(map, &params, stage, stages);
        *bytes += (double)params.elems * sizeof(float);
    }
    params_release(&params);
    return status;
}

enum status weights_export_index(const char *directory, int32_t stages, const int32_t *stage_of,
                                 const struct model_shape *shape)
{
    json_t *map = NULL;
    double bytes = 0.0;
    enum status status = STATUS_OK;

    if (stages == 1) {
        return export_config(directory, shape);
    }
    map = json_object();
    if (map == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "index of the weights");
    }
    for (int32_t stage = 0; stage < stages && status >= 0; stage++) {
        status = add_stage(map, &bytes, stage, stages, stage_of, shape);
    }
    if (status < 0) {
        json_decref(map);
        return status;
    }
    TRY(write_json(directory, "model.safetensors.index.json",
                   json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes,
                             "weight_map", map)));
    return export_config(directory, shape);
}
