#include "stages/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"

#ifdef WEIR_FAULTS

static enum status refuse(const char *text)
{
    return status_fail(
        STATUS_ERR_REFUSED,
        "WEIR_FAULT=%s: expected die|stall|poison@rank:step[:action], step a number, "
        "start or end",
        text);
}

static bool read_number(const char **text, int64_t most, int64_t *number_out)
{
    char *end = NULL;

    errno = 0;
    *number_out = strtoll(*text, &end, 10);
    if (end == *text || errno != 0 || *number_out < 0 || *number_out > most) {
        return false;
    }
    *text = end;
    return true;
}

static bool read_step(const char **text, int64_t *step_out)
{
    if (strncmp(*text, "start", 5) == 0) {
        *text += 5;
        *step_out = FAULT_STEP_START;
        return true;
    }
    if (strncmp(*text, "end", 3) == 0) {
        *text += 3;
        *step_out = FAULT_STEP_END;
        return true;
    }
    return read_number(text, INT64_MAX - 1, step_out);
}

static bool read_kind(const char **text, enum fault_kind *kind_out)
{
    static const char *const names[] = {
        [FAULT_DIE] = "die@", [FAULT_STALL] = "stall@", [FAULT_POISON] = "poison@"};

    for (int kind = FAULT_DIE; kind <= FAULT_POISON; kind++) {
        size_t length = strlen(names[kind]);

        if (strncmp(*text, names[kind], length) == 0) {
            *text += length;
            *kind_out = (enum fault_kind)kind;
            return true;
        }
    }
    return false;
}

enum status fault_read(struct fault *fault_out)
{
    const char *text = env_text(ENV_FAULT);
    const char *at = text;
    struct fault fault = {.kind = FAULT_NONE};
    int64_t rank = 0;
    int64_t action = 0;

    if (text[0] != '\0') {
        if (!read_kind(&at, &fault.kind) || !read_number(&at, INT32_MAX, &rank) || *at++ != ':' ||
            !read_step(&at, &fault.step)) {
            return refuse(text);
        }
        if (*at == ':') {
            at++;
            if (!read_number(&at, INT32_MAX, &action)) {
                return refuse(text);
            }
        }
        if (*at != '\0') {
            return refuse(text);
        }
    }
    fault.rank = (int32_t)rank;
    fault.action = (int32_t)action;
    *fault_out = fault;
    return STATUS_OK;
}

bool fault_strike(const struct fault *fault, int32_t rank, int64_t step, int32_t action,
                  const struct cancel *cancel)
{
    if (fault->kind == FAULT_NONE || fault->rank != rank || fault->step != step ||
        fault->action != action) {
        return false;
    }
    if (fault->kind == FAULT_DIE) {
        (void)raise(SIGKILL);
    }
    if (fault->kind == FAULT_STALL) {
        log_warn("fault switch: stalling");
        while (!cancel_requested(cancel)) {
            clock_sleep_ns(CANCEL_POLL_NS);
        }
    }
    return fault->kind == FAULT_POISON;
}

#else

enum status fault_read(struct fault *fault_out)
{
    *fault_out = (struct fault){.kind = FAULT_NONE};
    return STATUS_OK;
}

bool fault_strike(const struct fault *fault, int32_t rank, int64_t step, int32_t action,
                  const struct cancel *cancel)
{
    (void)fault;
    (void)rank;
    (void)step;
    (void)action;
    (void)cancel;
    return false;
}

#endif
