#include "tensor/kernels/sgd.h"

#include "tensor/kernels.h"
#include "tensor/kernels/convert.h"
#include "tensor/stream.h"

#define GRAIN 1024

/* Elements that are rounded while they are still in the first or second cache. */
#define BLOCK ((size_t)4096)

struct sgd {
    float *weight;
    float *moment;
    const float *grad;
    size_t elems;
    struct sgd_step step;
};

static void sgd_block(const struct sgd *s, size_t begin, size_t elems)
{
    float *restrict weight = s->weight + begin;
    float *restrict moment = s->moment + begin;
    const float *restrict grad = s->grad + begin;
    const float lr = s->step.lr;
    const float momentum = s->step.momentum;
    const float weight_decay = s->step.weight_decay;
    const float grad_scale = s->step.grad_scale;

    /* Three products meet in one sum: were one fused with an addition, which of them would be the
     * compiler's choice, so this file is compiled without (tensor/CMakeLists.txt). */
    for (size_t i = 0; i < elems; i++) {
        const float g = grad[i] * grad_scale + weight_decay * weight[i];
        const float m = momentum * moment[i] + g;
        moment[i] = m;
        weight[i] -= lr * m;
    }
    if (s->step.copy != NULL) {
        (void)KERNEL(convert)(dtype_at(s->step.copy, s->step.copy_type, begin), s->step.copy_type,
                              weight, DTYPE_FP32, elems, NULL);
    }
}

static void sgd_part(void *context, int part, int parts)
{
    const struct sgd *s = context;
    size_t begin = 0;
    size_t end = 0;

    stream_share(s->elems, GRAIN, part, parts, &begin, &end);
    for (; begin < end; begin += BLOCK) {
        sgd_block(s, begin, end - begin < BLOCK ? end - begin : BLOCK);
    }
}

enum status KERNEL(sgd)(float *weight, float *moment, const float *grad, size_t elems,
                        const struct sgd_step *step, struct stream *stream)
{
    struct sgd sgd = {
        .weight = weight, .moment = moment, .grad = grad, .elems = elems, .step = *step};

    stream_run(stream, sgd_part, &sgd);
    return STATUS_OK;
}
