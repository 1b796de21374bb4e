/*
 * grad_norm -- the global gradient norm, in an order that no pipeline changes.
 *
 * Every parameter counts once. Each belongs to a key (the embedding, a layer, the final norm). A
 * rank takes the sums of squares of what it answers for, in double, over its parameters in table
 * order; the ranks' sums of a key are added in rank order, and the keys in ascending order. A rank
 * answers for a sliced parameter's own slice; for a whole one where it is the first replica; and of
 * those, for a sharded one in any case, for a replicated one where it is the first shard. Clipping
 * multiplies by max_norm / (norm + 1e-6) where norm > max_norm.
 */
#ifndef MIXEDPREC_GRAD_NORM_H
#define MIXEDPREC_GRAD_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which of several copies this rank has. */
struct grad_norm_copy {
    bool first_shard;   /* tp 0 */
    bool first_replica; /* dp 0 */
};

/* Adds what this rank answers for to sums[key] (zeroed by the caller). *bad_out is NULL, or lends
 * the name of the first parameter of this rank, answered for or not, whose gradient is not finite. */
enum status grad_norm_partials(const struct params *params, const struct grad_norm_copy *copy,
                               struct device *device, double *sums, int32_t keys,
                               const char **bad_out);

/* sqrt of the sum over all keys; not finite where one is not. */
double grad_norm_total(const double *sums, int32_t keys);

/* 1 where nothing is clipped; max_norm 0 is off. */
double grad_norm_coefficient(double norm, double max_norm);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_GRAD_NORM_H */
