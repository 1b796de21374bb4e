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
        "WEIR_FAULT=%s: expected die|stall|slow|poison|overflow@rank:step[:action], step a number, "
        "start, end or any; or die|full@rank:step:save+bytes; or "
        "stall|slow@rank:step:piece+count; or skew@rank:any:clock+ns, rank not 0",
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
    if (strncmp(*text, "any", 3) == 0) {
        *text += 3;
        *step_out = FAULT_STEP_ANY;
        return true;
    }
    return read_number(text, INT64_MAX - 1, step_out);
}

static bool read_kind(const char **text, enum fault_kind *kind_out)
{
    static const char *const names[] = {
        [FAULT_DIE] = "die@",           [FAULT_STALL] = "stall@", [FAULT_POISON] = "poison@",
        [FAULT_OVERFLOW] = "overflow@", [FAULT_FULL] = "full@",   [FAULT_SLOW] = "slow@",
        [FAULT_SKEW] = "skew@"};

    for (int kind = FAULT_DIE; kind <= FAULT_SKEW; kind++) {
        size_t length = strlen(names[kind]);

        if (strncmp(*text, names[kind], length) == 0) {
            *text += length;
            *kind_out = (enum fault_kind)kind;
            return true;
        }
    }
    return false;
}

/* What stands behind the step: nothing, an action, or a place in a save or in what is moved. */
static bool read_place(const char *at, struct fault *fault)
{
    static const char save[] = ":save+";
    static const char piece[] = ":piece+";
    static const char clock[] = ":clock+";
    int64_t action = 0;

    if (strncmp(at, save, sizeof(save) - 1) == 0) {
        at += sizeof(save) - 1;
        fault->saving = true;
        return read_number(&at, INT64_MAX, &fault->bytes) && *at == '\0' &&
               (fault->kind == FAULT_DIE || fault->kind == FAULT_FULL);
    }
    if (strncmp(at, piece, sizeof(piece) - 1) == 0) {
        at += sizeof(piece) - 1;
        fault->moving = true;
        return read_number(&at, INT64_MAX, &fault->piece) && *at == '\0' &&
               (fault->kind == FAULT_STALL || fault->kind == FAULT_SLOW);
    }
    if (strncmp(at, clock, sizeof(clock) - 1) == 0) {
        at += sizeof(clock) - 1;
        fault->since_ns = clock_now_ns();
        return read_number(&at, INT64_MAX / 16, &fault->ahead_ns) && *at == '\0' &&
               fault->kind == FAULT_SKEW && fault->step == FAULT_STEP_ANY && fault->rank > 0;
    }
    if (*at == ':') {
        at++;
        if (!read_number(&at, INT32_MAX, &action)) {
            return false;
        }
    }
    fault->action = (int32_t)action;
    return *at == '\0' && fault->kind != FAULT_FULL && fault->kind != FAULT_SKEW;
}

static bool read_fault(const char *at, struct fault *fault)
{
    int64_t rank = 0;

    if (!read_kind(&at, &fault->kind) || !read_number(&at, INT32_MAX, &rank) || *at++ != ':') {
        return false;
    }
    fault->rank = (int32_t)rank;
    return read_step(&at, &fault->step) && read_place(at, fault);
}

enum status fault_read(struct fault *fault_out)
{
    const char *text = env_text(ENV_FAULT);
    struct fault fault = {.kind = FAULT_NONE};

    if (strcmp(env_text(ENV_RESTART_COUNT), "0") != 0) {
        text = ""; /* a restarted job would come to the same place again */
    }
    if (text[0] != '\0' && !read_fault(text, &fault)) {
        return refuse(text);
    }
    *fault_out = fault;
    return STATUS_OK;
}

static bool at_step(const struct fault *fault, int64_t step)
{
    return fault->step == step ||
           (fault->step == FAULT_STEP_ANY && step != FAULT_STEP_START && step != FAULT_STEP_END);
}

static void stall(const struct cancel *cancel)
{
    log_warn("fault switch: stalling");
    while (!cancel_requested(cancel)) {
        clock_sleep_ns(CANCEL_POLL_NS);
    }
}

bool fault_strike(const struct fault *fault, int32_t rank, int64_t step, int32_t action,
                  const struct cancel *cancel)
{
    if (fault->kind == FAULT_NONE || fault->kind == FAULT_SKEW || fault->saving || fault->moving ||
        fault->rank != rank || !at_step(fault, step) || fault->action != action) {
        return false;
    }
    if (fault->kind == FAULT_DIE) {
        (void)raise(SIGKILL);
    }
    if (fault->kind == FAULT_STALL) {
        stall(cancel);
    }
    if (fault->kind == FAULT_SLOW) {
        clock_sleep_ns(FAULT_SLOW_NS);
    }
    return fault->kind == FAULT_POISON || fault->kind == FAULT_OVERFLOW;
}

bool fault_skews(const struct fault *fault, int32_t rank)
{
    return fault->kind == FAULT_SKEW && fault->rank == rank;
}

int64_t fault_clock_ns(const struct fault *fault, int64_t ns)
{
    const double passed_s = (double)(ns - fault->since_ns) / (double)CLOCK_SECOND;

    return ns + fault->ahead_ns + (int64_t)(passed_s * (double)FAULT_GAIN_NS);
}

void fault_skew(const struct fault *fault, int32_t rank, struct span_ring *spans)
{
    for (uint64_t at = spans->read; fault_skews(fault, rank) && at < spans->written; at++) {
        struct span *span = &spans->spans[at % spans->capacity];

        span->begin_ns = fault_clock_ns(fault, span->begin_ns);
        span->end_ns = fault_clock_ns(fault, span->end_ns);
    }
}

size_t fault_room(const struct fault_writing *writing, size_t done, size_t count)
{
    const struct fault *fault = writing != NULL ? writing->fault : NULL;

    if (fault == NULL || !fault->saving || fault->rank != writing->rank ||
        !at_step(fault, writing->step) || done + count <= (size_t)fault->bytes) {
        return count;
    }
    return (size_t)fault->bytes > done ? (size_t)fault->bytes - done : 0;
}

enum status fault_write(const struct fault_writing *writing, const char *path)
{
    if (writing->fault->kind == FAULT_DIE) {
        (void)raise(SIGKILL);
    }
    return status_fail(STATUS_ERR_IO, "fault switch: writing %s: %s", path, strerror(ENOSPC));
}

void fault_move(const struct fault *fault, int32_t rank, int64_t step, int64_t piece,
                const struct cancel *cancel)
{
    if (!fault->moving || fault->rank != rank || !at_step(fault, step) || piece < fault->piece) {
        return;
    }
    if (fault->kind == FAULT_STALL) {
        stall(cancel);
    } else {
        clock_sleep_ns(FAULT_SLOW_NS);
    }
}

#else

bool fault_skews(const struct fault *fault, int32_t rank)
{
    (void)fault;
    (void)rank;
    return false;
}

int64_t fault_clock_ns(const struct fault *fault, int64_t ns)
{
    (void)fault;
    return ns;
}

void fault_skew(const struct fault *fault, int32_t rank, struct span_ring *spans)
{
    (void)fault;
    (void)rank;
    (void)spans;
}

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

size_t fault_room(const struct fault_writing *writing, size_t done, size_t count)
{
    (void)writing;
    (void)done;
    return count;
}

enum status fault_write(const struct fault_writing *writing, const char *path)
{
    (void)writing;
    (void)path;
    return STATUS_OK;
}

void fault_move(const struct fault *fault, int32_t rank, int64_t step, int64_t piece,
                const struct cancel *cancel)
{
    (void)fault;
    (void)rank;
    (void)step;
    (void)piece;
    (void)cancel;
}

#endif
