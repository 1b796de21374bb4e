#include "mixedprec/grad_norm.h"

#include <math.h>

#include "base/check.h"
#include "tensor/kernels.h"

static bool answers_for(const struct param *param, const struct grad_norm_copy *copy)
{
    return (param->sliced || copy->first_replica) && (param->sharded || copy->first_shard);
}

enum status grad_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                               struct device *device, double *sums, int32_t keys,
                               const char **bad_out)
{
    const char *bad = NULL;

    for (int32_t i = 0; i < params->count; i++) {
        const struct param *param = &params->table[i];
        double sum = 0.0;

        ENSURE(param->norm_key >= 0 && param->norm_key < keys, "%s: norm key %d of %d", param->name,
               param->norm_key, keys);
        TRY(device_kernels(device)->sum_squares(&sum, param->grad + param->own_first,
                                                param->own_elems, device_stream(device)));
        if (!isfinite(sum) && bad == NULL) {
            bad = param->name;
        }
        /* What another rank answers for is looked at all the same: a copy that has gone bad here alone
         * would spoil the weights here alone. */
        if (answers_for(param, copy)) {
            sums[param->norm_key] += sum;
        }
    }
    *bad_out = bad;
    return STATUS_OK;
}

double grad_norm_total(const double *sums, int32_t keys)
{
    double total = 0.0;

    for (int32_t key = 0; key < keys; key++) {
        total += sums[key];
    }
    return sqrt(total);
}

double grad_norm_coefficient(double norm, double max_norm)
{
    return max_norm > 0.0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1.0;
}
