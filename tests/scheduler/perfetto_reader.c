#include "tests/scheduler/perfetto_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TRACKS 512
#define MOST_NAMES  4096
#define MOST_OPEN   16

struct bytes {
    const unsigned char *at;
    const unsigned char *end;
};

struct field {
    uint64_t number;
    uint64_t value;     /* varint and fixed64 */
    struct bytes bytes; /* length-delimited; at is NULL for the others */
};

struct track {
    uint64_t uuid;
    uint64_t parent;
    char name[64];
    bool counts;
    size_t open[MOST_OPEN]; /* slices that have not ended, the innermost last */
    size_t depth;
};

struct reader {
    struct perfetto_trace *trace;
    struct track tracks[MOST_TRACKS];
    size_t track_count;
    char names[4][MOST_NAMES][64]; /* by field of InternedData (1, 2, 3) and iid */
    uint64_t last_ns;
    bool cleared;
};

static uint64_t read_varint(struct bytes *from)
{
    uint64_t value = 0;
    int shift = 0;

    for (;;) {
        assert_true(from->at < from->end && shift < 64);
        value |= (uint64_t)(*from->at & 0x7F) << shift;
        shift += 7;
        if ((*from->at++ & 0x80) == 0) {
            return value;
        }
    }
}

static bool next_field(struct bytes *from, struct field *field)
{
    uint64_t tag = 0;

    if (from->at == from->end) {
        return false;
    }
    tag = read_varint(from);
    *field = (struct field){.number = tag >> 3};
    switch (tag & 7) {
    case 0:
        field->value = read_varint(from);
        break;
    case 1:
        assert_true(from->end - from->at >= 8);
        for (int index = 7; index >= 0; index--) {
            field->value = field->value << 8 | from->at[index];
        }
        from->at += 8;
        break;
    case 2:
        field->value = read_varint(from);
        assert_true(field->value <= (uint64_t)(from->end - from->at));
        field->bytes = (struct bytes){from->at, from->at + field->value};
        from->at += field->value;
        break;
    default:
        fail_msg("wire type %d", (int)(tag & 7));
    }
    return true;
}

static void take_text(const struct field *field, char *out, size_t out_bytes)
{
    assert_true(field->value < out_bytes);
    (void)snprintf(out, out_bytes, "%.*s", (int)field->value, (const char *)field->bytes.at);
}

static struct track *find_track(struct reader *reader, uint64_t uuid)
{
    for (size_t index = 0; index < reader->track_count; index++) {
        if (reader->tracks[index].uuid == uuid) {
            return &reader->tracks[index];
        }
    }
    fail_msg("track %llu has no descriptor", (unsigned long long)uuid);
    abort(); /* not reached, which fail_msg() does not say */
}

/* ProcessDescriptor: process_name 6. */
static void read_process(struct bytes from, struct track *track)
{
    struct field field;

    while (next_field(&from, &field)) {
        if (field.number == 6) {
            take_text(&field, track->name, sizeof(track->name));
        }
    }
}

/* TrackDescriptor: uuid 1, name 2, process 3 (process_name 6), parent_uuid 5, counter 8. */
static void read_descriptor(struct reader *reader, struct bytes from)
{
    struct track *track = &reader->tracks[reader->track_count++];
    struct field field;

    assert_true(reader->track_count <= MOST_TRACKS);
    while (next_field(&from, &field)) {
        if (field.number == 1) {
            track->uuid = field.value;
        } else if (field.number == 2) {
            take_text(&field, track->name, sizeof(track->name));
        } else if (field.number == 3) {
            read_process(field.bytes, track);
        } else if (field.number == 5) {
            track->parent = field.value;
        } else if (field.number == 8) {
            track->counts = true;
        }
    }
}

/* InternedData: event_categories 1, event_names 2, debug_annotation_names 3; each iid 1, name 2. */
static void read_interned(struct reader *reader, struct bytes from)
{
    struct field field;

    while (next_field(&from, &field)) {
        struct field inner;
        uint64_t id = 0;
        char text[64] = "";

        assert_in_range(field.number, 1, 3);
        while (next_field(&field.bytes, &inner)) {
            if (inner.number == 1) {
                id = inner.value;
            } else {
                take_text(&inner, text, sizeof(text));
            }
        }
        assert_in_range(id, 1, MOST_NAMES - 1);
        (void)snprintf(reader->names[field.number][id], 64, "%s", text);
    }
}

/* DebugAnnotation: name_iid 1, int_value 4. */
static void read_argument(const struct reader *reader, struct bytes from,
                          struct perfetto_slice *slice)
{
    struct field field;
    const char *name = "";
    int64_t value = 0;

    while (next_field(&from, &field)) {
        if (field.number == 1) {
            assert_true(field.value < MOST_NAMES);
            name = reader->names[3][field.value];
        } else if (field.number == 4) {
            value = (int64_t)field.value;
        }
    }
    slice->step = strcmp(name, "step") == 0 ? value : slice->step;
    slice->microbatch = strcmp(name, "microbatch") == 0 ? value : slice->microbatch;
    slice->peer = strcmp(name, "peer") == 0 ? value : slice->peer;
    slice->bytes = strcmp(name, "bytes") == 0 ? value : slice->bytes;
}

static void begin_slice(struct reader *reader, struct track *track,
                        const struct perfetto_slice *slice)
{
    struct perfetto_trace *trace = reader->trace;

    trace->slices = realloc(trace->slices, (trace->slice_count + 1) * sizeof(*trace->slices));
    assert_non_null(trace->slices);
    assert_true(track->depth < MOST_OPEN);
    track->open[track->depth++] = trace->slice_count;
    trace->slices[trace->slice_count] = *slice;
    (void)snprintf(trace->slices[trace->slice_count].track, 64, "%s", track->name);
    (void)snprintf(trace->slices[trace->slice_count].process, 64, "%s",
                   find_track(reader, track->parent)->name);
    trace->slice_count++;
}

static void add_value(struct reader *reader, const struct track *track, uint64_t ns, int64_t value)
{
    struct perfetto_trace *trace = reader->trace;

    assert_true(track->counts);
    trace->values = realloc(trace->values, (trace->value_count + 1) * sizeof(*trace->values));
    assert_non_null(trace->values);
    trace->values[trace->value_count] = (struct perfetto_value){.ns = ns, .value = value};
    (void)snprintf(trace->values[trace->value_count++].track, 64, "%s", track->name);
}

/* TrackEvent: category_iids 3, debug_annotations 4, type 9 (begin 1, end 2, counter 4), name_iid 10,
 * track_uuid 11, counter_value 30, flow_ids 47, terminating_flow_ids 48. */
static void read_event(struct reader *reader, struct bytes from, uint64_t ns)
{
    struct perfetto_slice slice = {.begin = ns, .step = -1, .microbatch = -1, .peer = -1};
    struct track *track = NULL;
    struct field field;
    uint64_t uuid = 0;
    uint64_t type = 0;
    int64_t value = 0;

    while (next_field(&from, &field)) {
        switch (field.number) {
        case 3:
            (void)snprintf(slice.category, sizeof(slice.category), "%s",
                           reader->names[1][field.value]);
            break;
        case 4:
            read_argument(reader, field.bytes, &slice);
            break;
        case 9:
            type = field.value;
            break;
        case 10:
            (void)snprintf(slice.name, sizeof(slice.name), "%s", reader->names[2][field.value]);
            break;
        case 11:
            uuid = field.value;
            break;
        case 30:
            value = (int64_t)field.value;
            break;
        case 47:
        case 48:
            slice.flow = field.value;
            slice.flow_ends = field.number == 48;
            break;
        default:
            fail_msg("field %d of an event", (int)field.number);
        }
    }
    track = find_track(reader, uuid);
    if (type == 1) {
        begin_slice(reader, track, &slice);
    } else if (type == 2) {
        assert_true(track->depth > 0);
        reader->trace->slices[track->open[--track->depth]].end = ns;
    } else {
        assert_int_equal(type, 4);
        add_value(reader, track, ns, value);
    }
}

/* TracePacket: clock_snapshot 6, timestamp 8, sequence 10, track_event 11, interned_data 12,
 * sequence_flags 13 (cleared 1, needed 2), defaults 59 (clock 58), track_descriptor 60. */
static void read_packet(struct reader *reader, struct bytes from)
{
    struct field field;
    struct bytes event = {NULL, NULL};
    uint64_t ns = 0;
    uint64_t flags = 0;
    uint64_t sequence = 0;

    while (next_field(&from, &field)) {
        if (field.number == 8) {
            ns = field.value;
        } else if (field.number == 10) {
            sequence = field.value;
        } else if (field.number == 11) {
            event = field.bytes;
        } else if (field.number == 12) {
            read_interned(reader, field.bytes);
        } else if (field.number == 13) {
            flags = field.value;
        } else if (field.number == 59) {
            struct field inner = {.number = 0};

            assert_true(next_field(&field.bytes, &inner));
            assert_int_equal(inner.number, 58);
            reader->trace->clock = inner.value;
        } else if (field.number == 60) {
            read_descriptor(reader, field.bytes);
        } else {
            assert_int_equal(field.number, 6);
        }
    }
    assert_true(sequence != 0);
    reader->cleared = reader->cleared || flags == 1;
    if (event.at != NULL) {
        assert_true(reader->cleared && flags == 2);
        assert_true(ns >= reader->last_ns);
        reader->last_ns = ns;
        read_event(reader, event, ns);
    }
}

void perfetto_read(const unsigned char *bytes, size_t count, struct perfetto_trace *trace_out)
{
    struct reader *reader = calloc(1, sizeof(*reader));
    struct bytes from = {bytes, bytes + count};
    struct field field;

    memset(trace_out, 0, sizeof(*trace_out));
    assert_non_null(reader);
    reader->trace = trace_out;
    while (next_field(&from, &field)) {
        assert_int_equal(field.number, 1);
        read_packet(reader, field.bytes);
    }
    for (size_t index = 0; index < reader->track_count; index++) {
        assert_int_equal(reader->tracks[index].depth, 0);
    }
    free(reader);
}

void perfetto_release(struct perfetto_trace *trace)
{
    free(trace->slices);
    free(trace->values);
    memset(trace, 0, sizeof(*trace));
}
