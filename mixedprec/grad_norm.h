/*
 * grad_norm -- the global gradient norm, in an order that no layout changes.
 *
 * Every parameter counts once. Each belongs to a key (the embedding, a layer, the final norm); the
 * sum of squares of a key is taken in double over its parameters in table order by the rank that
 * owns them, and the keys are added in ascending order. Clipping multiplies by
 * max_norm / (norm + 1e-6) where norm > max_norm.
 */
#ifndef MIXEDPREC_GRAD_NORM_H
#define MIXEDPREC_GRAD_NORM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds this rank's parameters to sums[key] (zeroed by the caller). *bad_out is NULL, or lends the
 * name of the first parameter whose gradient is not finite. */
enum status grad_norm_partials(const struct params *params, struct device *device, double *sums,
                               int32_t keys, const char **bad_out);

/* sqrt of the sum over all keys; not finite where one is not. */
double grad_norm_total(const double *sums, int32_t keys);

/* 1 where nothing is clipped; max_norm 0 is off. */
double grad_norm_coefficient(double norm, double max_norm);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_GRAD_NORM_H */
