/*
 * grad_norm -- norms over all parameters, in an order that no pipeline and no slicing changes.
 *
 * Every parameter counts once. Each belongs to a key (the embedding, a layer, the final norm). A
 * rank takes the sums of squares of what it answers for, in double, over its parameters in table
 * order; the ranks' sums of a key are added in rank order, and the keys in ascending order.
 *
 * Of several replicas, each answers for its comm_slice() of every tensor, whether its gradient is
 * sliced or whole here: so the sums have the same bits at every ZeRO stage. Of several shards, each
 * answers for what is sharded, and the first for what is replicated.
 *
 * Gradients are those of the scaled loss: their norm is that of the sums, divided by the scale.
 * Clipping multiplies by max_norm / (norm + 1e-6) where norm > max_norm.
 */
#ifndef MIXEDPREC_GRAD_NORM_H
#define MIXEDPREC_GRAD_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "mixedprec/params.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which of several copies this rank has. */
struct grad_norm_copy {
    bool first_shard; /* tp 0 */
    int32_t replicas; /* dp */
    int32_t replica;
};

/* What sums are taken with: kernels leave them in `results`, all of them before anybody waits. */
struct grad_norm_run {
    struct device *device;
    void *results; /* grad_norm_result_bytes(), of DEVICE_HOST */
    const struct cancel *cancel;
    int64_t deadline_ns;
};

size_t grad_norm_result_bytes(const struct params *params);

/* Each of the three functions that take a run waits once for the device (device_wait()), and says so where that fails. */

/* Adds what this rank answers for to sums[key] (zeroed by the caller). *bad_out is NULL, or lends
 * the name of the first parameter of this rank whose gradient is not finite: of a sliced one in its
 * own slice, of a whole one anywhere, answered for or not. */
enum status grad_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                               const struct grad_norm_run *run, double *sums, int32_t keys,
                               const char **bad_out);

/* sqrt of the sum over all keys, divided by `scale` > 0; not finite where one is not. */
double grad_norm_total(const double *sums, int32_t keys, double scale);

/* 1 where nothing is clipped; max_norm 0 is off. */
double grad_norm_coefficient(double norm, double max_norm);

/* How many elements are zero in the gradients that this rank answers for. */
enum status grad_count_zeros(const struct params *params, const struct grad_norm_copy *copy,
                             const struct grad_norm_run *run, int64_t *zeros_out);

/* As grad_norm_partials(), of the main params: grad_norm_total(…, 1) of all ranks' sums is the norm
 * of the model. */
enum status params_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                                 const struct grad_norm_run *run, double *sums, int32_t keys);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_GRAD_NORM_H */
