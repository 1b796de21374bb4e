/*
 * trace_packet -- one packet of a binary trace of Perfetto at a time; which and in which order is
 * trace_perfetto's work, whose private header this is.
 */
#ifndef SCHEDULER_TRACE_PACKET_H
#define SCHEDULER_TRACE_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/span.h"
#include "base/status.h"
#include "scheduler/protobuf.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_memory.h"
#include "scheduler/trace_read.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a span is called depends on these alone. */
struct trace_packet_name {
    int32_t kind;
    int32_t virtual_stage;
    int32_t microbatch;
    int32_t backward; /* 0 or 1 */
};

/* Zeroed, apart from the first two; all functions give STATUS_ERR_IO, not yet reported, where `file` fails. */
struct trace_packets {
    FILE *file;             /* borrows */
    int64_t shift_ns;       /* added to all times */
    struct protobuf packet; /* owns, as the next two: what is being made */
    struct protobuf outer;
    struct protobuf parts[2];
};

struct trace_packet_name trace_packet_name_of(const struct span *span);

/* Clock, then names, categories and arguments of everything that follows: the first two packets. A
 * name's id is its place + 1. */
enum status trace_packets_put_head(struct trace_packets *out, const struct trace_packet_name *names,
                                   size_t count);

/* A rank, one of its tracks, one of its counters. */
enum status trace_packets_put_rank(struct trace_packets *out, const struct trace_rank *rank);
enum status trace_packets_put_track(struct trace_packets *out, const struct trace_rank *rank,
                                    enum trace_track track, int32_t level);
enum status trace_packets_put_counter(struct trace_packets *out, const struct trace_rank *rank,
                                      enum trace_memory_kind kind);

/* A slice of the track `tid` begins, with the arrow `flow` (0 = none) from it, or to it where it is no SEND. */
enum status trace_packets_put_begin(struct trace_packets *out, const struct trace_rank *rank,
                                    int32_t tid, const struct span *span, uint64_t name_id,
                                    uint64_t flow);
/* The innermost of a track ends. */
enum status trace_packets_put_end(struct trace_packets *out, const struct trace_rank *rank,
                                  int32_t tid, int64_t ns);
enum status trace_packets_put_memory(struct trace_packets *out, const struct trace_rank *rank,
                                     enum trace_memory_kind kind, int64_t ns, int64_t bytes);

/* Gives the memory back, not the file. */
void trace_packets_release(struct trace_packets *out);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_TRACE_PACKET_H */
