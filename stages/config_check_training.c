/* Learning rate, weight decay and loss scale: what follows and what contradicts itself. */
#include <inttypes.h>

#include "stages/config_check.h"

/* Default of wsd_decay_steps: a tenth, but at least one update. */
static int64_t tenth(int64_t steps)
{
    return steps >= 10 ? steps / 10 : 1;
}

static enum status check_decay(const struct config_draft *draft, struct config *config)
{
    struct config_optimizer *optimizer = &config->optimizer;

    if (optimizer->decay_steps == CONFIG_DERIVE) {
        /* A run of no steps, which only writes its starting weights, still has a schedule. */
        optimizer->decay_steps = config->train.steps > 0 ? config->train.steps : 1;
    }
    if (optimizer->wsd_decay_steps == CONFIG_DERIVE) {
        optimizer->wsd_decay_steps = tenth(optimizer->decay_steps);
    }
    if (optimizer->min_lr > optimizer->lr) {
        return status_fail(
            STATUS_ERR_REFUSED, "%s: optimizer.min_lr: %g is more than optimizer.lr %g",
            config_draft_place(draft, "optimizer", "min_lr"), optimizer->min_lr, optimizer->lr);
    }
    if (optimizer->warmup_steps >= optimizer->decay_steps) {
        return status_fail(
            STATUS_ERR_REFUSED,
            "%s: optimizer.warmup_steps: expected less than optimizer.decay_steps %" PRId64
            ", found %" PRId64,
            config_draft_place(draft, "optimizer", "warmup_steps"), optimizer->decay_steps,
            optimizer->warmup_steps);
    }
    if (optimizer->lr_schedule == LR_WSD &&
        optimizer->wsd_decay_steps > optimizer->decay_steps - optimizer->warmup_steps) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: optimizer.wsd_decay_steps: %" PRId64
                           " is more than what optimizer.warmup_steps %" PRId64
                           " leaves of optimizer.decay_steps %" PRId64 "; at most %" PRId64,
                           config_draft_place(draft, "optimizer", "wsd_decay_steps"),
                           optimizer->wsd_decay_steps, optimizer->warmup_steps,
                           optimizer->decay_steps,
                           optimizer->decay_steps - optimizer->warmup_steps);
    }
    return STATUS_OK;
}

static void fill_weight_decay(struct config_optimizer *optimizer)
{
    if (optimizer->weight_decay_steps == CONFIG_DERIVE) {
        optimizer->weight_decay_steps = optimizer->decay_steps;
    }
    if (optimizer->end_weight_decay == CONFIG_DERIVE) {
        optimizer->end_weight_decay = optimizer->weight_decay;
    }
}

enum status config_check_optimizer(const struct config_draft *draft, struct config *config)
{
    TRY(check_decay(draft, config));
    fill_weight_decay(&config->optimizer);
    return STATUS_OK;
}

enum status config_check_precision(const struct config_draft *draft, struct config *config)
{
    struct config_precision *precision = &config->precision;

    if (precision->loss_scale == CONFIG_DERIVE) {
        precision->dynamic_scale = precision->dtype == DTYPE_FP16;
        precision->loss_scale = precision->dynamic_scale ? CONFIG_DERIVE : 1.0;
    }
    if (precision->tf32 && precision->dtype != DTYPE_FP32) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: precision.tf32: true: of products of fp32, which precision.dtype "
                           "%s has none of; legal "
                           "here: false",
                           config_draft_place(draft, "precision", "tf32"),
                           precision->dtype == DTYPE_BF16 ? "bf16" : "fp16");
    }
    if (precision->min_scale > precision->initial_scale) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: precision.min_scale: %g is more than precision.initial_scale %g, "
                           "from which the scale could not shrink; at most %g, or raise "
                           "precision.initial_scale",
                           config_draft_place(draft, "precision",
                                              config_draft_given(draft, "precision", "min_scale")
                                                  ? "min_scale"
                                                  : "initial_scale"),
                           precision->min_scale, precision->initial_scale,
                           precision->initial_scale);
    }
    return STATUS_OK;
}
