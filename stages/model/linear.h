/*
 * linear -- y = x·w + bias with w stored input × output (Conv1D), in its three parts.
 *
 * Shapes: x (N,K), w (K,M), y (N,M). On one tensor-parallel shard K or M is the shard's.
 */
#ifndef STAGES_MODEL_LINEAR_H
#define STAGES_MODEL_LINEAR_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct linear_shape {
    size_t N;
    size_t K;
    size_t M;
};

/* y = x·w, overwritten; the bias is added by whatever comes next. */
enum status linear_forward(float *y, const float *x, const float *w,
                           const struct linear_shape *shape, struct device *device);

/* dx = dy·wᵀ, overwritten. */
enum status linear_backward_input(float *dx, const float *dy, const float *w,
                                  const struct linear_shape *shape, struct device *device);

/* dw += xᵀ·dy. */
enum status linear_backward_weight(float *dw, const float *x, const float *dy,
                                   const struct linear_shape *shape, struct device *device);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_LINEAR_H */
