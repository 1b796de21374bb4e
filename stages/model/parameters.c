#include "stages/model/parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "stages/model/site.h"

/* Sizes of a tensor by letter, so that the table below reads like the paper. */
enum extent {
    ONE,
    HIDDEN,
    QKV,
    INNER
};

/* How tensor-parallel shards divide a tensor. */
enum split {
    WHOLE,   /* every shard has all of it */
    ROWS,    /* row-parallel: of the input */
    COLUMNS, /* column-parallel: of the output */
    THIRDS   /* columns of Q, of K and of V, each by heads */
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
    enum split split;
    enum init_rule init;
    size_t field; /* in struct layer_tensors */
};

#define FIELD(name) offsetof(struct layer_tensors, name)

static const struct layer_entry layer_entries[] = {
    {"ln_1.weight", ONE, HIDDEN, WHOLE, INIT_UNIT, FIELD(ln_1_weight)},
    {"ln_1.bias", ONE, HIDDEN, WHOLE, INIT_ZERO, FIELD(ln_1_bias)},
    {"attn.c_attn.weight", HIDDEN, QKV, THIRDS, INIT_NORMAL, FIELD(c_attn_weight)},
    {"attn.c_attn.bias", ONE, QKV, THIRDS, INIT_ZERO, FIELD(c_attn_bias)},
    {"attn.c_proj.weight", HIDDEN, HIDDEN, ROWS, INIT_RESIDUAL, FIELD(c_proj_weight)},
    {"attn.c_proj.bias", ONE, HIDDEN, WHOLE, INIT_ZERO, FIELD(c_proj_bias)},
    {"ln_2.weight", ONE, HIDDEN, WHOLE, INIT_UNIT, FIELD(ln_2_weight)},
    {"ln_2.bias", ONE, HIDDEN, WHOLE, INIT_ZERO, FIELD(ln_2_bias)},
    {"mlp.c_fc.weight", HIDDEN, INNER, COLUMNS, INIT_NORMAL, FIELD(c_fc_weight)},
    {"mlp.c_fc.bias", ONE, INNER, COLUMNS, INIT_ZERO, FIELD(c_fc_bias)},
    {"mlp.c_proj.weight", INNER, HIDDEN, ROWS, INIT_RESIDUAL, FIELD(m_proj_weight)},
    {"mlp.c_proj.bias", ONE, HIDDEN, WHOLE, INIT_ZERO, FIELD(m_proj_bias)},
};

#define LAYER_ENTRIES (sizeof(layer_entries) / sizeof(layer_entries[0]))

_Static_assert(LAYER_ENTRIES == LAYER_TENSORS, "a row for every tensor of a layer");

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
    return (int32_t)shape->L + 2 + (shape->tied ? 0 : 1);
}

/* Cuts this rank's part out of a tensor whose rows, cols and blocks are the whole's. */
static void cut(struct param *param, enum split split, const struct model_shape *shape)
{
    int64_t shards = (int64_t)shape->shards;
    int64_t shard = (int64_t)shape->shard;

    param->shard = (struct param_shard){
        .whole_rows = param->rows, .whole_cols = param->cols, .blocks = split == THIRDS ? 3 : 1};
    if (split == WHOLE || shards <= 1) {
        return;
    }
    param->sharded = true;
    if (split == ROWS) {
        param->rows /= shards;
        param->shard.first_row = shard * param->rows;
    } else {
        param->cols /= shards;
        param->shard.first_col = shard * (param->cols / param->shard.blocks);
    }
}

/* Its weights and biases are fp32 in every training. */
static bool is_layer_norm(const struct layer_entry *entry)
{
    return strncmp(entry->name, "ln_", 3) == 0;
}

static enum status add_layer(struct params *params, const struct model_shape *shape, int32_t layer)
{
    for (size_t i = 0; i < LAYER_ENTRIES; i++) {
        const struct layer_entry *entry = &layer_entries[i];
        struct param param = {
            .rows = extent_elems(shape, entry->rows),
            .cols = extent_elems(shape, entry->cols),
            .decays = entry->rows != ONE,
            .by_rows = shape->splits_rows && entry->split == WHOLE,
            .fp32 = is_layer_norm(entry),
            .by_layer = !is_layer_norm(entry),
            .in_w = entry->rows != ONE,
            .norm_key = 1 + layer,
            .site = SITE_LAYER + (uint32_t)i,
            .layer = (uint32_t)layer,
        };

        (void)snprintf(param.name, sizeof(param.name), "h.%d.%s", layer, entry->name);
        apply_init(&param, entry->init, shape);
        cut(&param, entry->split, shape);
        TRY(params_add(params, &param));
    }
    return STATUS_OK;
}

/* A table of the vocabulary: this shard's rows of it. */
static struct param vocabulary_table(const struct model_shape *shape, const char *name,
                                     enum site site, int32_t norm_key)
{
    struct param param = {
        .rows = (int64_t)shape->vocab,
        .cols = (int64_t)shape->C,
        .elems = shape->vocab * shape->C,
        .shard =
            {
                .whole_rows = (int64_t)shape->V,
                .whole_cols = (int64_t)shape->C,
                .first_row = (int64_t)shape->first_token,
                .blocks = 1,
            },
        .sharded = shape->shards > 1,
        .decays = true,
        .norm_key = norm_key,
        .init_std = shape->init_std,
        .site = (uint32_t)site,
    };

    (void)snprintf(param.name, sizeof(param.name), "%s", name);
    return param;
}

void parameters_head_copy(const struct model_shape *shape, const struct params *params,
                          const struct head_memory *head, struct param *param_out)
{
    *param_out = vocabulary_table(shape, "wte.weight", SITE_WTE, 0);
    param_out->type = params->type;
    param_out->device = params->device;
    param_out->weight = head->copy;
}

/* A table of the embedding that every shard has whole. */
static struct param common_table(const struct model_shape *shape, const char *name, size_t rows,
                                 enum site site)
{
    struct param param = {
        .rows = (int64_t)rows,
        .cols = (int64_t)shape->C,
        .decays = true,
        .norm_key = 0,
        .init_std = shape->init_std,
        .site = (uint32_t)site,
    };

    (void)snprintf(param.name, sizeof(param.name), "%s", name);
    return param;
}

static enum status add_embedding(struct params *params, const struct model_shape *shape)
{
    struct param wte = vocabulary_table(shape, "wte.weight", SITE_WTE, 0);
    struct param wpe = common_table(shape, "wpe.weight", shape->positions, SITE_WPE);
    struct param wtt = common_table(shape, "wtt.weight", shape->types, SITE_WTT);

    TRY(params_add(params, &wte));
    TRY(params_add(params, &wpe));
    return shape->types > 0 ? params_add(params, &wtt) : STATUS_OK;
}

static enum status add_head(struct params *params, const struct model_shape *shape)
{
    int32_t final_norm = (int32_t)shape->L + 1;
    struct param weight = {
        .name = "ln_f.weight",
        .rows = 1,
        .cols = (int64_t)shape->C,
        .by_rows = shape->splits_rows,
        .fp32 = true,
        .norm_key = final_norm,
        .init_value = 1.0F,
    };
    struct param bias = weight;
    struct param head = vocabulary_table(shape, "lm_head.weight", SITE_LM_HEAD, final_norm + 1);

    (void)snprintf(bias.name, sizeof(bias.name), "ln_f.bias");
    bias.init_value = 0.0F;
    TRY(params_add(params, &weight));
    TRY(params_add(params, &bias));
    return shape->tied ? STATUS_OK : params_add(params, &head);
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
        TRY(add_head(params, shape));
    }
    return STATUS_OK;
}

void head_memory_carve(struct head_memory *head, const struct model_shape *shape,
                       bool has_embedding, bool has_head)
{
    if (has_head && shape->tied) {
        head->elems = shape->vocab * shape->C;
        head->gradient = arena_take_floats(&head->arena, head->elems);
        if (!has_embedding) {
            head->copy = arena_take(&head->arena, head->elems, dtype_bytes(shape->type));
        }
    }
}

const struct param *parameters_layer(const struct params *params, int32_t layer)
{
    char name[PARAM_NAME_BYTES];

    (void)snprintf(name, sizeof(name), "h.%d.%s", layer, layer_entries[0].name);
    return params_find(params, name);
}

const struct param *parameters_any_layer(const struct params *params, size_t layers)
{
    const struct param *found = NULL;

    for (size_t layer = 0; layer < layers && found == NULL; layer++) {
        found = parameters_layer(params, (int32_t)layer);
    }
    return found;
}

void parameters_index_layers(const struct params *params, size_t layers, int32_t *first_out)
{
    for (size_t layer = 0; layer < layers; layer++) {
        const struct param *first = parameters_layer(params, (int32_t)layer);

        first_out[layer] = first != NULL ? (int32_t)(first - params->table) : -1;
    }
}

void layer_tensors_put(struct layer_tensors *tensors, int place, void *tensor)
{
    memcpy((char *)tensors + layer_entries[place].field, &tensor, sizeof(void *));
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
    const struct param *param = parameters_layer(params, layer);

    ENSURE(param != NULL, "no layer %d on this rank", layer);
    for (int i = 0; i < LAYER_TENSORS; i++) {
        layer_tensors_put(weights, i, param[i].weight);
        layer_tensors_put(gradients, i, param[i].grad);
    }
}

static void collect_embedding(struct chunk_tensors *weights, struct chunk_tensors *gradients,
                              const struct params *params)
{
    const struct param *wte = find_tensor(params, "wte.weight");
    const struct param *wpe = find_tensor(params, "wpe.weight");
    const struct param *wtt = params_find(params, "wtt.weight");

    weights->wte = wte->weight;
    weights->wpe = wpe->weight;
    gradients->wte = wte->grad;
    gradients->wpe = wpe->grad;
    if (wtt != NULL) {
        weights->wtt = wtt->weight;
        gradients->wtt = wtt->grad;
    }
}

/* The head's matrix: the tied embedding where it is on this rank, its copy, or one of its own. */
static void collect_head(struct chunk_tensors *weights, struct chunk_tensors *gradients,
                         const struct params *params, const struct head_memory *head)
{
    const struct param *untied = params_find(params, "lm_head.weight");
    const struct param *wte = params_find(params, "wte.weight");

    if (untied != NULL) {
        weights->head = untied->weight;
        gradients->head = untied->grad;
        return;
    }
    ENSURE(head->copy != NULL || wte != NULL, "a tied head without an embedding");
    weights->head = head->copy != NULL ? head->copy : wte->weight;
    gradients->head = head->gradient;
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
        collect_embedding(weights, gradients, params);
    }
    if (range->has_head) {
        weights->ln_f_weight = find_tensor(params, "ln_f.weight")->weight;
        weights->ln_f_bias = find_tensor(params, "ln_f.bias")->weight;
        gradients->ln_f_weight = find_tensor(params, "ln_f.weight")->grad;
        gradients->ln_f_bias = find_tensor(params, "ln_f.bias")->grad;
        collect_head(weights, gradients, params, head);
    }
    return STATUS_OK;
}

void chunk_tensors_release(struct chunk_tensors *tensors)
{
    free(tensors->layers);
    memset(tensors, 0, sizeof(*tensors));
}
