#include "mixedprec/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tensor/rng.h"

enum status params_add(struct params *params, const struct param *param)
{
    if (params->count == params->capacity) {
        int32_t capacity = params->capacity == 0 ? 64 : 2 * params->capacity;
        struct param *table = realloc(params->table, (size_t)capacity * sizeof(*table));

        if (table == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "parameter table: %d entries", capacity);
        }
        params->table = table;
        params->capacity = capacity;
    }
    params->table[params->count] = *param;
    params->table[params->count].elems = (size_t)param->rows * (size_t)param->cols;
    params->elems += params->table[params->count].elems;
    params->count++;
    return STATUS_OK;
}

/* The same calls measure and then place, see arena.h. */
static void carve(struct params *params)
{
    for (int32_t i = 0; i < params->count; i++) {
        struct param *param = &params->table[i];

        param->weight = arena_take_floats(&params->weights, param->elems);
        param->grad = arena_take_floats(&params->gradients, param->elems);
        param->moment1 = arena_take_floats(&params->moments, param->elems);
        param->moment2 = arena_take_floats(&params->moments, param->elems);
    }
}

void params_measure(struct params *params)
{
    arena_measure(&params->weights, "params");
    arena_measure(&params->gradients, "gradients");
    arena_measure(&params->moments, "moments");
    carve(params);
}

enum status params_allocate(struct params *params)
{
    TRY(arena_allocate(&params->weights, true));
    TRY(arena_allocate(&params->gradients, true));
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

            rng_fill_normal(&purpose, 0, param->elems, param->init_std, param->weight);
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
