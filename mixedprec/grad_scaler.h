/*
 * grad_scaler -- the factor of the loss that keeps 16-bit gradients above zero.
 *
 * Small gradients vanish in fp16, so the loss is multiplied by a scale before the backward pass and
 * the gradients are divided by it in the update. A step whose gradients are not finite is skipped.
 *
 * A constant scale stays. A dynamic one follows Megatron's rule:
 *
 *   not finite  good_steps = 0, hysteresis_left goes down by one; where none is left, the scale is
 *               multiplied by the backoff factor, down to the minimum
 *   finite      good_steps goes up by one; at growth_interval it starts again at 0, the scale is
 *               multiplied by the growth factor, and hysteresis_left is full again
 *
 * Only growth fills hysteresis_left: after a first backoff every further overflow shrinks the scale.
 * A scale that would exceed GRAD_SCALER_LARGEST stays, and that is no growth.
 *
 * Knows nothing of tensors or ranks: all ranks report the same answer, or their scales drift apart.
 */
#ifndef MIXEDPREC_GRAD_SCALER_H
#define MIXEDPREC_GRAD_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scales lie between these. Loss seed and gradients are multiplied by the scale and by its inverse in
 * fp32, whose normal numbers reach from 2^-126 to 2^127: a scale takes half of that range, and leaves the
 * other half to 1 / targets and to the clip coefficient. */
#define GRAD_SCALER_LARGEST  0x1p63
#define GRAD_SCALER_SMALLEST 0x1p-63

struct grad_scaler_config {
    bool dynamic;
    double initial_scale;    /* the constant, where it is one */
    double growth_factor;    /* > 1; from here on dynamic scales only */
    double backoff_factor;   /* in (0, 1) */
    int64_t growth_interval; /* >= 1, finite steps in a row */
    int64_t hysteresis;      /* >= 1, steps that are not finite until the scale shrinks */
    double min_scale;        /* <= initial_scale */
};

/* What a checkpoint keeps. */
struct grad_scaler_state {
    bool dynamic; /* where it is not, the two counts say nothing */
    double scale;
    int64_t good_steps;      /* finite ones since the scale grew, or since one that was not */
    int64_t hysteresis_left; /* in [0, hysteresis] */
};

struct grad_scaler {
    struct grad_scaler_config config;
    struct grad_scaler_state state; /* state.scale is what the next step's loss is multiplied by */
};

/* What an update did to the scale. */
enum grad_scaler_change {
    GRAD_SCALER_KEPT,
    GRAD_SCALER_GREW,
    GRAD_SCALER_SHRANK,
    GRAD_SCALER_AT_MINIMUM, /* not finite, and it cannot shrink */
    GRAD_SCALER_PATIENT /* not finite, and hysteresis is left: it will shrink after so many more */
};

/* `config` is one that can progress (stages/config_check.c). */
void grad_scaler_init(struct grad_scaler *scaler, const struct grad_scaler_config *config);

/* After each step that had gradients: whether any of them, on any rank, was not finite. */
enum grad_scaler_change grad_scaler_update(struct grad_scaler *scaler, bool found_inf);

/* Goes on from a state that was kept. What no run could have kept is STATUS_ERR_REFUSED with the
 * number; what the present config does not allow any more is brought to the nearest that it does. A
 * constant scale stays the config's, and a dynamic one that was constant begins as a first one: the
 * constant says nothing of how large a scale the gradients bear. */
enum status grad_scaler_restore(struct grad_scaler *scaler, const struct grad_scaler_state *state);

#ifdef __cplusplus
}
#endif

#endif /* MIXEDPREC_GRAD_SCALER_H */
