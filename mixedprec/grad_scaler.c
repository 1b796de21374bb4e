#include "mixedprec/grad_scaler.h"

#include <inttypes.h>
#include <math.h>

#include "base/check.h"

static bool is_scale(double scale)
{
    /* False for a NaN, too. */
    return scale >= GRAD_SCALER_SMALLEST && scale <= GRAD_SCALER_LARGEST;
}

static void check_dynamic(const struct grad_scaler_config *config)
{
    ENSURE(config->growth_factor > 1.0 && isfinite(config->growth_factor), "growth factor %g",
           config->growth_factor);
    ENSURE(config->backoff_factor > 0.0 && config->backoff_factor < 1.0, "backoff factor %g",
           config->backoff_factor);
    ENSURE(config->growth_interval >= 1 && config->hysteresis >= 1,
           "growth interval %" PRId64 ", hysteresis %" PRId64, config->growth_interval,
           config->hysteresis);
    ENSURE(is_scale(config->min_scale) && config->min_scale <= config->initial_scale,
           "loss scale %g, at least %g", config->initial_scale, config->min_scale);
}

void grad_scaler_init(struct grad_scaler *scaler, const struct grad_scaler_config *config)
{
    ENSURE(is_scale(config->initial_scale), "loss scale %g", config->initial_scale);
    if (config->dynamic) {
        check_dynamic(config);
    }
    *scaler = (struct grad_scaler){
        .config = *config,
        .state = {.dynamic = config->dynamic,
                  .scale = config->initial_scale,
                  .hysteresis_left = config->dynamic ? config->hysteresis : 0},
    };
}

static enum grad_scaler_change overflowed(struct grad_scaler *scaler)
{
    const struct grad_scaler_config *config = &scaler->config;
    struct grad_scaler_state *state = &scaler->state;
    double shrunk = state->scale * config->backoff_factor;

    state->good_steps = 0;
    if (state->hysteresis_left > 0) {
        state->hysteresis_left--;
    }
    if (state->hysteresis_left > 0) {
        return GRAD_SCALER_PATIENT;
    }
    if (state->scale <= config->min_scale) {
        return GRAD_SCALER_AT_MINIMUM;
    }
    state->scale = shrunk > config->min_scale ? shrunk : config->min_scale;
    return GRAD_SCALER_SHRANK;
}

static enum grad_scaler_change went_well(struct grad_scaler *scaler)
{
    const struct grad_scaler_config *config = &scaler->config;
    struct grad_scaler_state *state = &scaler->state;
    double grown = state->scale * config->growth_factor;

    state->good_steps++;
    if (state->good_steps < config->growth_interval) {
        return GRAD_SCALER_KEPT;
    }
    state->good_steps = 0;
    if (grown > GRAD_SCALER_LARGEST) {
        return GRAD_SCALER_KEPT;
    }
    state->scale = grown;
    state->hysteresis_left = config->hysteresis;
    return GRAD_SCALER_GREW;
}

enum grad_scaler_change grad_scaler_update(struct grad_scaler *scaler, bool found_inf)
{
    if (!scaler->config.dynamic) {
        return GRAD_SCALER_KEPT;
    }
    return found_inf ? overflowed(scaler) : went_well(scaler);
}

enum status grad_scaler_restore(struct grad_scaler *scaler, const struct grad_scaler_state *state)
{
    const struct grad_scaler_config *config = &scaler->config;

    if (!is_scale(state->scale)) {
        return status_fail(STATUS_ERR_REFUSED, "loss scale %g: expected a number from %g to %g",
                           state->scale, GRAD_SCALER_SMALLEST, GRAD_SCALER_LARGEST);
    }
    if (state->good_steps < 0 || state->hysteresis_left < 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "loss scaler: %" PRId64 " good steps and %" PRId64
                           " of hysteresis left: expected numbers from 0 on",
                           state->good_steps, state->hysteresis_left);
    }
    if (!config->dynamic || !state->dynamic) {
        return STATUS_OK;
    }
    scaler->state = *state;
    if (scaler->state.scale < config->min_scale) {
        scaler->state.scale = config->min_scale;
    }
    if (scaler->state.good_steps >= config->growth_interval) {
        scaler->state.good_steps = config->growth_interval - 1;
    }
    if (scaler->state.hysteresis_left > config->hysteresis) {
        scaler->state.hysteresis_left = config->hysteresis;
    }
    return STATUS_OK;
}
