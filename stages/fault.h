/*
 * fault -- the switch that breaks a run on purpose, for tests.
 *
 * Only where it is built in (WEIR_FAULTS), and then only by the environment:
 *
 *     WEIR_FAULT=die|stall|slow|poison|overflow@rank:step[:action]
 *     WEIR_FAULT=die|full@rank:step:save+bytes
 *     WEIR_FAULT=stall|slow@rank:step:piece+count
 *     WEIR_FAULT=skew@rank:any:clock+ns
 *
 * `step` is the attempt, or `start` (before the first), `end` (after the last) or `any`; `action`
 * the index in the rank's line, the first action unless given. die kills the process with SIGKILL,
 * stall waits until the job is cancelled, slow for FAULT_SLOW_NS; poison makes a gradient of the rank NaN (stage_worker_spoil()) before
 * that action, overflow infinite. The second form strikes in the checkpoint after the step, when the rank
 * has written `bytes` of its file: there die kills the process, and full is a disk that takes no more. The third
 * form strikes where the rank moves files after the step (`start`: before the first), from the piece `count` of them
 * on: stall as above, slow is a disk that takes FAULT_SLOW_NS for each. The fourth form breaks nothing: the rank (not
 * 0) counts as one of another host in its trace, with a clock that is `ns` ahead and gains FAULT_GAIN_NS each second.
 * It strikes in the first attempt of a job only, and not after a restart. In a build without it every
 * function here does nothing.
 */
#ifndef STAGES_FAULT_H
#define STAGES_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/span.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fault_kind {
    FAULT_NONE,
    FAULT_DIE,
    FAULT_STALL,
    FAULT_POISON,
    FAULT_OVERFLOW,
    FAULT_FULL,
    FAULT_SLOW,
    FAULT_SKEW
};

#define FAULT_SLOW_NS ((int64_t)50000000)
#define FAULT_GAIN_NS ((int64_t)200000) /* 0.2 ms */

#define FAULT_STEP_START 0
#define FAULT_STEP_END   INT64_MAX
#define FAULT_STEP_ANY   (-1) /* of those that run, neither start nor end */

struct fault {
    enum fault_kind kind;
    int32_t rank;
    int64_t step;
    int32_t action;
    bool saving;      /* strikes in the checkpoint after the step, not in an action, */
    int64_t bytes;    /* when so many are written */
    bool moving;      /* strikes where files are moved, not in an action, */
    int64_t piece;    /* from this one on, from 1 */
    int64_t ahead_ns; /* of a clock */
    int64_t since_ns; /* when it was so much ahead: when the fault was read */
};

/* A rank that writes its file of the checkpoint after `step`. */
struct fault_writing {
    const struct fault *fault; /* borrows */
    int32_t rank;
    int64_t step;
};

/* Reads WEIR_FAULT; FAULT_NONE where it is not set or not built in. STATUS_ERR_REFUSED where it
 * is set and cannot be understood. */
enum status fault_read(struct fault *fault_out);

/* Dies, stalls or waits where the place is the fault's; true where it asks for a spoilt gradient here. */
bool fault_strike(const struct fault *fault, int32_t rank, int64_t step, int32_t action,
                  const struct cancel *cancel);

/* Whether the rank has a clock of its own; what that says when base/clock says `ns`. */
bool fault_skews(const struct fault *fault, int32_t rank);
int64_t fault_clock_ns(const struct fault *fault, int64_t ns);

/* Gives the spans that lie untaken the times of the rank's own clock, where it has one. */
void fault_skew(const struct fault *fault, int32_t rank, struct span_ring *spans);

/* Of `count` bytes that come after `done` others, those that can be written before the fault: all
 * where it is none of this writing's (NULL is none). */
size_t fault_room(const struct fault_writing *writing, size_t done, size_t count);

/* Dies, or says that the disk of `path` is full. Where fault_room() gave less than was asked for. */
enum status fault_write(const struct fault_writing *writing, const char *path);

/* Stalls, or takes its time, where the piece that was moved is the fault's or one after it. */
void fault_move(const struct fault *fault, int32_t rank, int64_t step, int64_t piece,
                const struct cancel *cancel);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_FAULT_H */
