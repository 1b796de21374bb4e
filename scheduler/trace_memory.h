/*
 * trace_memory -- how much of a rank's planned buffers was taken, over time.
 *
 * Nothing is measured while a run trains: the trace says how large a slot is (struct
 * trace_memory_size in trace.h), and the spans say when one is taken and given back, by the rules
 * that the plan is lowered and proved with:
 *
 *   stashes   from the begin of F to the end of W
 *   dY        a gradient set: from the begin of I to the end of W
 *   landing   from the end of the SEND that fills it to the end of its last reader: I for an
 *             activation, W for a gradient
 *
 * What has a begin and no end in the trace is left out, as are evaluations and the buffers between two
 * chunks of one rank.
 */
#ifndef SCHEDULER_TRACE_MEMORY_H
#define SCHEDULER_TRACE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* id, name. */
#define TRACE_MEMORY_TABLE(X) \
    X(STASHES, "stashes")     \
    X(DY, "dY")               \
    X(LANDING, "landing")

enum trace_memory_kind {
#define X(id, name) TRACE_MEMORY_##id,
    TRACE_MEMORY_TABLE(X)
#undef X
    TRACE_MEMORY_KINDS
};

/* What is taken from `ns` on. */
struct trace_memory_point {
    int64_t ns;
    int64_t bytes[TRACE_MEMORY_KINDS];
};

struct trace_memory {
    struct trace_memory_point *points; /* owns; in the order of time */
    size_t count;
    int64_t peak[TRACE_MEMORY_KINDS];
    int64_t peak_together; /* of the sum, which may be less than that of the peaks */
};

/* "stashes"; a static string. */
const char *trace_memory_name(enum trace_memory_kind kind);

/* Of one rank; `messages` are those of its run. Empty where the trace has no sizes. The caller
 * releases *memory_out. */
enum status trace_memory_make(const struct trace_rank *rank, const struct trace_message *messages,
                              size_t message_count, struct trace_memory *memory_out);

/* Safe on a zeroed one, and twice. */
void trace_memory_release(struct trace_memory *memory);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_MEMORY_H */
