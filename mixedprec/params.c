#include "mixedprec/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tensor/rng.h"

enum status params_add(struct params *params, const struct param *param)
{
    struct param *added = NULL;

    if (params->count == params->capacity) {
        int32_t capacity = params->capacity == 0 ? 64 : 2 * params->capacity;
        struct param *table = realloc(params->table, (size_t)capacity * sizeof(*table));

        if (table == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "parameter table: %d entries", capacity);
        }
        params->table = table;
        params->capacity = capacity;
    }
    added = &params->table[params->count++];
    *added = *param;
    added->elems = (size_t)param->rows * (size_t)param->cols;
    if (param->shard.blocks == 0) {
        added->shard =
            (struct param_shard){.whole_rows = param->rows, .whole_cols = param->cols, .blocks = 1};
    }
    if (!param->sliced) {
        added->own_elems = added->elems;
    }
    params->elems += added->elems;
    return STATUS_OK;
}

int64_t param_runs(const struct param *param)
{
    return param->cols == param->shard.whole_cols ? 1 : param->rows * param->shard.blocks;
}

struct param_run param_run_at(const struct param *param, int64_t run)
{
    const struct param_shard *shard = &param->shard;
    int64_t width = param->cols / shard->blocks;
    int64_t row = run / shard->blocks;
    int64_t block = run % shard->blocks;

    if (param->cols == shard->whole_cols) {
        return (struct param_run){.whole = (size_t)(shard->first_row * shard->whole_cols),
                                  .elems = param->elems};
    }
    return (struct param_run){
        .here = (size_t)(row * param->cols + block * width),
        .whole = (size_t)((shard->first_row + row) * shard->whole_cols +
                          block * (shard->whole_cols / shard->blocks) + shard->first_col),
        .elems = (size_t)width,
    };
}

/* The same calls measure and then place, see arena.h. */
static void carve(struct params *params)
{
    for (int32_t i = 0; i < params->count; i++) {
        struct param *param = &params->table[i];

        param->weight = arena_take_floats(&params->weights, param->elems);
        param->grad = arena_take_floats(&params->gradients, param->elems);
        param->moment1 = arena_take_floats(&params->moments, param->own_elems);
        param->moment2 = arena_take_floats(&params->moments, param->own_elems);
    }
}

void params_measure(struct params *params)
{
    arena_measure(&params->weights, "params");
    arena_measure(&params->gradients, "gradients");
    arena_measure(&params->moments, "moments");
    carve(params);
}

void param_slice(struct param *param, size_t first, size_t elems)
{
    ENSURE(first + elems <= param->elems, "%s: a slice of %zu from %zu, of %zu", param->name, elems,
           first, param->elems);
    param->sliced = true;
    param->own_first = first;
    param->own_elems = elems;
}

enum status params_place(struct params *params)
{
    if (params->weights.memory == NULL) {
        TRY(arena_allocate(&params->weights, true));
    }
    if (params->gradients.memory == NULL) {
        TRY(arena_allocate(&params->gradients, true));
    }
    TRY(arena_allocate(&params->moments, false));
    carve(params);
    return STATUS_OK;
}

struct param *params_find(const struct params *params, const char *name)
{
    for (int32_t i = 0; i < params->count; i++) {
        if (strcmp(params->table[i].name, name) == 0) {
            return &params->table[i];
        }
    }
    return NULL;
}

void params_initialize(struct params *params, uint64_t seed)
{
    for (int32_t i = 0; i < params->count; i++) {
        struct param *param = &params->table[i];

        ENSURE(param->weight != NULL, "%s has no memory yet", param->name);
        if (param->init_std > 0.0F) {
            struct rng_purpose purpose = {.seed = seed, .site = param->site, .layer = param->layer};

            for (int64_t r = 0; r < param_runs(param); r++) {
                struct param_run run = param_run_at(param, r);

                rng_fill_normal(&purpose, run.whole, run.elems, param->init_std,
                                param->weight + run.here);
            }
        } else {
            for (size_t e = 0; e < param->elems; e++) {
                param->weight[e] = param->init_value;
            }
        }
    }
}

void params_zero_gradients(struct params *params)
{
    memset(params->gradients.memory, 0, params->gradients.planned_bytes);
}

void params_release(struct params *params)
{
    free(params->table);
    arena_release(&params->weights);
    arena_release(&params->gradients);
    arena_release(&params->moments);
    memset(params, 0, sizeof(*params));
}
