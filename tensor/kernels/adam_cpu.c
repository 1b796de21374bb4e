#include "tensor/kernels/adam.h"

#include <math.h>

#include "base/check.h"
#include "tensor/kernels.h"
#include "tensor/kernels/convert.h"
#include "tensor/stream.h"

#define GRAIN 1024

/* Elements that are rounded while they are still in the first or second cache. */
#define BLOCK ((size_t)4096)

struct adam {
    float *weight;
    float *moment1;
    float *moment2;
    const float *grad;
    size_t elems;
    void *copy;
    enum dtype copy_type;
    struct adam_factors by;
};

static void adam_block(const struct adam *a, size_t begin, size_t elems)
{
    float *restrict weight = a->weight + begin;
    float *restrict moment1 = a->moment1 + begin;
    float *restrict moment2 = a->moment2 + begin;
    const float *restrict grad = a->grad + begin;
    const float grad_scale = a->by.grad_scale;
    const float take1 = a->by.take1;
    const float take2 = a->by.take2;
    const float decay = a->by.decay;
    const float rate = a->by.rate;
    const float spread = a->by.spread;
    const float eps = a->by.eps;

    /* No expression has two products to choose from when one is fused with an addition, so that
     * an element has the same bits in the vector loop and in the rest behind it. */
    for (size_t i = 0; i < elems; i++) {
        const float g = grad[i] * grad_scale;
        const float m = moment1[i] + take1 * (g - moment1[i]);
        const float v = moment2[i] + take2 * (g * g - moment2[i]);
        const float move = m / (sqrtf(v) * spread + eps);
        moment1[i] = m;
        moment2[i] = v;
        const float decayed = weight[i] - decay * weight[i];
        weight[i] = decayed - rate * move;
    }
    if (a->copy != NULL) {
        (void)KERNEL(convert)(dtype_at(a->copy, a->copy_type, begin), a->copy_type, weight,
                              DTYPE_FP32, elems, NULL);
    }
}

static void adam_part(void *context, int part, int parts)
{
    const struct adam *a = context;
    size_t begin = 0;
    size_t end = 0;

    stream_share(a->elems, GRAIN, part, parts, &begin, &end);
    for (; begin < end; begin += BLOCK) {
        adam_block(a, begin, end - begin < BLOCK ? end - begin : BLOCK);
    }
}

enum status KERNEL(adam)(float *weight, float *moment1, float *moment2, const float *grad,
                         size_t elems, const struct adam_step *step, struct stream *stream)
{
    struct adam adam = {.weight = weight,
                        .moment1 = moment1,
                        .moment2 = moment2,
                        .grad = grad,
                        .elems = elems,
                        .copy = step->copy,
                        .copy_type = step->copy_type,
                        .by = adam_factors_of(step)};

    stream_run(stream, adam_part, &adam);
    return STATUS_OK;
}
