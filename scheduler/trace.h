/*
 * trace -- what a span means, and the files that show a run.
 *
 * The worker writes spans (base/span) while it runs; after a step they are appended to one file a
 * rank, trace/rank-N.json: a Chrome trace in the JSON array form, one event a line, so that a run
 * that dies still leaves a file that loads (viewers accept a missing last bracket). Reading them
 * back, merging, summing and drawing is trace_read.h's and timeline.h's work.
 */
#ifndef SCHEDULER_TRACE_H
#define SCHEDULER_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kind, name in the trace, track. The first ones are compute. */
#define TRACE_TABLE(X)                                                                \
    X(F, "F", "compute")                                                              \
    X(I, "I", "compute")                                                              \
    X(W, "W", "compute")                                                              \
    X(B, "B", "compute")                                                              \
    X(WAIT, "wait", "wait")       /* the main thread waits for a message or buffer */ \
    X(SEND, "send", "send")       /* a message is copied to its landing buffer */     \
    X(RECV, "recv", "recv")       /* from the wish for a message to its use */        \
    X(SYNC, "sync", "embedding")  /* embedding group: gradient there, weights back */ \
    X(REDUCE, "reduce", "reduce") /* gradients are summed over replicas and shards */ \
    X(GATHER, "gather", "gather") /* weights come from the replicas before F or I */  \
    X(STEP, "step", "control")    /* the STEP round trip */                           \
    X(OPTIMIZER, "optimizer", "optimizer")                                            \
    X(DATA, "data", "data") /* waiting for the loader */                              \
    X(EVALUATE, "evaluate", "control")

enum trace_kind {
#define X(kind, name, track) TRACE_##kind,
    TRACE_TABLE(X)
#undef X
    TRACE_KINDS
};

/* Meaning of span.args; -1 where it does not apply. */
enum trace_arg {
    TRACE_ARG_STEP,
    TRACE_ARG_MICROBATCH, /* or piece of one, as in struct action */
    TRACE_ARG_VIRTUAL_STAGE,
    TRACE_ARG_PEER,       /* pipeline rank at the other end; who is waited for */
    TRACE_ARG_SEQUENCE,   /* of the message in its lane and step */
    TRACE_ARG_DIRECTION,  /* enum lane_direction */
    TRACE_ARG_INDEX,      /* of the action in its line */
    TRACE_ARG_EVALUATION, /* 1 in a forward-only plan, else 0 */
    TRACE_ARG_SLICES      /* of a sequence; -1 where sequences are whole */
};

/* What one micro-batch takes of a rank's buffers; the counters of memory are made from it when a
 * trace is read (trace_memory.h), so that they cost a run nothing. */
struct trace_memory_size {
    int32_t virtual_stage;
    uint64_t stash_bytes;    /* a slot, taken by F */
    uint64_t gradient_bytes; /* a gradient set, taken by I, with what I computes again */
};

/* How far rank 0's clock was ahead of a rank's own, for a rank on another host. */
struct trace_clock {
    int64_t at_ns;          /* when it was measured, by the rank's own clock */
    int64_t offset_ns;      /* below 0: behind */
    int64_t uncertainty_ns; /* it is no more than this away from that */
};

/* One rank's trace file while it is written. */
struct trace_writer;

struct trace_writer_config {
    const char *path;     /* borrows during the call: <run>/trace/rank-N.json */
    const char *run_name; /* any text; escaped */
    int32_t rank;         /* global rank */
    int32_t pipeline_rank;
    uint64_t most_bytes; /* size limit of the file; what does not fit is counted */
    int64_t origin_ns;   /* time 0 of the trace, of rank 0's clock, the same on all ranks */
    const struct trace_clock
        *clock; /* borrows during the call; NULL: the rank has rank 0's clock */
    const struct trace_memory_size *sizes; /* borrows during the call; of this rank's chunks */
    size_t size_count;
};

enum status trace_writer_open(const struct trace_writer_config *config,
                              struct trace_writer **writer_out);

/* Takes all spans of `ring` and writes them. Called between steps, never inside one. */
enum status trace_writer_drain(struct trace_writer *writer, struct span_ring *ring);

/* Writes the clock once more, at the end of a run that was opened with one: trace_read() then knows how it
 * went in between. */
enum status trace_writer_put_clock(struct trace_writer *writer, const struct trace_clock *clock);

/* Writes the last bracket, with the number of dropped events, and closes. Nulls the caller's
 * pointer; NULL is fine. */
enum status trace_writer_close(struct trace_writer **writer);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_H */
