#include "mixedprec/grad_norm.h"

#include <math.h>

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

/* Whether the gradient is finite outside of `part`: a whole copy that has gone bad here alone would
 * spoil the weights here alone. Of a sliced one the rest is no sum and nobody's. */
static enum status rest_is_finite(const struct param *param, const struct stretch *part,
                                  struct device *device, bool *finite)
{
    size_t end = part->first + part->elems;
    double before = 0.0;
    double behind = 0.0;

    if (param->sliced) {
        return STATUS_OK;
    }
    if (part->first > 0) {
        TRY(device_kernels(device)->sum_squares(&before, param->grad, part->first,
                                                device_stream(device)));
    }
    if (end < param->elems) {
        TRY(device_kernels(device)->sum_squares(&behind, param->grad + end, param->elems - end,
                                                device_stream(device)));
    }
    *finite = *finite && isfinite(before + behind);
    return STATUS_OK;
}

enum status grad_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                               struct device *device, double *sums, int32_t keys,
                               const char **bad_out)
{
    const char *bad = NULL;

    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        struct stretch part = part_of(param, copy);
        double sum = 0.0;
        bool finite = true;

        check_key(param, keys);
        TRY(device_kernels(device)->sum_squares(&sum, grad_of(param, &part), part.elems,
                                                device_stream(device)));
        finite = isfinite(sum) != 0;
        TRY(rest_is_finite(param, &part, device, &finite));
        if (!finite && bad == NULL) {
            bad = param->name;
        }
        if (shard_answers(param, copy)) {
            sums[param->norm_key] += sum;
        }
    }
    *bad_out = bad;
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
                             struct device *device, int64_t *zeros_out)
{
    *zeros_out = 0;
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        struct stretch part = part_of(param, copy);
        size_t zeros = 0;

        TRY(device_kernels(device)->count_zeros(&zeros, grad_of(param, &part), part.elems,
                                                device_stream(device)));
        *zeros_out += shard_answers(param, copy) ? (int64_t)zeros : 0;
    }
    return STATUS_OK;
}

enum status params_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                                 struct device *device, double *sums, int32_t keys)
{
    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        struct stretch part = part_of(param, copy);
        double sum = 0.0;

        check_key(param, keys);
        TRY(device_kernels(device)->sum_squares(&sum, param->main + (part.first - param->own_first),
                                                part.elems, device_stream(device)));
        sums[param->norm_key] += shard_answers(param, copy) ? sum : 0.0;
    }
    return STATUS_OK;
}
