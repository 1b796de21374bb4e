/*
 * trace_event -- one span as one line of a Chrome trace, and back.
 *
 * Times are microseconds with three decimals, so that no nanosecond is lost. A process of the
 * trace is a rank (pid = global rank), a thread is a track (tid): slices of one track must nest or
 * not touch, therefore messages have a track a direction.
 */
#ifndef SCHEDULER_TRACE_EVENT_H
#define SCHEDULER_TRACE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "base/status.h"
#include "scheduler/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every line but the one that carries the run's name fits into this. */
#define TRACE_EVENT_BYTES 640

/* No job has as many ranks; a file that says so is wrong. */
#define TRACE_RANKS_MOST (1 << 20)

/* id, name; in the order in which a viewer shows them. */
#define TRACE_TRACK_TABLE(X)  \
    X(COMPUTE, "compute")     \
    X(WAIT, "wait")           \
    X(RECV_F, "recv F")       \
    X(SEND_F, "send F")       \
    X(RECV_B, "recv B")       \
    X(SEND_B, "send B")       \
    X(EMBEDDING, "embedding") \
    X(REDUCE, "reduce")       \
    X(GATHER, "gather")       \
    X(OPTIMIZER, "optimizer") \
    X(CONTROL, "control")     \
    X(DATA, "data")

enum trace_track {
#define X(id, name) TRACE_TRACK_##id,
    TRACE_TRACK_TABLE(X)
#undef X
    TRACE_TRACKS
};

/* "F", "wait"; a static string, "?" for an unknown kind. */
const char *trace_kind_name(uint32_t kind);

/* F, I, W, B. */
bool trace_kind_is_compute(uint32_t kind);

enum trace_track trace_track_of(const struct span *span);

/* "compute", "send F"; a static string. */
const char *trace_track_name(enum trace_track track);

/* "3" for micro-batch 3, "3.1" for slice 1 of it. Returns the length; 24 bytes are enough. */
size_t trace_event_number(const struct span *span, char *out, size_t out_bytes);

/* Names a span as plans do ("2F0", "0SEND_F3"), or by its kind where it has no micro-batch.
 * Returns the length; 48 bytes are enough. */
size_t trace_event_name(const struct span *span, char *out, size_t out_bytes);

/* An X event without line end; the times are counted from `origin_ns`. Returns the length, at most
 * TRACE_EVENT_BYTES - 1. */
size_t trace_event_print(const struct span *span, int32_t pid, int32_t tid, int64_t origin_ns,
                         char out[TRACE_EVENT_BYTES]);

/* Names and orders a track: two M events with ",\n" between them. `overflow` > 0 marks a further
 * track of the same name, for slices that would overlap on the first. */
size_t trace_event_print_track(int32_t pid, int32_t tid, enum trace_track track, int32_t overflow,
                               char *out, size_t out_bytes);

/* One end of a flow arrow, which binds to the slice around `ns` on its track: an s event where the
 * message leaves, an f event where it is used. Both ends have the same id and direction. */
size_t trace_event_print_flow(bool arrives, int32_t direction, uint64_t id, int32_t pid,
                              int32_t tid, int64_t ns, char *out, size_t out_bytes);

/* How large the buffers of a chunk are: an M event. */
size_t trace_event_print_size(int32_t pid, const struct trace_memory_size *size, char *out,
                              size_t out_bytes);

/* The series of the counter "memory" at one time: a C event. `names` and `bytes` have `count`. */
size_t trace_event_print_memory(int32_t pid, int64_t ns, const char *const *names,
                                const int64_t *bytes, size_t count, char *out, size_t out_bytes);

/* What a line of a rank's file says. */
enum trace_line_kind {
    TRACE_LINE_OTHER, /* valid, of no interest here */
    TRACE_LINE_SPAN,
    TRACE_LINE_PROCESS,
    TRACE_LINE_SIZE,
    TRACE_LINE_CLOCK,
    TRACE_LINE_END
};

struct trace_line {
    enum trace_line_kind kind;
    struct span span;              /* SPAN; times count from the origin of the trace */
    int32_t rank;                  /* PROCESS */
    int32_t pipeline_rank;         /* PROCESS */
    char *run_name;                /* PROCESS; the caller owns it */
    struct trace_memory_size size; /* SIZE */
    struct trace_clock clock;      /* CLOCK */
    int64_t clock_moved_ns;        /* CLOCK */
    uint64_t dropped;              /* END */
};

/* Reads one JSON object. STATUS_ERR_FORMAT, recorded but not logged, where it is none or a field
 * has the wrong type or range; *line_out is not written then. */
enum status trace_line_parse(const char *text, size_t text_bytes, struct trace_line *line_out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_EVENT_H */
