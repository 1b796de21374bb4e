#include "stages/model/parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Sizes of a tensor by letter, so that the table below reads like the paper. */
enum extent {
    ONE,
    HIDDEN,
    QKV,
    INNER
};

enum init_rule {
    INIT_ZERO,
    INIT_UNIT,
    INIT_NORMAL,
    INIT_RESIDUAL
};

struct layer_entry {
    const char *name;
    enum extent rows;
    enum extent cols;
    enum init_rule init;
    size_t field; /* in struct layer_tensors */
};

#define FIELD(name) offsetof(struct layer_tensors, name)

static const struct layer_entry layer_entries[] = {
    {"ln_1.weight", ONE, HIDDEN, INIT_UNIT, FIELD(ln_1_weight)},
    {"ln_1.bias", ONE, HIDDEN, INIT_ZERO, FIELD(ln_1_bias)},
    {"attn.c_attn.weight", HIDDEN, QKV, INIT_NORMAL, FIELD(c_attn_weight)},
    {"attn.c_attn.bias", ONE, QKV, INIT_ZERO, FIELD(c_attn_bias)},
    {"attn.c_proj.weight", HIDDEN, HIDDEN, INIT_RESIDUAL, FIELD(c_proj_weight)},
    {"attn.c_proj.bias", ONE, HIDDEN, INIT_ZERO, FIELD(c_proj_bias)},
    {"ln_2.weight", ONE, HIDDEN, INIT_UNIT, FIELD(ln_2_weight)},
    {"ln_2.bias", ONE, HIDDEN, INIT_ZERO, FIELD(ln_2_bias)},
    {"mlp.c_fc.weight", HIDDEN, INNER, INIT_NORMAL, FIELD(c_fc_weight)},
    {"mlp.c_fc.bias", ONE, INNER, INIT_ZERO, FIELD(c_fc_bias)},
    {"mlp.c_proj.weight", INNER, HIDDEN, INIT_RESIDUAL, FIELD(m_proj_weight)},
    {"mlp.c_proj.bias", ONE, HIDDEN, INIT_ZERO, FIELD(m_proj_bias)},
};

#define LAYER_ENTRIES (sizeof(layer_entries) / sizeof(layer_entries[0]))

/* Sites of random numbers; a number, once used, never changes its meaning. */
enum site {
    SITE_WTE = 1,
    SITE_WPE = 2,
    SITE_LAYER = 16
};

static int64_t extent_elems(const struct model_shape *shape, enum extent extent)
{
    switch (extent) {
    case ONE:
        return 1;
    case HIDDEN:
        return (int64_t)shape->C;
    case QKV:
        return 3 * (int64_t)shape->C;
    case INNER:
        return (int64_t)shape->F;
    }
    return 0;
}

static void apply_init(struct param *param, enum init_rule rule, const struct model_shape *shape)
{
    param->init_value = rule == INIT_UNIT ? 1.0F : 0.0F;
    if (rule == INIT_NORMAL) {
        param->init_std = shape->init_std;
    }
    if (rule == INIT_RESIDUAL) {
        /* GPT-2: projections onto the residual stream shrink with the number of layers. */
        param->init_std = shape->init_std / sqrtf(2.0F * (float)shape->L);
    }
}

int32_t norm_key_count(const struct model_shape *shape)
{
    return (int32_t)shape->L + 2;
}

static enum status add_layer(struct params *params, const struct model_shape *shape, int32_t layer)
{
    for (size_t i = 0; i < LAYER_ENTRIES; i++) {
        const struct layer_entry *entry = &layer_entries[i];
        struct param param = {
            .rows = extent_elems(shape, entry->rows),
            .cols = extent_elems(shape, entry->cols),
            .decays = entry->rows != ONE,
            .norm_key = 1 + layer,
            .site = SITE_LAYER + (uint32_t)i,
            .layer = (uint32_t)layer,
        };

        (void)snprintf(param.name, sizeof(param.name), "h.%d.%s", layer, entry->name);
        apply_init(&param, entry->init, shape);
        TRY(params_add(params, &param));
    }
    return STATUS_OK;
}

void parameters_word_embedding(const struct model_shape *shape, struct param *param_out)
{
    *param_out = (struct param){
        .name = "wte.weight",
        .rows = (int64_t)shape->V,
        .cols = (int64_t)shape->C,
        .elems = shape->V * shape->C,
        .decays = true,
        .norm_key = 0,
        .init_std = shape->init_std,
        .site = SITE_WTE,
    };
}

static enum status add_embedding(struct params *params, const struct model_shape *shape)
{
    struct param wte;
    struct param wpe = {
        .name = "wpe.weight",
        .rows = (int64_t)shape->positions,
        .cols = (int64_t)shape->C,
        .decays = true,
        .norm_key = 0,
        .init_std = shape->init_std,
        .site = SITE_WPE,
    };

    parameters_word_embedding(shape, &wte);
    TRY(params_add(params, &wte));
    return params_add(params, &wpe);
}

static enum status add_final_norm(struct params *params, const struct model_shape *shape)
{
    struct param weight = {
        .name = "ln_f.weight",
        .rows = 1,
        .cols = (int64_t)shape->C,
        .norm_key = norm_key_count(shape) - 1,
        .init_value = 1.0F,
    };
    struct param bias = weight;

    (void)snprintf(bias.name, sizeof(bias.name), "ln_f.bias");
    bias.init_value = 0.0F;
    TRY(params_add(params, &weight));
    return params_add(params, &bias);
}

enum status parameters_add(struct params *params, const struct model_shape *shape,
                           const struct chunk_range *range)
{
    if (range->has_embedding) {
        TRY(add_embedding(params, shape));
    }
    for (int32_t i = 0; i < range->layers; i++) {
        TRY(add_layer(params, shape, range->first_layer + i));
    }
    if (range->has_head) {
        TRY(add_final_norm(params, shape));
    }
    return STATUS_OK;
}

void head_memory_carve(struct head_memory *head, const struct model_shape *shape,
                       const struct chunk_range *range)
{
    if (range->has_head) {
        head->gradient_elems = shape->V * shape->C;
        head->gradient = arena_take_floats(&head->arena, shape->V * shape->C);
        if (!range->has_embedding) {
            head->copy = arena_take_floats(&head->arena, shape->V * shape->C);
        }
    }
}

static const struct param *find_tensor(const struct params *params, const char *name)
{
    const struct param *param = params_find(params, name);

    ENSURE(param != NULL, "no parameter %s on this rank", name);
    return param;
}

static void collect_layer(struct layer_tensors *weights, struct layer_tensors *gradients,
                          const struct params *params, int32_t layer)
{
    char name[PARAM_NAME_BYTES];

    for (size_t i = 0; i < LAYER_ENTRIES; i++) {
        const struct param *param = NULL;

        (void)snprintf(name, sizeof(name), "h.%d.%s", layer, layer_entries[i].name);
        param = find_tensor(params, name);
        memcpy((char *)weights + layer_entries[i].field, &param->weight, sizeof(float *));
        memcpy((char *)gradients + layer_entries[i].field, &param->grad, sizeof(float *));
    }
}

enum status chunk_tensors_init(struct chunk_tensors *weights, struct chunk_tensors *gradients,
                               const struct params *params, const struct head_memory *head,
                               const struct chunk_range *range)
{
    size_t layers = range->layers > 0 ? (size_t)range->layers : 1;

    memset(weights, 0, sizeof(*weights));
    memset(gradients, 0, sizeof(*gradients));
    weights->layers = calloc(layers, sizeof(*weights->layers));
    gradients->layers = calloc(layers, sizeof(*gradients->layers));
    if (weights->layers == NULL || gradients->layers == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "tensor table of %d layers", range->layers);
    }
    for (int32_t i = 0; i < range->layers; i++) {
        collect_layer(&weights->layers[i], &gradients->layers[i], params, range->first_layer + i);
    }
    if (range->has_embedding) {
        weights->wte = find_tensor(params, "wte.weight")->weight;
        weights->wpe = find_tensor(params, "wpe.weight")->weight;
        gradients->wte = find_tensor(params, "wte.weight")->grad;
        gradients->wpe = find_tensor(params, "wpe.weight")->grad;
    }
    if (range->has_head) {
        weights->ln_f_weight = find_tensor(params, "ln_f.weight")->weight;
        weights->ln_f_bias = find_tensor(params, "ln_f.bias")->weight;
        gradients->ln_f_weight = find_tensor(params, "ln_f.weight")->grad;
        gradients->ln_f_bias = find_tensor(params, "ln_f.bias")->grad;
        weights->head = range->has_embedding ? weights->wte : head->copy;
        gradients->head = head->gradient;
    }
    return STATUS_OK;
}

void chunk_tensors_release(struct chunk_tensors *tensors)
{
    free(tensors->layers);
    memset(tensors, 0, sizeof(*tensors));
}
