#include "tensor/cuda/kernel.cuh"

#include "tensor/kernels.h"
#include "tensor/kernels/sgd.h"

#define THREADS 256
#define BLOCKS  4096

/* `copy` is NULL, or gets the new weight. Which of the three products were fused would be the compiler's
 * choice, so none is. */
template <typename NUMBER>
__global__ void update_elements(float *weight, float *moment, const float *grad, NUMBER *copy,
                                size_t elems, struct sgd_step step)
{
    FOR_EACH(i, elems)
    {
        float w = weight[i];
        float g = rounded_sum(rounded_product(grad[i], step.grad_scale),
                              rounded_product(step.weight_decay, w));
        float m = rounded_sum(rounded_product(step.momentum, moment[i]), g);

        moment[i] = m;
        w = rounded_sum(w, -rounded_product(step.lr, m));
        weight[i] = w;
        if (copy != NULL) {
            narrow(&copy[i], w);
        }
    }
}

template <typename NUMBER>
static enum status launch_update(float *weight, float *moment, const float *grad, NUMBER *copy,
                                 size_t elems, const struct sgd_step &step, struct stream *stream)
{
    LAUNCH(update_elements<NUMBER>, grid_of(elems, THREADS, BLOCKS), THREADS, stream, weight,
           moment, grad, copy, elems, step);
}

enum status KERNEL(sgd)(float *weight, float *moment, const float *grad, size_t elems,
                        const struct sgd_step *step, struct stream *stream)
{
    if (elems == 0) {
        return STATUS_OK;
    }
    if (step->copy == NULL) {
        return launch_update(weight, moment, grad, (float *)NULL, elems, *step, stream);
    }
    BY_TYPE(step->copy_type,
            return launch_update(weight, moment, grad, (NUMBER *)step->copy, elems, *step, stream));
}
