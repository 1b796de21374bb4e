#include "scheduler/trace_packet.h"

#include "scheduler/action.h"
#include "scheduler/trace.h"

/* Fields of Perfetto's messages. */
enum {
    TRACE_PACKET = 1,
    PACKET_CLOCK_SNAPSHOT = 6,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10,
    PACKET_TRACK_EVENT = 11,
    PACKET_INTERNED_DATA = 12,
    PACKET_SEQUENCE_FLAGS = 13,
    PACKET_DEFAULTS = 59,
    PACKET_TRACK_DESCRIPTOR = 60,
    DEFAULTS_CLOCK_ID = 58,
    SNAPSHOT_CLOCK = 1,
    SNAPSHOT_PRIMARY = 2,
    CLOCK_ID = 1,
    CLOCK_TIMESTAMP = 2,
    INTERNED_CATEGORY = 1,
    INTERNED_NAME = 2,
    INTERNED_ARGUMENT = 3,
    INTERNED_ID = 1,
    INTERNED_TEXT = 2,
    DESCRIPTOR_UUID = 1,
    DESCRIPTOR_NAME = 2,
    DESCRIPTOR_PROCESS = 3,
    DESCRIPTOR_PARENT = 5,
    DESCRIPTOR_COUNTER = 8,
    DESCRIPTOR_ORDERING = 11,
    DESCRIPTOR_ORDER = 12,
    PROCESS_PID = 1,
    PROCESS_NAME = 6,
    COUNTER_UNIT = 3,
    EVENT_CATEGORY = 3,
    EVENT_ARGUMENT = 4,
    EVENT_TYPE = 9,
    EVENT_NAME = 10,
    EVENT_TRACK = 11,
    EVENT_COUNTER_VALUE = 30,
    EVENT_FLOW = 47,
    EVENT_FLOW_END = 48,
    ARGUMENT_NAME = 1,
    ARGUMENT_INT = 4
};

/* Values of theirs. */
enum {
    SLICE_BEGIN = 1,
    SLICE_END = 2,
    COUNTER = 4,
    STATE_CLEARED = 1,
    STATE_NEEDED = 2,
    UNIT_BYTES = 3,
    ORDER_EXPLICIT = 3,
    CLOCK_MONOTONIC_ID = 3,
    CLOCK_BOOTTIME_ID = 6
};

#define SEQUENCE_ID   1
#define ARGUMENTS     (SPAN_ARGS + 1)     /* and the bytes */
#define COUNTER_TRACK ((uint64_t)1 << 31) /* behind every tid */

struct trace_packet_name trace_packet_name_of(const struct span *span)
{
    return (struct trace_packet_name){.kind = (int32_t)span->kind,
                                      .virtual_stage = span->args[TRACE_ARG_VIRTUAL_STAGE],
                                      .microbatch = span->args[TRACE_ARG_MICROBATCH],
                                      .backward =
                                          span->args[TRACE_ARG_DIRECTION] == LANE_B ? 1 : 0};
}

/* Ids of tracks are unique in a trace: a rank's own is its process. */
static uint64_t track_uuid(const struct trace_rank *rank, uint64_t track)
{
    return ((uint64_t)(uint32_t)rank->rank + 1) << 32 | track;
}

static uint64_t slice_uuid(const struct trace_rank *rank, int32_t tid)
{
    return track_uuid(rank, (uint64_t)tid + 1);
}

static uint64_t counter_uuid(const struct trace_rank *rank, enum trace_memory_kind kind)
{
    return track_uuid(rank, COUNTER_TRACK + (uint64_t)kind);
}

/* Writes the packet that was filled and empties it. */
static enum status put_packet(struct trace_packets *out)
{
    protobuf_put_uint(&out->packet, PACKET_SEQUENCE_ID, SEQUENCE_ID);
    protobuf_clear(&out->outer);
    protobuf_put_message(&out->outer, TRACE_PACKET, &out->packet);
    protobuf_clear(&out->packet);
    if (out->outer.failed) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: no memory for a packet");
    }
    return fwrite(out->outer.bytes, 1, out->outer.count, out->file) == out->outer.count
               ? STATUS_OK
               : STATUS_ERR_IO;
}

static void put_interned(struct trace_packets *out, uint32_t field, uint64_t id, const char *text)
{
    struct protobuf *entry = &out->parts[1];

    protobuf_clear(entry);
    protobuf_put_uint(entry, INTERNED_ID, id);
    protobuf_put_text(entry, INTERNED_TEXT, text);
    protobuf_put_message(&out->parts[0], field, entry);
}

/* The clock of the trace and the one that viewers show by default agree at time 0. */
static enum status put_clock(struct trace_packets *out)
{
    static const uint64_t clocks[] = {CLOCK_MONOTONIC_ID, CLOCK_BOOTTIME_ID};

    protobuf_clear(&out->parts[0]);
    for (size_t index = 0; index < sizeof(clocks) / sizeof(clocks[0]); index++) {
        protobuf_clear(&out->parts[1]);
        protobuf_put_uint(&out->parts[1], CLOCK_ID, clocks[index]);
        protobuf_put_uint(&out->parts[1], CLOCK_TIMESTAMP, 0);
        protobuf_put_message(&out->parts[0], SNAPSHOT_CLOCK, &out->parts[1]);
    }
    protobuf_put_uint(&out->parts[0], SNAPSHOT_PRIMARY, CLOCK_MONOTONIC_ID);
    protobuf_put_message(&out->packet, PACKET_CLOCK_SNAPSHOT, &out->parts[0]);
    return put_packet(out);
}

/* The names, categories and arguments of everything that follows, and the clock of its times. */
static enum status put_names(struct trace_packets *out, const struct trace_packet_name *names,
                             size_t count)
{
    static const char *const arguments[ARGUMENTS] = {
        "step",      "microbatch", "virtual_stage", "peer",   "sequence",
        "direction", "index",      "evaluation",    "slices", "bytes"};
    char text[48];

    protobuf_clear(&out->parts[0]);
    for (size_t index = 0; index < count; index++) {
        struct span span = {.kind = (uint32_t)names[index].kind};

        span.args[TRACE_ARG_VIRTUAL_STAGE] = names[index].virtual_stage;
        span.args[TRACE_ARG_MICROBATCH] = names[index].microbatch;
        span.args[TRACE_ARG_DIRECTION] = names[index].backward == 1 ? LANE_B : LANE_F;
        (void)trace_event_name(&span, text, sizeof(text));
        put_interned(out, INTERNED_NAME, index + 1, text);
    }
    for (uint32_t kind = 0; kind < TRACE_KINDS; kind++) {
        put_interned(out, INTERNED_CATEGORY, kind + 1, trace_kind_name(kind));
    }
    for (uint64_t index = 0; index < ARGUMENTS; index++) {
        put_interned(out, INTERNED_ARGUMENT, index + 1, arguments[index]);
    }
    protobuf_put_uint(&out->packet, PACKET_SEQUENCE_FLAGS, STATE_CLEARED);
    protobuf_put_message(&out->packet, PACKET_INTERNED_DATA, &out->parts[0]);
    protobuf_clear(&out->parts[0]);
    protobuf_put_uint(&out->parts[0], DEFAULTS_CLOCK_ID, CLOCK_MONOTONIC_ID);
    protobuf_put_message(&out->packet, PACKET_DEFAULTS, &out->parts[0]);
    return put_packet(out);
}

enum status trace_packets_put_head(struct trace_packets *out, const struct trace_packet_name *names,
                                   size_t count)
{
    TRY(put_clock(out));
    return put_names(out, names, count);
}

/* A descriptor whose parent is the rank's, in the order of `order`; parts[0] is filled on. */
static void begin_descriptor(struct trace_packets *out, const struct trace_rank *rank,
                             uint64_t uuid, const char *name, int64_t order)
{
    protobuf_clear(&out->parts[0]);
    protobuf_put_uint(&out->parts[0], DESCRIPTOR_UUID, uuid);
    protobuf_put_text(&out->parts[0], DESCRIPTOR_NAME, name);
    protobuf_put_uint(&out->parts[0], DESCRIPTOR_PARENT, track_uuid(rank, 0));
    protobuf_put_int(&out->parts[0], DESCRIPTOR_ORDER, order);
}

static enum status put_descriptor(struct trace_packets *out)
{
    protobuf_put_message(&out->packet, PACKET_TRACK_DESCRIPTOR, &out->parts[0]);
    return put_packet(out);
}

enum status trace_packets_put_rank(struct trace_packets *out, const struct trace_rank *rank)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "stage %d (rank %d)", (int)rank->pipeline_rank,
                   (int)rank->rank);
    /* 0 is the kernel's own to viewers. */
    protobuf_clear(&out->parts[1]);
    protobuf_put_uint(&out->parts[1], PROCESS_PID, (uint64_t)(uint32_t)rank->rank + 1);
    protobuf_put_text(&out->parts[1], PROCESS_NAME, name);
    protobuf_clear(&out->parts[0]);
    protobuf_put_uint(&out->parts[0], DESCRIPTOR_UUID, track_uuid(rank, 0));
    protobuf_put_message(&out->parts[0], DESCRIPTOR_PROCESS, &out->parts[1]);
    protobuf_put_uint(&out->parts[0], DESCRIPTOR_ORDERING, ORDER_EXPLICIT);
    return put_descriptor(out);
}

enum status trace_packets_put_track(struct trace_packets *out, const struct trace_rank *rank,
                                    enum trace_track track, int32_t level)
{
    int32_t tid = (int32_t)track + level * TRACE_TRACKS;
    char name[64];

    if (level == 0) {
        (void)snprintf(name, sizeof(name), "%s", trace_track_name(track));
    } else {
        (void)snprintf(name, sizeof(name), "%s (%d)", trace_track_name(track), (int)level + 1);
    }
    begin_descriptor(out, rank, slice_uuid(rank, tid), name, (int64_t)track * 64 + level);
    return put_descriptor(out);
}

enum status trace_packets_put_counter(struct trace_packets *out, const struct trace_rank *rank,
                                      enum trace_memory_kind kind)
{
    begin_descriptor(out, rank, counter_uuid(rank, kind), trace_memory_name(kind),
                     (int64_t)TRACE_TRACKS * 64 + kind);
    protobuf_clear(&out->parts[1]);
    protobuf_put_uint(&out->parts[1], COUNTER_UNIT, UNIT_BYTES);
    protobuf_put_message(&out->parts[0], DESCRIPTOR_COUNTER, &out->parts[1]);
    return put_descriptor(out);
}

/* The event that parts[0] holds, at a time. */
static enum status put_event(struct trace_packets *out, int64_t ns)
{
    protobuf_put_uint(&out->packet, PACKET_TIMESTAMP, (uint64_t)(ns + out->shift_ns));
    protobuf_put_uint(&out->packet, PACKET_SEQUENCE_FLAGS, STATE_NEEDED);
    protobuf_put_message(&out->packet, PACKET_TRACK_EVENT, &out->parts[0]);
    return put_packet(out);
}

static void begin_event(struct trace_packets *out, uint64_t type, uint64_t track)
{
    protobuf_clear(&out->parts[0]);
    protobuf_put_uint(&out->parts[0], EVENT_TYPE, type);
    protobuf_put_uint(&out->parts[0], EVENT_TRACK, track);
}

static void put_argument(struct trace_packets *out, uint64_t argument, int64_t value)
{
    protobuf_clear(&out->parts[1]);
    protobuf_put_uint(&out->parts[1], ARGUMENT_NAME, argument + 1);
    protobuf_put_int(&out->parts[1], ARGUMENT_INT, value);
    protobuf_put_message(&out->parts[0], EVENT_ARGUMENT, &out->parts[1]);
}

enum status trace_packets_put_begin(struct trace_packets *out, const struct trace_rank *rank,
                                    int32_t tid, const struct span *span, uint64_t name_id,
                                    uint64_t flow)
{
    begin_event(out, SLICE_BEGIN, slice_uuid(rank, tid));
    protobuf_put_uint(&out->parts[0], EVENT_CATEGORY, (uint64_t)span->kind + 1);
    protobuf_put_uint(&out->parts[0], EVENT_NAME, name_id);
    for (uint64_t arg = 0; arg < SPAN_ARGS; arg++) {
        if (span->args[arg] != ACTION_NONE) {
            put_argument(out, arg, span->args[arg]);
        }
    }
    if (span->bytes > 0) {
        put_argument(out, SPAN_ARGS, (int64_t)span->bytes);
    }
    if (flow != 0) {
        protobuf_put_fixed64(&out->parts[0], span->kind == TRACE_SEND ? EVENT_FLOW : EVENT_FLOW_END,
                             flow);
    }
    return put_event(out, span->begin_ns);
}

enum status trace_packets_put_end(struct trace_packets *out, const struct trace_rank *rank,
                                  int32_t tid, int64_t ns)
{
    begin_event(out, SLICE_END, slice_uuid(rank, tid));
    return put_event(out, ns);
}

enum status trace_packets_put_memory(struct trace_packets *out, const struct trace_rank *rank,
                                     enum trace_memory_kind kind, int64_t ns, int64_t bytes)
{
    begin_event(out, COUNTER, counter_uuid(rank, kind));
    protobuf_put_int(&out->parts[0], EVENT_COUNTER_VALUE, bytes);
    return put_event(out, ns);
}

void trace_packets_release(struct trace_packets *out)
{
    protobuf_release(&out->packet);
    protobuf_release(&out->outer);
    for (int part = 0; part < 2; part++) {
        protobuf_release(&out->parts[part]);
    }
}
