#include "scheduler/trace_perfetto.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/action.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_lanes.h"
#include "scheduler/trace_memory.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_packet.h"

enum event_type {
    EVENT_BEGIN,
    EVENT_END,
    EVENT_MEMORY
};

/* Something that is written at a time. */
struct event {
    int64_t ns;
    uint64_t order; /* of events at one time: as they were made, so that slices of a track nest */
    size_t index;   /* of the span, or of the point of memory */
    int32_t rank;   /* place in the run */
    int16_t kind;   /* enum trace_memory_kind, of EVENT_MEMORY */
    uint8_t type;   /* enum event_type */
};

struct perfetto {
    const struct trace_run *run;
    struct trace_message *messages; /* owns */
    size_t message_count;
    struct trace_lanes *lanes;       /* owns; by rank */
    struct trace_memory *memory;     /* owns; by rank */
    struct trace_packet_name *names; /* owns; each once, ascending; a name's id is its place + 1 */
    size_t name_count;
    uint64_t **flows;     /* owns; by rank and span: id of the message that leaves or ends there */
    struct event *events; /* owns */
    size_t event_count;
    struct trace_packets packets; /* shift: so that no time is below 0 */
};

static int compare_names(const void *left_item, const void *right_item)
{
    const struct trace_packet_name *left = left_item;
    const struct trace_packet_name *right = right_item;

    if (left->kind != right->kind) {
        return left->kind < right->kind ? -1 : 1;
    }
    if (left->virtual_stage != right->virtual_stage) {
        return left->virtual_stage < right->virtual_stage ? -1 : 1;
    }
    if (left->microbatch != right->microbatch) {
        return left->microbatch < right->microbatch ? -1 : 1;
    }
    return left->backward - right->backward;
}

static int compare_events(const void *left_item, const void *right_item)
{
    const struct event *left = left_item;
    const struct event *right = right_item;

    if (left->ns != right->ns) {
        return left->ns < right->ns ? -1 : 1;
    }
    return (left->order > right->order) - (left->order < right->order);
}

static size_t count_spans(const struct trace_run *run)
{
    size_t count = 0;

    for (size_t index = 0; index < run->count; index++) {
        count += run->ranks[index].count;
    }
    return count;
}

static enum status make_names(struct perfetto *out)
{
    size_t count = count_spans(out->run);
    size_t used = 0;

    out->names = calloc(count + 1, sizeof(*out->names));
    if (out->names == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the names of %zu spans", count);
    }
    for (size_t index = 0; index < out->run->count; index++) {
        for (size_t item = 0; item < out->run->ranks[index].count; item++) {
            out->names[used++] = trace_packet_name_of(&out->run->ranks[index].spans[item]);
        }
    }
    qsort(out->names, used, sizeof(*out->names), compare_names);
    for (size_t index = 0; index < used; index++) {
        if (out->name_count == 0 ||
            compare_names(&out->names[out->name_count - 1], &out->names[index]) != 0) {
            out->names[out->name_count++] = out->names[index];
        }
    }
    return STATUS_OK;
}

static uint64_t name_id(const struct perfetto *out, const struct span *span)
{
    const struct trace_packet_name key = trace_packet_name_of(span);
    const struct trace_packet_name *found =
        bsearch(&key, out->names, out->name_count, sizeof(*out->names), compare_names);

    return (uint64_t)(found - out->names) + 1;
}

/* Whether `span` reads the message of `recv`. */
static bool reads(const struct span *span, const struct span *recv)
{
    bool backward = recv->args[TRACE_ARG_DIRECTION] == LANE_B;

    return (backward ? span->kind == TRACE_I || span->kind == TRACE_B : span->kind == TRACE_F) &&
           span->args[TRACE_ARG_STEP] == recv->args[TRACE_ARG_STEP] &&
           span->args[TRACE_ARG_VIRTUAL_STAGE] == recv->args[TRACE_ARG_VIRTUAL_STAGE] &&
           span->args[TRACE_ARG_MICROBATCH] == recv->args[TRACE_ARG_MICROBATCH];
}

/* A viewer takes the earliest slice of an arrow for its begin, and a RECV may begin long before the
 * SEND: so the arrow ends at the reader, which stands shortly behind the RECV. */
static const struct span *find_reader(const struct trace_message *message)
{
    const struct trace_rank *rank = message->receiver;
    size_t first = (size_t)(message->recv - rank->spans);

    /* A RECV of no time stands behind its reader. */
    while (first > 0 && rank->spans[first - 1].begin_ns == message->recv->begin_ns) {
        first--;
    }
    for (size_t index = first; index < rank->count && index < first + 64; index++) {
        if (reads(&rank->spans[index], message->recv) &&
            rank->spans[index].begin_ns >= message->send->begin_ns) {
            return &rank->spans[index];
        }
    }
    return NULL;
}

static enum status make_flows(struct perfetto *out)
{
    TRY(trace_messages_find(out->run, &out->messages, &out->message_count));
    out->flows = calloc(out->run->count + 1, sizeof(*out->flows));
    for (size_t index = 0; out->flows != NULL && index < out->run->count; index++) {
        out->flows[index] = calloc(out->run->ranks[index].count + 1, sizeof(**out->flows));
        if (out->flows[index] == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "trace: arrows of %zu spans",
                               out->run->ranks[index].count);
        }
    }
    if (out->flows == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: arrows of %zu ranks", out->run->count);
    }
    for (size_t index = 0; index < out->message_count; index++) {
        const struct trace_message *message = &out->messages[index];
        const struct span *reader = find_reader(message);

        if (reader != NULL) {
            out->flows[message->sender - out->run->ranks][message->send - message->sender->spans] =
                index + 1;
            out->flows[message->receiver - out->run->ranks][reader - message->receiver->spans] =
                index + 1;
        }
    }
    return STATUS_OK;
}

static void add_event(struct perfetto *out, struct event event)
{
    event.order = out->event_count;
    out->events[out->event_count++] = event;
    if (event.ns < -out->packets.shift_ns) {
        out->packets.shift_ns = -event.ns;
    }
}

/* The slices of one track in the order of their begins; each ends before the next that does not lie
 * inside of it begins. `open` has room for all spans of the rank. */
static void add_track(struct perfetto *out, int32_t rank_index, int32_t tid, size_t *open)
{
    const struct trace_rank *rank = &out->run->ranks[rank_index];
    const struct trace_lanes *lanes = &out->lanes[rank_index];
    size_t depth = 0;

    for (size_t index = 0; index <= rank->count; index++) {
        bool last = index == rank->count;

        if (!last && lanes->tids[index] != tid) {
            continue;
        }
        while (depth > 0 &&
               (last || rank->spans[open[depth - 1]].end_ns <= rank->spans[index].begin_ns)) {
            depth--;
            add_event(out, (struct event){.ns = rank->spans[open[depth]].end_ns,
                                          .index = open[depth],
                                          .rank = rank_index,
                                          .type = EVENT_END});
        }
        if (!last) {
            add_event(out, (struct event){.ns = rank->spans[index].begin_ns,
                                          .index = index,
                                          .rank = rank_index,
                                          .type = EVENT_BEGIN});
            open[depth++] = index;
        }
    }
}

static enum status add_rank(struct perfetto *out, int32_t rank_index)
{
    const struct trace_rank *rank = &out->run->ranks[rank_index];
    const struct trace_memory *memory = &out->memory[rank_index];
    size_t *open = calloc(rank->count + 1, sizeof(*open));

    if (open == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the slices of %zu spans", rank->count);
    }
    for (int32_t track = 0; track < TRACE_TRACKS; track++) {
        for (int32_t level = 0; level < out->lanes[rank_index].levels[track]; level++) {
            add_track(out, rank_index, track + level * TRACE_TRACKS, open);
        }
    }
    free(open);
    for (size_t index = 0; index < memory->count; index++) {
        for (int kind = 0; kind < TRACE_MEMORY_KINDS; kind++) {
            add_event(out, (struct event){.ns = memory->points[index].ns,
                                          .index = index,
                                          .rank = rank_index,
                                          .kind = (int16_t)kind,
                                          .type = EVENT_MEMORY});
        }
    }
    return STATUS_OK;
}

static enum status make_events(struct perfetto *out)
{
    size_t most = 2 * count_spans(out->run);

    out->lanes = calloc(out->run->count + 1, sizeof(*out->lanes));
    out->memory = calloc(out->run->count + 1, sizeof(*out->memory));
    if (out->lanes == NULL || out->memory == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu ranks", out->run->count);
    }
    for (size_t index = 0; index < out->run->count; index++) {
        TRY(trace_lanes_place(&out->run->ranks[index], &out->lanes[index]));
        TRY(trace_memory_make(&out->run->ranks[index], out->messages, out->message_count,
                              &out->memory[index]));
        most += out->memory[index].count * TRACE_MEMORY_KINDS;
    }
    out->events = calloc(most + 1, sizeof(*out->events));
    if (out->events == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu events", most);
    }
    for (size_t index = 0; index < out->run->count; index++) {
        TRY(add_rank(out, (int32_t)index));
    }
    qsort(out->events, out->event_count, sizeof(*out->events), compare_events);
    return STATUS_OK;
}

static enum status put_levels(struct perfetto *out, size_t index, enum trace_track track)
{
    for (int32_t level = 0; level < out->lanes[index].levels[track]; level++) {
        TRY(trace_packets_put_track(&out->packets, &out->run->ranks[index], track, level));
    }
    return STATUS_OK;
}

static enum status put_tracks(struct perfetto *out, size_t index)
{
    for (int track = 0; track < TRACE_TRACKS; track++) {
        TRY(put_levels(out, index, (enum trace_track)track));
    }
    return STATUS_OK;
}

static enum status put_counters(struct perfetto *out, size_t index)
{
    for (int kind = 0; out->memory[index].count > 0 && kind < TRACE_MEMORY_KINDS; kind++) {
        TRY(trace_packets_put_counter(&out->packets, &out->run->ranks[index],
                                      (enum trace_memory_kind)kind));
    }
    return STATUS_OK;
}

static enum status put_descriptors(struct perfetto *out)
{
    for (size_t index = 0; index < out->run->count; index++) {
        TRY(trace_packets_put_rank(&out->packets, &out->run->ranks[index]));
        TRY(put_tracks(out, index));
        TRY(put_counters(out, index));
    }
    return STATUS_OK;
}

static enum status put_event(struct perfetto *out, const struct event *event)
{
    const struct trace_rank *rank = &out->run->ranks[event->rank];
    const struct span *span = &rank->spans[event->index];

    switch (event->type) {
    case EVENT_BEGIN:
        return trace_packets_put_begin(&out->packets, rank,
                                       out->lanes[event->rank].tids[event->index], span,
                                       name_id(out, span), out->flows[event->rank][event->index]);
    case EVENT_END:
        return trace_packets_put_end(&out->packets, rank,
                                     out->lanes[event->rank].tids[event->index], event->ns);
    default:
        return trace_packets_put_memory(
            &out->packets, rank, (enum trace_memory_kind)event->kind, event->ns,
            out->memory[event->rank].points[event->index].bytes[event->kind]);
    }
}

static enum status put_all(struct perfetto *out)
{
    TRY(trace_packets_put_head(&out->packets, out->names, out->name_count));
    TRY(put_descriptors(out));
    for (size_t index = 0; index < out->event_count; index++) {
        TRY(put_event(out, &out->events[index]));
    }
    return STATUS_OK;
}

static enum status put_file(struct perfetto *out, const char *path)
{
    enum status status = STATUS_OK;

    out->packets.file = fopen(path, "we");
    if (out->packets.file == NULL) {
        return status_fail(STATUS_ERR_IO, "opening %s: %s", path, strerror(errno));
    }
    status = put_all(out);
    if (fclose(out->packets.file) != 0 && status >= 0) {
        status = STATUS_ERR_IO;
    }
    return status == STATUS_ERR_IO
               ? status_fail(status, "writing the trace %s: %s", path, strerror(errno))
               : status;
}

static void release(struct perfetto *out)
{
    for (size_t index = 0; index < out->run->count; index++) {
        if (out->flows != NULL) {
            free(out->flows[index]);
        }
        if (out->lanes != NULL) {
            trace_lanes_release(&out->lanes[index]);
        }
        if (out->memory != NULL) {
            trace_memory_release(&out->memory[index]);
        }
    }
    free(out->flows);
    free(out->lanes);
    free(out->memory);
    free(out->names);
    free(out->events);
    free(out->messages);
    trace_packets_release(&out->packets);
}

enum status trace_perfetto_write(const struct trace_run *run, const char *path)
{
    struct perfetto out = {.run = run};
    enum status status = STATUS_OK;

    TRY_OR(done, status, make_names(&out));
    TRY_OR(done, status, make_flows(&out));
    TRY_OR(done, status, make_events(&out));
    status = put_file(&out, path);
done:
    release(&out);
    return status;
}
