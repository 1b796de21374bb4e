/*
 * linear -- y = x·w + bias with w stored input × output (Conv1D), in its three parts.
 *
 * Shapes: x (N,K), w (K,M), y (N,M). On one tensor-parallel shard K or M is the shard's. x, w and
 * dy are of the shape's type. Results are of the type that stands behind them: the same, or fp32
 * where more is added before the result is rounded. In a 16-bit type the device has to be opened
 * for one.
 */
#ifndef STAGES_MODEL_LINEAR_H
#define STAGES_MODEL_LINEAR_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct linear_shape {
    size_t N;
    size_t K;
    size_t M;
    enum dtype type; /* of x, w and dy; left out: fp32 */
};

/* y = x·w, overwritten; a bias is added by whatever comes next. */
enum status linear_forward(void *y, enum dtype y_type, const void *x, const void *w,
                           const struct linear_shape *shape, struct device *device);

/* y = x·w + bias, overwritten, of the shape's type. */
enum status linear_forward_bias(void *y, const void *x, const void *w, const void *bias,
                                const struct linear_shape *shape, struct device *device);

/* pre = x·w + bias and y = gelu(pre), both overwritten, of the shape's type. */
enum status linear_forward_gelu(void *y, void *pre, const void *x, const void *w, const void *bias,
                                const struct linear_shape *shape, struct device *device);

/* dx = dy·wᵀ, overwritten. */
enum status linear_backward_input(void *dx, enum dtype dx_type, const void *dy, const void *w,
                                  const struct linear_shape *shape, struct device *device);

/* The gradient where x is gelu(pre): dpre = (dy·wᵀ) · gelu'(pre), overwritten, of the shape's type; and of the bias in pre,
 * dbias (K) += the sum of dpre's rows. */
enum status linear_backward_gelu(void *dpre, float *dbias, const void *dy, const void *w,
                                 const void *pre, const struct linear_shape *shape,
                                 struct device *device);

/* dw += xᵀ·dy. */
enum status linear_backward_weight(float *dw, const void *x, const void *dy,
                                   const struct linear_shape *shape, struct device *device);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_LINEAR_H */
