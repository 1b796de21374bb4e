#include "tensor/cuda/kernel.cuh"

#include "tensor/kernels/adam.h"

#define THREADS 256
#define BLOCKS  4096

/* `copy` is NULL, or gets the new weight. */
template <typename NUMBER>
__global__ void update_elements(float *weight, float *moment1, float *moment2, const float *grad,
                                NUMBER *copy, size_t elems, struct adam_factors by)
{
    FOR_EACH(i, elems)
    {
        float g = grad[i] * by.grad_scale;
        float m = moment1[i] + by.take1 * (g - moment1[i]);
        float v = moment2[i] + by.take2 * (g * g - moment2[i]);
        float w = weight[i] - by.decay * weight[i];

        moment1[i] = m;
        moment2[i] = v;
        w -= by.rate * (m / (sqrtf(v) * by.spread + by.eps));
        weight[i] = w;
        if (copy != NULL) {
            narrow(&copy[i], w);
        }
    }
}

template <typename NUMBER>
static enum status launch_update(float *weight, float *moment1, float *moment2, const float *grad,
                                 NUMBER *copy, size_t elems, const struct adam_factors &by,
                                 struct stream *stream)
{
    LAUNCH(update_elements<NUMBER>, grid_of(elems, THREADS, BLOCKS), THREADS, stream, weight,
           moment1, moment2, grad, copy, elems, by);
}

enum status KERNEL(adam)(float *weight, float *moment1, float *moment2, const float *grad,
                         size_t elems, const struct adam_step *step, struct stream *stream)
{
    const struct adam_factors by = adam_factors_of(step);

    if (elems == 0) {
        return STATUS_OK;
    }
    if (step->copy == NULL) {
        return launch_update(weight, moment1, moment2, grad, (float *)NULL, elems, by, stream);
    }
    BY_TYPE(step->copy_type, return launch_update(weight, moment1, moment2, grad,
                                                  (NUMBER *)step->copy, elems, by, stream));
}
