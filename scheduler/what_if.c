#include "scheduler/what_if.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[WHAT_IF_TARGETS] = {
#define X(target, text) text,
    WHAT_IF_TABLE(X)
#undef X
};

static bool has_number(enum what_if_target target)
{
    return target == WHAT_IF_STAGE || target == WHAT_IF_VIRTUAL_STAGE;
}

static const char *skip_blanks(const char *at)
{
    while (*at == ' ') {
        at++;
    }
    return at;
}

/* The whole number at *at, at most nine digits. */
static bool read_number(const char **at, int32_t *number_out)
{
    int32_t number = 0;
    int digits = 0;

    while ((*at)[digits] >= '0' && (*at)[digits] <= '9' && digits < 9) {
        number = number * 10 + ((*at)[digits] - '0');
        digits++;
    }
    *at += digits;
    *number_out = number;
    return digits > 0;
}

static bool read_factor(const char *at, double *factor_out)
{
    char *end = NULL;

    at = skip_blanks(at);
    if (*at != 'x' && *at != '*') {
        return false;
    }
    *factor_out = strtod(at + 1, &end);
    return end != at + 1 && *skip_blanks(end) == '\0' && isfinite(*factor_out) &&
           *factor_out >= 0.0;
}

static bool read_target(const char *text, enum what_if_target target, struct what_if *out)
{
    size_t bytes = strlen(words[target]);
    const char *at = text + bytes;

    *out = (struct what_if){.target = target};
    if (strncmp(text, words[target], bytes) != 0) {
        return false;
    }
    if (has_number(target)) {
        at = skip_blanks(at);
        if (!read_number(&at, &out->number)) {
            return false;
        }
    }
    return read_factor(at, &out->factor);
}

enum status what_if_parse(const char *text, struct what_if *what_if_out)
{
    const char *at = skip_blanks(text);

    for (int target = 0; target < WHAT_IF_TARGETS; target++) {
        if (read_target(at, (enum what_if_target)target, what_if_out)) {
            return STATUS_OK;
        }
    }
    return status_fail(
        STATUS_ERR_REFUSED,
        "what if \"%s\": expected \"stage N x K\", \"virtual stage N x K\", or F, I, "
        "W, latency, copy, overhead or rest, \" x K\", with a factor K of at least 0",
        text);
}

void what_if_print(const struct what_if *what_if, char *text, size_t text_bytes)
{
    char number[16] = "";

    if (has_number(what_if->target)) {
        (void)snprintf(number, sizeof(number), "%d", what_if->number);
    }
    (void)snprintf(text, text_bytes, "%s%s x %g", words[what_if->target], number, what_if->factor);
}

static void scale(const double *values, int32_t stage, double factor)
{
    /* The arrays of a copy are the owner's to change. */
    ((double *)values)[stage] *= factor;
}

/* F, I and W of the virtual stages of a rank, or of one. */
static enum status scale_stage(const struct what_if *what_if, const struct plan *plan,
                               const struct plan_costs *costs)
{
    bool rank = what_if->target == WHAT_IF_STAGE;
    int32_t count = rank ? plan->shape.ranks : plan_stages(plan);

    if (what_if->number >= count) {
        return status_fail(STATUS_ERR_REFUSED, "what if \"%s%d\": the plan has %sstages 0 to %d",
                           words[what_if->target], what_if->number, rank ? "" : "virtual ",
                           count - 1);
    }
    for (int32_t s = 0; s < plan_stages(plan); s++) {
        if ((rank ? plan->rank_of[s] : s) == what_if->number) {
            scale(costs->F, s, what_if->factor);
            scale(costs->I, s, what_if->factor);
            scale(costs->W, s, what_if->factor);
        }
    }
    return STATUS_OK;
}

enum status what_if_apply(const struct what_if *what_if, const struct plan *plan,
                          struct plan_costs *costs, double *rest)
{
    const double *const compute[] = {
        [WHAT_IF_F] = costs->F, [WHAT_IF_I] = costs->I, [WHAT_IF_W] = costs->W};

    switch (what_if->target) {
    case WHAT_IF_STAGE:
    case WHAT_IF_VIRTUAL_STAGE:
        return scale_stage(what_if, plan, costs);
    case WHAT_IF_LATENCY:
        costs->message *= what_if->factor;
        for (int32_t s = 0; s < plan_stages(plan); s++) {
            scale(costs->message_into[LANE_F], s, what_if->factor);
            scale(costs->message_into[LANE_B], s, what_if->factor);
        }
        return STATUS_OK;
    case WHAT_IF_COPY:
        costs->send *= what_if->factor;
        return STATUS_OK;
    case WHAT_IF_OVERHEAD:
        costs->action *= what_if->factor;
        return STATUS_OK;
    case WHAT_IF_REST:
        *rest *= what_if->factor;
        return STATUS_OK;
    default:
        for (int32_t s = 0; s < plan_stages(plan); s++) {
            scale(compute[what_if->target], s, what_if->factor);
        }
        return STATUS_OK;
    }
}
