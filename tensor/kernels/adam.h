/*
 * adam -- one update of one tensor by Adam with decoupled weight decay.
 *
 *   weight            (elems)  read and overwritten
 *   moment1, moment2  (elems)  read and overwritten; zero before update 1
 *   grad              (elems)  read
 *   step->copy        (elems)  overwritten with the new weight, rounded to step->copy_type, where it is
 *                              not NULL
 *
 * With g = grad · grad_scale and t = step->update:
 * moment1 += (1 - beta1) · (g - moment1)
 * moment2 += (1 - beta2) · (g² - moment2)
 * weight = weight - lr · weight_decay · weight
 *          - lr · (moment1 / (1 - beta1^t)) / (sqrt(moment2 / (1 - beta2^t)) + eps)
 *
 * One pass over memory. The factors that are the same for all elements are computed in double and
 * rounded once; square root and division are IEEE's. Nothing overlaps. The team's size changes no
 * bit. grad is finite: a step with other gradients is skipped by the caller. t >= 1.
 * Cannot fail.
 */
#ifndef TENSOR_KERNELS_ADAM_H
#define TENSOR_KERNELS_ADAM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

/* The formula with all that elements share computed ahead. */
struct adam_factors {
    float grad_scale;
    float take1;  /* 1 - beta1 */
    float take2;  /* 1 - beta2 */
    float decay;  /* lr · weight_decay */
    float rate;   /* lr / (1 - beta1^t) */
    float spread; /* 1 / sqrt(1 - beta2^t) */
    float eps;
};

static inline struct adam_factors adam_factors_of(const struct adam_step *step)
{
    const double t = (double)step->update;
    struct adam_factors by;

    ENSURE(step->update >= 1, "Adam's update %lld", (long long)step->update);
    by.grad_scale = step->grad_scale;
    by.take1 = (float)(1.0 - (double)step->beta1);
    by.take2 = (float)(1.0 - (double)step->beta2);
    by.decay = (float)((double)step->lr * (double)step->weight_decay);
    by.rate = (float)((double)step->lr / (1.0 - pow((double)step->beta1, t)));
    by.spread = (float)(1.0 / sqrt(1.0 - pow((double)step->beta2, t)));
    by.eps = step->eps;
    return by;
}

enum status KERNEL(adam)(float *weight, float *moment1, float *moment2, const float *grad,
                         size_t elems, const struct adam_step *step, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ADAM_H */
