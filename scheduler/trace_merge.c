#include "scheduler/trace_merge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/escape.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_lanes.h"
#include "scheduler/trace_memory.h"
#include "scheduler/trace_message.h"

/* One slice in the order of time. */
struct slice {
    const struct trace_rank *rank;
    const struct span *span;
    int32_t tid;
};

struct merge {
    const struct trace_run *run;
    struct slice *slices; /* owns; rank by rank at first, in the order of time when written */
    size_t count;
    size_t *first_slice;            /* owns; of each rank, while slices stand rank by rank */
    struct trace_message *messages; /* owns */
    size_t message_count;
    FILE *file; /* borrows */
    char line[TRACE_EVENT_BYTES];
};

static enum status put_line(struct merge *merge, size_t line_bytes)
{
    if (fwrite(",\n", 1, 2, merge->file) != 2 ||
        fwrite(merge->line, 1, line_bytes, merge->file) != line_bytes) {
        return STATUS_ERR_IO;
    }
    return STATUS_OK;
}

static enum status put_levels(struct merge *merge, const struct trace_rank *rank,
                              enum trace_track track, int32_t levels)
{
    for (int32_t level = 0; level < levels; level++) {
        TRY(put_line(merge,
                     trace_event_print_track(rank->rank, (int32_t)track + level * TRACE_TRACKS,
                                             track, level, merge->line, sizeof(merge->line))));
    }
    return STATUS_OK;
}

/* Names the tracks of a rank that are used. */
static enum status put_tracks(struct merge *merge, const struct trace_rank *rank,
                              const struct trace_lanes *lanes)
{
    for (int track = 0; track < TRACE_TRACKS; track++) {
        TRY(put_levels(merge, rank, (enum trace_track)track, lanes->levels[track]));
    }
    return STATUS_OK;
}

/* Gives each slice of a rank its track and names the tracks that are used. */
static enum status place_rank(struct merge *merge, const struct trace_rank *rank,
                              struct slice *slices)
{
    struct trace_lanes lanes;
    enum status status = STATUS_OK;

    TRY(trace_lanes_place(rank, &lanes));
    for (size_t index = 0; index < rank->count; index++) {
        slices[index] =
            (struct slice){.rank = rank, .span = &rank->spans[index], .tid = lanes.tids[index]};
    }
    status = put_tracks(merge, rank, &lanes);
    trace_lanes_release(&lanes);
    return status;
}

static enum status put_process(struct merge *merge, const struct trace_rank *rank, bool first)
{
    int length = fprintf(merge->file,
                         "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,"
                         "\"args\":{\"name\":\"stage %d (rank %d)\"}},\n"
                         "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,"
                         "\"args\":{\"sort_index\":%d}}",
                         first ? "" : ",\n", (int)rank->rank, (int)rank->pipeline_rank,
                         (int)rank->rank, (int)rank->rank, (int)rank->rank);

    return length < 0 ? STATUS_ERR_IO : STATUS_OK;
}

static int32_t tid_of(const struct merge *merge, const struct trace_rank *rank,
                      const struct span *span)
{
    size_t first = merge->first_slice[rank - merge->run->ranks];

    return merge->slices[first + (size_t)(span - rank->spans)].tid;
}

/* The s end stands at the beginning of its slice, the f end in the last nanosecond of its own:
 * viewers bind a flow to the slice that is open at its time. */
static enum status put_flow(struct merge *merge, const struct trace_message *message, uint64_t id)
{
    int32_t direction = message->send->args[TRACE_ARG_DIRECTION];
    int64_t used = message->recv->end_ns > message->recv->begin_ns ? message->recv->end_ns - 1
                                                                   : message->recv->begin_ns;

    TRY(put_line(merge, trace_event_print_flow(false, direction, id, message->sender->rank,
                                               tid_of(merge, message->sender, message->send),
                                               message->send->begin_ns, merge->line,
                                               sizeof(merge->line))));
    return put_line(merge, trace_event_print_flow(true, direction, id, message->receiver->rank,
                                                  tid_of(merge, message->receiver, message->recv),
                                                  used, merge->line, sizeof(merge->line)));
}

/* What is taken of a rank's buffers, as a counter of its process. */
static enum status put_memory(struct merge *merge, const struct trace_rank *rank)
{
    const char *names[TRACE_MEMORY_KINDS];
    struct trace_memory memory;
    enum status status = STATUS_OK;

    for (int kind = 0; kind < TRACE_MEMORY_KINDS; kind++) {
        names[kind] = trace_memory_name((enum trace_memory_kind)kind);
    }
    TRY(trace_memory_make(rank, merge->messages, merge->message_count, &memory));
    for (size_t index = 0; status >= 0 && index < memory.count; index++) {
        const struct trace_memory_point *point = &memory.points[index];

        status = put_line(merge, trace_event_print_memory(rank->rank, point->ns, names,
                                                          point->bytes, TRACE_MEMORY_KINDS,
                                                          merge->line, sizeof(merge->line)));
    }
    trace_memory_release(&memory);
    return status;
}

static int compare_slices(const void *left_item, const void *right_item)
{
    const struct slice *left = left_item;
    const struct slice *right = right_item;

    if (left->span->begin_ns != right->span->begin_ns) {
        return left->span->begin_ns < right->span->begin_ns ? -1 : 1;
    }
    if (left->rank != right->rank) {
        return left->rank->rank < right->rank->rank ? -1 : 1;
    }
    return (left->span > right->span) - (left->span < right->span);
}

/* All spans, in the order of their beginnings. */
static enum status put_slices(struct merge *merge)
{
    if (merge->count > 0) {
        qsort(merge->slices, merge->count, sizeof(*merge->slices), compare_slices);
    }
    for (size_t index = 0; index < merge->count; index++) {
        const struct slice *slice = &merge->slices[index];

        TRY(put_line(
            merge, trace_event_print(slice->span, slice->rank->rank, slice->tid, 0, merge->line)));
    }
    return STATUS_OK;
}

static enum status put_events(struct merge *merge)
{
    for (size_t index = 0; index < merge->run->count; index++) {
        TRY(put_process(merge, &merge->run->ranks[index], index == 0));
        TRY(place_rank(merge, &merge->run->ranks[index],
                       merge->slices + merge->first_slice[index]));
        TRY(put_memory(merge, &merge->run->ranks[index]));
    }
    for (size_t index = 0; index < merge->message_count; index++) {
        TRY(put_flow(merge, &merge->messages[index], index + 1));
    }
    return put_slices(merge);
}

static enum status put_object(struct merge *merge)
{
    const char *run_name = merge->run->name == NULL ? "" : merge->run->name;
    size_t name_bytes = strlen(run_name) * ESCAPE_MOST_BYTES + 1;
    char *name = malloc(name_bytes);
    uint64_t dropped = 0;

    if (name == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu bytes for the run's name", name_bytes);
    }
    for (size_t index = 0; index < merge->run->count; index++) {
        dropped += merge->run->ranks[index].dropped;
    }
    (void)escape_json(run_name, name, name_bytes);
    (void)fprintf(merge->file,
                  "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"run\":\"%s\",\"dropped\":%" PRIu64
                  "},\n\"traceEvents\":[\n",
                  name, dropped);
    free(name);
    TRY(put_events(merge));
    (void)fprintf(merge->file, "\n]}\n");
    return ferror(merge->file) ? STATUS_ERR_IO : STATUS_OK;
}

static enum status gather(struct merge *merge, const struct trace_run *run)
{
    merge->run = run;
    merge->first_slice = calloc(run->count + 1, sizeof(*merge->first_slice));
    if (merge->first_slice == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu ranks to merge", run->count);
    }
    for (size_t index = 0; index < run->count; index++) {
        merge->first_slice[index] = merge->count;
        merge->count += run->ranks[index].count;
    }
    merge->slices = calloc(merge->count + 1, sizeof(*merge->slices));
    if (merge->slices == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu spans to merge", merge->count);
    }
    return trace_messages_find(run, &merge->messages, &merge->message_count);
}

enum status trace_merge_write(const struct trace_run *run, const char *path)
{
    struct merge merge = {0};
    enum status status = STATUS_OK;

    TRY_OR(done, status, gather(&merge, run));
    merge.file = fopen(path, "we");
    if (merge.file == NULL) {
        status = status_fail(STATUS_ERR_IO, "opening %s: %s", path, strerror(errno));
        goto done;
    }
    status = put_object(&merge);
    if (fclose(merge.file) != 0 && status >= 0) {
        status = STATUS_ERR_IO;
    }
    if (status == STATUS_ERR_IO) {
        status = status_fail(status, "writing the merged trace %s: %s", path, strerror(errno));
    }
done:
    free(merge.slices);
    free(merge.first_slice);
    free(merge.messages);
    return status;
}
