/*
 * optimizer -- Adam with decoupled weight decay over a table of parameters.
 *
 * Kingma and Ba 2015, Loshchilov and Hutter 2019. t is the number of the update, skipped steps not
 * counted. Weight decay touches matrices only, never biases or layer-norm gains.
 */
#ifndef MIXEDPREC_OPTIMIZER_H
#define MIXEDPREC_OPTIMIZER_H

#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct optimizer_config {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
};

/* Update `update` = 1, 2, ... of what this replica owns of every parameter, with learning rate `lr`; gradients are
 * multiplied by `grad_scale` (the clip coefficient) on the way and left as they are. */
enum status optimizer_update(const struct optimizer_config *config, struct params *params,
                             struct device *device, int64_t update, double lr, double grad_scale);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_OPTIMIZER_H */
