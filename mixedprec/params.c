#include "mixedprec/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "collectives/comm.h"
#include "tensor/kernels.h"
#include "tensor/rng.h"

/* Numbers on their way into a parameter, at a time: a few pages of the stack. */
#define PUT_ELEMS ((size_t)2048)

void params_init(struct params *params, enum dtype model_type, int moments)
{
    ENSURE(moments == 1 || moments == 2, "an optimizer of %d moments", moments);
    *params = (struct params){.type = model_type, .one_moment = moments == 1};
}

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
    added->type = param->fp32 ? DTYPE_FP32 : params->type;
    added->room = added->elems;
    added->grad_room = added->elems;
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

        param->device = params->device;
        param->weight = arena_take(&params->weights, param->room, dtype_bytes(param->type));
        param->grad = arena_take_floats(&params->gradients, param->grad_room);
        if (param->type != DTYPE_FP32) {
            param->main = arena_take_floats(&params->main, param->own_elems);
        } else if (param->weight != NULL) {
            param->main = param_own_weight(param);
        }
        param->moment1 = arena_take_floats(&params->moments, param->own_elems);
        if (!params->one_moment) {
            param->moment2 = arena_take_floats(&params->moments, param->own_elems);
        }
    }
}

void params_measure(struct params *params)
{
    arena_measure(&params->weights, "params");
    arena_measure(&params->gradients, "gradients");
    arena_measure(&params->main, "main params");
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

void params_shard(struct params *params, int32_t replicas, int32_t index)
{
    for (int32_t i = 0; i < params->count && replicas > 1; i++) {
        struct param *param = &params->table[i];
        size_t first = 0;
        size_t elems = 0;

        if (!param->sliced) {
            comm_slice(param->elems, replicas, index, &first, &elems);
            param_slice(param, first, elems);
        }
    }
}

void params_scatter(struct params *params, int32_t replicas)
{
    for (int32_t i = 0; i < params->count; i++) {
        struct param *param = &params->table[i];
        size_t first = 0;

        if (param->by_layer && param->sliced) {
            param->scattered = true;
            comm_slice(param->elems, replicas, 0, &first, &param->room);
        }
    }
}

void params_scatter_gradients(struct params *params, int32_t replicas)
{
    for (int32_t i = 0; i < params->count; i++) {
        struct param *param = &params->table[i];
        size_t first = 0;

        if (param->in_w && param->sliced) {
            param->own_grad = true;
            comm_slice(param->elems, replicas, 0, &first, &param->grad_room);
        }
    }
}

void *param_own_weight(const struct param *param)
{
    return dtype_at(param->weight, param->type, param->scattered ? 0 : param->own_first);
}

float *param_own_grad(const struct param *param)
{
    return param->grad + (param->own_grad ? 0 : param->own_first);
}

static enum status allocate(struct params *params, struct arena *arena, bool touch)
{
    if (arena->memory != NULL) {
        return STATUS_OK;
    }
    arena_put_on(arena, params->device, DEVICE_TENSORS);
    return arena_allocate(arena, touch);
}

enum status params_place(struct params *params)
{
    TRY(allocate(params, &params->weights, true));
    TRY(allocate(params, &params->gradients, true));
    TRY(params->main.planned_bytes > 0 ? allocate(params, &params->main, true) : STATUS_OK);
    TRY(allocate(params, &params->moments, false));
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

static enum status copy_into(const struct param *param, void *to, const void *from, size_t bytes)
{
    if (param->device != NULL) {
        return device_copy(param->device, to, from, bytes);
    }
    memcpy(to, from, bytes);
    return STATUS_OK;
}

/* At most PUT_ELEMS of them. */
static enum status round_some(const struct param *param, void *out, const float *in, size_t elems)
{
    uint16_t halves[PUT_ELEMS];

    for (size_t e = 0; e < elems; e++) {
        halves[e] = param->type == DTYPE_BF16 ? dtype_to_bf16(in[e]) : dtype_to_fp16(in[e]);
    }
    return copy_into(param, out, halves, elems * sizeof(*halves));
}

/* Rounds `elems` numbers into the model's copy, one by one: only a start or a load does it. */
static enum status round_into(const struct param *param, size_t at, const float *in, size_t elems)
{
    if (param->type == DTYPE_FP32) {
        return copy_into(param, dtype_at(param->weight, param->type, at), in,
                         elems * sizeof(float));
    }
    for (size_t done = 0; done < elems; done += PUT_ELEMS) {
        size_t count = elems - done < PUT_ELEMS ? elems - done : PUT_ELEMS;

        TRY(round_some(param, dtype_at(param->weight, param->type, at + done), in + done, count));
    }
    return STATUS_OK;
}

/* Which of elements `first` … this replica owns. */
struct owned {
    size_t at;   /* first of them in what it owns */
    size_t skip; /* so many before it are not */
    size_t elems;
};

static struct owned owned_of(const struct param *param, size_t first, size_t elems)
{
    size_t begin = first > param->own_first ? first : param->own_first;
    size_t own_end = param->own_first + param->own_elems;
    size_t end = first + elems < own_end ? first + elems : own_end;

    return begin < end ? (struct owned){.at = begin - param->own_first,
                                        .skip = begin - first,
                                        .elems = end - begin}
                       : (struct owned){.elems = 0};
}

enum status param_put(struct param *param, size_t first, size_t elems, const float *values)
{
    struct owned owned = owned_of(param, first, elems);

    ENSURE(param->weight != NULL, "%s has no memory yet", param->name);
    ENSURE(first <= param->elems && elems <= param->elems - first,
           "%s: %zu elements from %zu, of %zu", param->name, elems, first, param->elems);
    if (!param->scattered) {
        TRY(round_into(param, first, values, elems));
    } else if (owned.elems > 0) {
        TRY(round_into(param, owned.at, values + owned.skip, owned.elems));
    }
    if (owned.elems == 0 || param->type == DTYPE_FP32) {
        return STATUS_OK;
    }
    ENSURE(param->main != NULL, "%s has no main params yet", param->name);
    return copy_into(param, param->main + owned.at, values + owned.skip,
                     owned.elems * sizeof(float));
}

enum status param_put_moment(const struct param *param, float *moment, size_t first, size_t elems,
                             const float *values)
{
    struct owned owned = owned_of(param, first, elems);

    return moment != NULL && owned.elems > 0
               ? copy_into(param, moment + owned.at, values + owned.skip,
                           owned.elems * sizeof(*moment))
               : STATUS_OK;
}

/* Elements `first` … of the shard, which are those from `whole` on of the whole tensor. */
static enum status draw(struct param *param, uint64_t seed, size_t first, size_t whole,
                        size_t elems)
{
    const struct rng_purpose purpose = {.seed = seed, .site = param->site, .layer = param->layer};
    float values[PUT_ELEMS];

    for (size_t done = 0; done < elems; done += PUT_ELEMS) {
        size_t count = elems - done < PUT_ELEMS ? elems - done : PUT_ELEMS;

        if (param->init_std > 0.0F) {
            rng_fill_normal(&purpose, whole + done, count, param->init_std, values);
        } else {
            for (size_t e = 0; e < count; e++) {
                values[e] = param->init_value;
            }
        }
        TRY(param_put(param, first + done, count, values));
    }
    return STATUS_OK;
}

static enum status draw_runs(struct param *param, uint64_t seed)
{
    for (int64_t r = 0; r < param_runs(param); r++) {
        struct param_run run = param_run_at(param, r);

        TRY(draw(param, seed, run.here, run.whole, run.elems));
    }
    return STATUS_OK;
}

enum status params_initialize(struct params *params, uint64_t seed)
{
    for (int32_t i = 0; i < params->count; i++) {
        TRY(draw_runs(&params->table[i], seed));
    }
    return STATUS_OK;
}

enum status params_zero_gradients(struct params *params)
{
    struct arena *gradients = &params->gradients;

    if (params->device != NULL) {
        return device_zero(params->device, gradients->memory, gradients->planned_bytes);
    }
    memset(gradients->memory, 0, gradients->planned_bytes);
    return STATUS_OK;
}

void params_release(struct params *params)
{
    free(params->table);
    arena_release(&params->weights);
    arena_release(&params->gradients);
    arena_release(&params->main);
    arena_release(&params->moments);
    memset(params, 0, sizeof(*params));
}
