#include "tests/stages/sharded_weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

const struct sharded_weight sharded_weights[SHARDED_WEIGHTS] = {
    {"wte.weight", 257, 8, WORDS},           {"wpe.weight", 6, 8, WHOLE},
    {"h.0.ln_1.weight", 1, 8, WHOLE},        {"h.0.attn.c_attn.weight", 8, 24, THIRDS},
    {"h.0.attn.c_attn.bias", 1, 24, THIRDS}, {"h.0.attn.c_proj.weight", 8, 8, ROWS},
    {"h.0.mlp.c_fc.weight", 8, 32, COLUMNS}, {"h.0.mlp.c_fc.bias", 1, 32, COLUMNS},
    {"h.0.mlp.c_proj.weight", 32, 8, ROWS},  {"lm_head.weight", 5, 8, WORDS},
};

float sharded_weights_value(int32_t tensor, int64_t row, int64_t col)
{
    return (float)((int64_t)tensor * 10000 + row * sharded_weights[tensor].cols + col) + 1.0F;
}

struct param sharded_weights_part(int32_t tensor, int32_t shard, int32_t shards)
{
    int64_t rows = sharded_weights[tensor].rows;
    int64_t cols = sharded_weights[tensor].cols;
    int64_t words = (rows + shards - 1) / shards;
    struct param param = {
        .rows = rows,
        .cols = cols,
        .shard = {.whole_rows = rows, .whole_cols = cols, .blocks = 1},
        .sharded = sharded_weights[tensor].split != WHOLE && shards > 1,
        .decays = rows > 1,
    };

    (void)snprintf(param.name, sizeof(param.name), "%s", sharded_weights[tensor].name);
    switch (sharded_weights[tensor].split) {
    case WHOLE:
        break;
    case ROWS:
        param.rows = rows / shards;
        param.shard.first_row = shard * param.rows;
        break;
    case WORDS:
        param.shard.first_row = shard * words < rows ? shard * words : rows;
        param.rows = (shard + 1) * words < rows ? words : rows - param.shard.first_row;
        break;
    case COLUMNS:
        param.cols = cols / shards;
        param.shard.first_col = shard * param.cols;
        break;
    case THIRDS:
        param.cols = cols / shards;
        param.shard.blocks = 3;
        param.shard.first_col = shard * (param.cols / 3);
        break;
    }
    return param;
}

void sharded_weights_fill(struct param *param, int32_t tensor)
{
    int64_t width = param->cols / param->shard.blocks;
    int64_t whole_width = param->shard.whole_cols / param->shard.blocks;

    for (int64_t row = 0; row < param->rows; row++) {
        for (int64_t col = 0; col < param->cols; col++) {
            int64_t whole = col / width * whole_width + param->shard.first_col + col % width;

            ((float *)param->weight)[row * param->cols + col] =
                sharded_weights_value(tensor, param->shard.first_row + row, whole);
        }
    }
}

void sharded_weights_make(struct params *params, int32_t shard, int32_t shards, bool filled)
{
    *params = (struct params){.table = NULL};
    for (int32_t i = 0; i < SHARDED_WEIGHTS; i++) {
        struct param part = sharded_weights_part(i, shard, shards);

        assert_int_equal(params_add(params, &part), STATUS_OK);
    }
    for (int32_t i = 0; i < SHARDED_WEIGHTS; i++) {
        params->table[i].weight = calloc(params->table[i].elems + 1, sizeof(float));
        assert_non_null(params->table[i].weight);
        params->table[i].main = params->table[i].weight;
        if (filled) {
            sharded_weights_fill(&params->table[i], i);
        }
    }
}

void sharded_weights_drop(struct params *params)
{
    for (int32_t i = 0; i < params->count; i++) {
        free(params->table[i].weight);
    }
    params_release(params);
}
