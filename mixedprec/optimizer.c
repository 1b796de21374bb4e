#include "mixedprec/optimizer.h"

#include "tensor/kernels.h"

enum status optimizer_update(const struct optimizer_config *config, struct params *params,
                             struct device *device, int64_t update, double lr, double grad_scale)
{
    for (int32_t i = 0; i < params->count; i++) {
        struct param *param = &params->table[i];
        struct adam_step step = {
            .lr = (float)lr,
            .beta1 = (float)config->beta1,
            .beta2 = (float)config->beta2,
            .eps = (float)config->eps,
            .weight_decay = param->decays ? (float)config->weight_decay : 0.0F,
            .grad_scale = (float)grad_scale,
            .update = update,
        };

        TRY(device_kernels(device)->adam(param->weight + param->own_first, param->moment1,
                                         param->moment2, param->grad + param->own_first,
                                         param->own_elems, &step, device_stream(device)));
    }
    return STATUS_OK;
}
