/*
 * sgd -- one update of one tensor by stochastic gradient descent with momentum.
 *
 *   weight  (elems)  read and overwritten
 *   moment  (elems)  read and overwritten; zero before the first update
 *   grad    (elems)  read
 *   step->copy  (elems)  overwritten with the new weight, rounded to step->copy_type, where it is not
 *                        NULL
 *
 * moment = momentum · moment + (grad · grad_scale + weight_decay · weight)
 * weight = weight - lr · moment
 *
 * Weight decay is coupled: it is part of the gradient and goes through the moment, as in PyTorch's
 * SGD. No dampening; the first update's moment is the gradient itself. One pass over memory, every
 * operation rounded on its own, so that variants give the same bits. Nothing overlaps. The team's
 * size changes no bit. grad is finite: a step with other gradients is skipped by the caller. Cannot
 * fail.
 */
#ifndef TENSOR_KERNELS_SGD_H
#define TENSOR_KERNELS_SGD_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgd_step;
struct stream;

enum status KERNEL(sgd)(float *weight, float *moment, const float *grad, size_t elems,
                        const struct sgd_step *step, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_SGD_H */
