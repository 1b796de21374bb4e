#include "mixedprec/optimizer.h"

#include "tensor/kernels.h"

/* One update, as the kernels take it. */
struct step {
    enum optimizer_kind kind;
    float weight_decay; /* of what decays */
    struct adam_step adam;
    struct sgd_step sgd;
};

int optimizer_moments(enum optimizer_kind kind)
{
    return kind == OPTIMIZER_SGD ? 1 : 2;
}

static enum status update_param(const struct param *param, const struct step *step,
                                struct device *device)
{
    const struct kernel_ops *kernels = device_kernels(device);
    struct stream *stream = device_stream(device);
    const float *grad = param_own_grad(param);
    float weight_decay = param->decays ? step->weight_decay : 0.0F;
    void *copy = param->type == DTYPE_FP32 ? NULL : param_own_weight(param);
    struct adam_step adam = step->adam;
    struct sgd_step sgd = step->sgd;

    if (step->kind == OPTIMIZER_SGD) {
        sgd.weight_decay = weight_decay;
        sgd.copy = copy;
        sgd.copy_type = param->type;
        return kernels->sgd(param->main, param->moment1, grad, param->own_elems, &sgd, stream);
    }
    adam.weight_decay = weight_decay;
    adam.copy = copy;
    adam.copy_type = param->type;
    return kernels->adam(param->main, param->moment1, param->moment2, grad, param->own_elems, &adam,
                         stream);
}

enum status optimizer_update(const struct optimizer_config *config, struct params *params,
                             struct device *device, int64_t update, double lr, double grad_scale)
{
    const struct step step = {
        .kind = config->kind,
        .weight_decay = (float)wd_schedule_at(&config->weight_decay, update),
        .adam =
            {
                .lr = (float)lr,
                .beta1 = (float)config->beta1,
                .beta2 = (float)config->beta2,
                .eps = (float)config->eps,
                .grad_scale = (float)grad_scale,
                .update = update,
            },
        .sgd =
            {
                .lr = (float)lr,
                .momentum = (float)config->momentum,
                .grad_scale = (float)grad_scale,
            },
    };

    for (int32_t i = 0; i < params->count; i++) {
        TRY(update_param(&params->table[i], &step, device));
    }
    return STATUS_OK;
}
