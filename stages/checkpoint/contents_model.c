/* contents_model -- whether a checkpoint holds the model that it says it does. */
#include <jansson.h>
#include <string.h>

#include "mixedprec/optimizer.h"
#include "stages/checkpoint/contents.h"
#include "stages/model/parameters.h"

#define EXTENT_MOST ((json_int_t)1 << 26) /* of one dimension: products of two still fit */

/* An extent of the model, from `least` to `most`. */
static bool read_extent(const json_t *model, const char *key, json_int_t least, json_int_t most,
                        size_t *extent_out)
{
    const json_t *value = json_object_get(model, key);

    *extent_out = (size_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= least &&
           json_integer_value(value) <= most;
}

/* What names and shapes of parameters depend on. A model has a dozen tensors a layer, so `tensors` bounds
 * its layers. */
static bool read_shape(const json_t *model, json_int_t tensors, struct model_shape *shape)
{
    const json_t *tied = json_object_get(model, "tied_embeddings");

    *shape = (struct model_shape){.shards = 1, .tied = json_is_true(tied)};
    if (!json_is_boolean(tied) || !read_extent(model, "num_layers", 1, tensors, &shape->L) ||
        !read_extent(model, "hidden_size", 1, EXTENT_MOST, &shape->C) ||
        !read_extent(model, "ffn_hidden_size", 1, EXTENT_MOST, &shape->F) ||
        !read_extent(model, "vocab_size", 1, EXTENT_MOST, &shape->V) ||
        !read_extent(model, "max_positions", 1, EXTENT_MOST, &shape->positions) ||
        !read_extent(model, "num_tokentypes", 0, EXTENT_MOST, &shape->types)) {
        return false;
    }
    shape->vocab = shape->V;
    shape->width = shape->C;
    shape->inner = shape->F;
    return true;
}

static const struct contents_tensor *find(const struct contents *contents, const char *name)
{
    for (int32_t i = 0; i < contents->count; i++) {
        if (strcmp(contents->tensors[i].name, name) == 0) {
            return &contents->tensors[i];
        }
    }
    return NULL;
}

static int32_t moments_of(const json_t *config)
{
    const json_t *name = json_object_get(json_object_get(config, "optimizer"), "name");
    bool sgd = json_is_string(name) && strcmp(json_string_value(name), "sgd") == 0;

    return optimizer_moments(sgd ? OPTIMIZER_SGD : OPTIMIZER_ADAM);
}

/* `moments` are those of its optimizer. */
static enum status check_tensors(const char *folder, const struct params *params, int32_t moments,
                                 const struct contents *contents)
{
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        const struct contents_tensor *tensor = find(contents, param->name);

        if (tensor == NULL) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: the checkpoint is damaged: tensor %s is missing", folder,
                               param->name);
        }
        if (tensor->rows != param->rows || tensor->cols != param->cols) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: the checkpoint is damaged: tensor %s: expected %lld × %lld, "
                               "found %lld × %lld",
                               folder, param->name, (long long)param->rows, (long long)param->cols,
                               (long long)tensor->rows, (long long)tensor->cols);
        }
        if (tensor->moments != moments) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s: the checkpoint is damaged: tensor %s: its optimizer has %d "
                               "moments, found %d",
                               folder, param->name, moments, tensor->moments);
        }
    }
    if (contents->count != params->count) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: the checkpoint is damaged: expected %d tensors, found %d", folder,
                           params->count, contents->count);
    }
    return STATUS_OK;
}

enum status contents_check_model(const char *folder, const struct manifest *manifest,
                                 const struct contents *contents)
{
    json_t *config = json_loads(manifest->config, JSON_REJECT_DUPLICATES, NULL);
    struct params params = {.count = 0};
    struct model_shape shape;
    enum status status = STATUS_OK;

    if (!read_shape(json_object_get(config, "model"), contents->count, &shape)) {
        status = status_fail(STATUS_ERR_REFUSED,
                             "%s: the checkpoint is damaged: the model of its configuration is "
                             "not that of its %d tensors",
                             folder, contents->count);
    } else {
        const struct chunk_range all = {
            .layers = (int32_t)shape.L, .has_embedding = true, .has_head = true};

        status = parameters_add(&params, &shape, &all);
    }
    if (status >= 0) {
        status = check_tensors(folder, &params, moments_of(config), contents);
    }
    params_release(&params);
    json_decref(config);
    return status;
}
