/*
 * optimizer -- one update of a table of parameters: Adam, or gradient descent with momentum.
 *
 *   adam  decoupled weight decay: Kingma and Ba 2015, Loshchilov and Hutter 2019; kernels/adam.h
 *   sgd   weight decay is coupled, part of the gradient that goes into the momentum, as in PyTorch;
 *         kernels/sgd.h. It has one moment
 *
 * t is the number of the update, skipped steps not counted. Weight decay touches matrices only, never
 * biases or layer norms, and may change from update to update. What is updated are the fp32 main params that
 * this replica owns; a 16-bit copy of the model then gets them rounded.
 */
#ifndef MIXEDPREC_OPTIMIZER_H
#define MIXEDPREC_OPTIMIZER_H

#include <stdint.h>

#include "base/status.h"
#include "mixedprec/params.h"
#include "mixedprec/wd_schedule.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum optimizer_kind {
    OPTIMIZER_ADAM,
    OPTIMIZER_SGD
};

struct optimizer_config {
    enum optimizer_kind kind;
    double beta1; /* these three: Adam's */
    double beta2;
    double eps;
    double momentum; /* of gradient descent, in [0, 1) */
    struct wd_schedule weight_decay;
};

/* What params_init() asks for. */
int optimizer_moments(enum optimizer_kind kind);

/* Update `update` = 1, 2, ... of what this replica owns of every parameter, with learning rate `lr`;
 * gradients are multiplied by `grad_scale`, the clip coefficient over the loss scale, on the way and
 * left as they are. Copies of 16 bits are rounded in the same pass. */
enum status optimizer_update(const struct optimizer_config *config, struct params *params,
                             struct device *device, int64_t update, double lr, double grad_scale);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_OPTIMIZER_H */
