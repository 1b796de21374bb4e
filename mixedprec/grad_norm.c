#include "mixedprec/grad_norm.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "collectives/comm.h"
#include "tensor/kernels.h"

/* Elements of a tensor that lie together. */
struct stretch {
    size_t first;
    size_t elems;
};

/* This replica's part of a tensor, whichever shard answers for it. */
static struct stretch part_of(const struct param *param, const struct grad_norm_copy *copy)
{
    struct stretch part = {.first = param->own_first, .elems = param->own_elems};

    ENSURE(copy->replica >= 0 && copy->replica < copy->replicas, "replica %d of %d", copy->replica,
           copy->replicas);
    if (!param->sliced) {
        comm_slice(param->elems, copy->replicas, copy->replica, &part.first, &part.elems);
    }
    return part;
}

static const float *grad_of(const struct param *param, const struct stretch *part)
{
    return param->sliced ? param_own_grad(param) : param->grad + part->first;
}

static bool shard_answers(const struct param *param, const struct grad_norm_copy *copy)
{
    return param->sharded || copy->first_shard;
}

static void check_key(const struct param *param, int32_t keys)
{
    ENSURE(param->norm_key >= 0 && param->norm_key < keys, "%s: norm key %d of %d", param->name,
           param->norm_key, keys);
}

/* Sums of a parameter: of its part, and of what lies before and behind it. */
#define RESULTS_EACH 3

size_t grad_norm_result_bytes(const struct params *params)
{
    return (size_t)params->count * RESULTS_EACH * sizeof(double);
}

static enum status wait_for(const struct grad_norm_run *run, const char *what)
{
    return device_wait_for(run->device, what, run->cancel, run->deadline_ns);
}

/* Of a whole copy that has gone bad here alone the weights would go bad here alone: so what lies outside of
 * the part is summed too. Of a sliced one the rest is no sum and nobody's. */
static enum status sum_gradient(const struct param *param, const struct stretch *part,
                                const struct grad_norm_run *run, double *results)
{
    const struct kernel_ops *kernels = device_kernels(run->device);
    struct stream *stream = device_stream(run->device);
    size_t end = part->first + part->elems;

    TRY(kernels->sum_squares(&results[0], grad_of(param, part), part->elems, stream));
    if (param->sliced) {
        return STATUS_OK;
    }
    if (part->first > 0) {
        TRY(kernels->sum_squares(&results[1], param->grad, part->first, stream));
    }
    return end < param->elems
               ? kernels->sum_squares(&results[2], param->grad + end, param->elems - end, stream)
               : STATUS_OK;
}

static enum status sum_gradients(const struct params *params, const struct grad_norm_copy *copy,
                                 const struct grad_norm_run *run)
{
    double *results = run->results;

    memset(results, 0, grad_norm_result_bytes(params));
    for (int32_t i = 0; i < params->count; i++) {
        struct stretch part = part_of(&params->table[i], copy);

        TRY(sum_gradient(&params->table[i], &part, run, &results[(size_t)i * RESULTS_EACH]));
    }
    return wait_for(run, "sums of squares");
}

enum status grad_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                               const struct grad_norm_run *run, double *sums, int32_t keys,
                               const char **bad_out)
{
    const double *result = run->results;

    *bad_out = NULL;
    TRY(sum_gradients(params, copy, run));
    for (int32_t i = 0; i < params->count; i++, result += RESULTS_EACH) {
        const struct param *param = &params->table[i];

        check_key(param, keys);
        if (!isfinite(result[0] + result[1] + result[2]) && *bad_out == NULL) {
            *bad_out = param->name;
        }
        if (shard_answers(param, copy)) {
            sums[param->norm_key] += result[0];
        }
    }
    return STATUS_OK;
}

double grad_norm_total(const double *sums, int32_t keys, double scale)
{
    double total = 0.0;

    for (int32_t key = 0; key < keys; key++) {
        total += sums[key];
    }
    return sqrt(total) / scale;
}

double grad_norm_coefficient(double norm, double max_norm)
{
    return max_norm > 0.0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1.0;
}

enum status grad_count_zeros(const struct params *params, const struct grad_norm_copy *copy,
                             const struct grad_norm_run *run, int64_t *zeros_out)
{
    size_t *counts = run->results;

    *zeros_out = 0;
    for (int32_t i = 0; i < params->count; i++) {
        struct stretch part = part_of(&params->table[i], copy);

        TRY(device_kernels(run->device)
                ->count_zeros(&counts[i], grad_of(&params->table[i], &part), part.elems,
                              device_stream(run->device)));
    }
    TRY(wait_for(run, "count of zeros"));
    for (int32_t i = 0; i < params->count; i++) {
        *zeros_out += shard_answers(&params->table[i], copy) ? (int64_t)counts[i] : 0;
    }
    return STATUS_OK;
}

enum status params_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                                 const struct grad_norm_run *run, double *sums, int32_t keys)
{
    double *results = run->results;

    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        struct stretch part = part_of(param, copy);

        TRY(device_kernels(run->device)
                ->sum_squares(&results[i], param->main + (part.first - param->own_first),
                              part.elems, device_stream(run->device)));
    }
    TRY(wait_for(run, "sums of squares"));
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];

        check_key(param, keys);
        sums[param->norm_key] += shard_answers(param, copy) ? results[i] : 0.0;
    }
    return STATUS_OK;
}
