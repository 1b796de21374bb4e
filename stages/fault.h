/*
 * fault -- the switch that breaks a run on purpose, for tests.
 *
 * Only where it is built in (WEIR_FAULTS), and then only by the environment:
 *
 *     WEIR_FAULT=die|stall|poison@rank:step[:action]
 *
 * `step` is the attempt, or `start` (before the first) or `end` (after the last); `action` the
 * index in the rank's line, the first action unless given. die kills the process with SIGKILL,
 * stall waits until the job is cancelled, poison makes the first gradient of the rank NaN before
 * that action. In a build without it every function here does nothing.
 */
#ifndef STAGES_FAULT_H
#define STAGES_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fault_kind {
    FAULT_NONE,
    FAULT_DIE,
    FAULT_STALL,
    FAULT_POISON
};

#define FAULT_STEP_START 0
#define FAULT_STEP_END   INT64_MAX

struct fault {
    enum fault_kind kind;
    int32_t rank;
    int64_t step;
    int32_t action;
};

/* Reads WEIR_FAULT; FAULT_NONE where it is not set or not built in. STATUS_ERR_REFUSED where it
 * is set and cannot be understood. */
enum status fault_read(struct fault *fault_out);

/* Dies or stalls where the place is the fault's; true where it asks for poison here. */
bool fault_strike(const struct fault *fault, int32_t rank, int64_t step, int32_t action,
                  const struct cancel *cancel);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_FAULT_H */
