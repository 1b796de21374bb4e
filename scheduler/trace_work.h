/*
 * trace_work -- what each rank of a traced run did, in the order in which it ended, and what each
 * action needed from others.
 *
 * Made once for all that looks backwards through a run (trace_path.h). Work is every span of
 * training but waits and RECVs: those say that a rank stood still, not what ended it.
 */
#ifndef SCHEDULER_TRACE_WORK_H
#define SCHEDULER_TRACE_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "base/status.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRACE_WORK_KEYS 5

/* The work of one rank, by step and end. */
struct trace_work_line {
    const struct span **spans; /* owns; borrow from the run */
    size_t count;
};

/* Something that is looked up by a name of numbers. */
struct trace_work_entry {
    int32_t key[TRACE_WORK_KEYS];
    const struct trace_rank *rank;
    const struct span *span;
};

struct trace_work {
    const struct trace_run *run;    /* borrows */
    struct trace_work_line *lines;  /* owns; by rank, as in the run */
    struct trace_work_line *recvs;  /* owns; likewise, the RECVs */
    struct trace_work_entry *acts;  /* owns; F, I and B, by replica, step, direction, stage, mb */
    struct trace_work_entry *sends; /* owns; as their receivers call them, likewise */
    struct trace_work_entry *joins; /* owns; STEP, REDUCE and GATHER, by what ends them together */
    size_t act_count;
    size_t send_count;
    size_t join_count;
};

/* One end of a need. */
struct trace_work_ref {
    const struct trace_rank *rank; /* NULL where there is none */
    const struct span *span;
};

/* The caller releases *work_out, which borrows from `run` until that changes. */
enum status trace_work_make(const struct trace_run *run, struct trace_work *work_out);

/* Safe on a zeroed one, and twice. */
void trace_work_release(struct trace_work *work);

/* Index in the line of `rank` behind the last work of `step` that has ended by `ns`; *first_out is
 * the index of the first work of that step. */
size_t trace_work_ended(const struct trace_work *work, const struct trace_rank *rank, int32_t step,
                        int64_t ns, size_t *first_out);

/* The SEND of the message that an F, I or B on `rank` reads, or, where the trace has none, the
 * action on another rank that made it. */
struct trace_work_ref trace_work_source(const struct trace_work *work,
                                        const struct trace_rank *rank, const struct span *span);

/* The SEND of the last message that `rank` had used when `span` began: whatever stands behind a RECV
 * in a line has waited for its message too. */
struct trace_work_ref trace_work_received(const struct trace_work *work,
                                          const struct trace_rank *rank, const struct span *span);

/* The last action on the receiver that gave a landing buffer back between the end of what made the
 * message of a SEND and its copy: the SEND may have waited for it. */
struct trace_work_ref trace_work_credit(const struct trace_work *work,
                                        const struct trace_rank *rank, const struct span *send);

/* Who came last to a STEP, REDUCE or GATHER that `rank` took part in. */
struct trace_work_ref trace_work_latest(const struct trace_work *work,
                                        const struct trace_rank *rank, const struct span *span);

/* The head's SYNC that the owner's waits for. */
struct trace_work_ref trace_work_head(const struct trace_work *work, const struct trace_rank *rank,
                                      const struct span *sync);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_WORK_H */
