/*
 * trace_path -- the critical path of a traced run: the chain of work and waits that ended last.
 *
 * For each step it begins with the work that ended last on any rank and goes back to what that
 * waited for longest: the work before it on its rank, the message that it read, the landing buffer
 * that its SEND needed, whoever came last to what ranks do together (STEP, REDUCE, GATHER), the head
 * where the owner of the embedding waited. What lies between two of them is a part of its own. The
 * parts of a step touch each other, so that their sum is the time from the first work on the path to
 * the end of the step.
 *
 * Two landing buffers of a lane look alike in a trace: the last one given back before a late SEND
 * counts as what it waited for.
 */
#ifndef SCHEDULER_TRACE_PATH_H
#define SCHEDULER_TRACE_PATH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/span.h"
#include "base/status.h"
#include "scheduler/trace.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a part of the path is; id, text. */
#define TRACE_PATH_TABLE(X)                                                       \
    X(WORK, "work")       /* of `span` */                                         \
    X(MESSAGE, "message") /* from the end of its copy at `from` to its use */     \
    X(LANDING, "buffer")  /* a SEND from a landing buffer given back at `from` */ \
    X(HOST, "host")       /* nothing was waited for: the host was not there yet */

enum trace_path_cause {
#define X(id, text) TRACE_PATH_##id,
    TRACE_PATH_TABLE(X)
#undef X
    TRACE_PATH_CAUSES
};

struct trace_path_part {
    enum trace_path_cause cause;
    const struct trace_rank *rank; /* borrows from the run, as the next two */
    const struct span *span;       /* the work, or what began behind the gap */
    const struct trace_rank *from; /* MESSAGE, LANDING: the other end; else NULL */
    int64_t begin_ns;
    int64_t end_ns;
};

struct trace_path {
    struct trace_path_part *parts; /* owns; step by step, in the order of time */
    size_t count;
    size_t capacity; /* private to trace_path.c */
    int32_t steps;
};

/* Of all steps that `run` holds. The caller releases *path_out, which borrows from `run` until that
 * changes. */
enum status trace_path_make(const struct trace_run *run, struct trace_path *path_out);

/* Safe on a zeroed path, and twice. */
void trace_path_release(struct trace_path *path);

/* What lies between two stages: SENDs, MESSAGE and LANDING; a LANDING counts for the link that its SEND
 * goes along. */
struct trace_path_link {
    int32_t from; /* stage */
    int32_t to;
    double ns;
};

/* Where the path spent its time, in nanoseconds of all steps together. */
struct trace_path_share {
    int32_t stages;
    double total_ns;
    double cause_ns[TRACE_PATH_CAUSES];
    double kind_ns[TRACE_KINDS];   /* of WORK */
    double *stage_ns;              /* owns; [stages]: WORK but SENDs, and HOST, of each stage */
    struct trace_path_link *links; /* owns; those with any time, the most first */
    size_t link_count;
};

/* The caller releases *share_out. */
enum status trace_path_share_make(const struct trace_run *run, const struct trace_path *path,
                                  struct trace_path_share *share_out);

/* Safe on a zeroed one, and twice. */
void trace_path_share_release(struct trace_path_share *share);

/* Lines for people, milliseconds a step and percent of the path. STATUS_ERR_IO where `out` cannot be
 * written. */
enum status trace_path_print(const struct trace_path *path, const struct trace_path_share *share,
                             FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_PATH_H */
