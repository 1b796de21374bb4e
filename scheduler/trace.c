#include "scheduler/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/escape.h"
#include "scheduler/trace_clock_event.h"
#include "scheduler/trace_event.h"

#define STREAM_BYTES  ((size_t)1 << 16)
#define BATCH_SPANS   64
#define TRAILER_BYTES 448 /* kept free for the clock and the last line, whatever the limit */

struct trace_writer {
    FILE *file;          /* owns */
    char *path;          /* owns */
    char *stream;        /* owns; buffer of `file` */
    struct span *batch;  /* owns; BATCH_SPANS */
    int32_t rank;        /* pid of the events */
    int64_t origin_ns;   /* time 0, of this rank's clock */
    int64_t moved_ns;    /* by which that is another number than in rank 0's */
    uint64_t most_bytes; /* size limit of the file */
    uint64_t written;    /* bytes handed to `file` */
    uint64_t events;     /* spans in the file */
    uint64_t dropped;    /* spans that did not fit */
    bool full;           /* the limit was met: nothing newer follows */
    bool failed;         /* a write failed and was reported */
    char line[TRACE_EVENT_BYTES];
};

static void release_writer(struct trace_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->file != NULL) {
        (void)fclose(writer->file);
    }
    free(writer->batch);
    free(writer->stream);
    free(writer->path);
    free(writer);
}

static enum status fail_write(struct trace_writer *writer)
{
    writer->failed = true;
    return status_fail(STATUS_ERR_IO, "writing the trace %s: %s", writer->path, strerror(errno));
}

static enum status put_text(struct trace_writer *writer, const char *text, size_t text_bytes)
{
    if (fwrite(text, 1, text_bytes, writer->file) != text_bytes) {
        return fail_write(writer);
    }
    writer->written += text_bytes;
    return STATUS_OK;
}

static enum status put_line(struct trace_writer *writer, size_t line_bytes)
{
    TRY(put_text(writer, ",\n", 2));
    return put_text(writer, writer->line, line_bytes);
}

/* The first event carries what the reader must know of the rank; its name is what viewers show. */
static enum status put_process(struct trace_writer *writer,
                               const struct trace_writer_config *config)
{
    size_t name_bytes = strlen(config->run_name) * ESCAPE_MOST_BYTES + 1;
    char *name = malloc(name_bytes);
    size_t used = 0;
    enum status status = STATUS_OK;

    if (name == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu bytes for the run's name", name_bytes);
    }
    used = (size_t)snprintf(writer->line, sizeof(writer->line),
                            "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,"
                            "\"args\":{\"name\":\"stage %d (rank %d)\",\"pipeline_rank\":%d,"
                            "\"run\":\"",
                            (int)config->rank, (int)config->pipeline_rank, (int)config->rank,
                            (int)config->pipeline_rank);
    TRY_OR(done, status, put_text(writer, writer->line, used));
    used = escape_json(config->run_name, name, name_bytes);
    TRY_OR(done, status, put_text(writer, name, used));
    TRY_OR(done, status, put_text(writer, "\"}}", 3));
    used = (size_t)snprintf(writer->line, sizeof(writer->line),
                            "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,"
                            "\"args\":{\"sort_index\":%d}}",
                            (int)config->rank, (int)config->rank);
    status = put_line(writer, used);
done:
    free(name);
    return status;
}

static enum status put_clock(struct trace_writer *writer, const struct trace_clock *clock)
{
    const struct trace_clock of_file = {.at_ns = clock->at_ns - writer->origin_ns,
                                        .offset_ns = clock->offset_ns,
                                        .uncertainty_ns = clock->uncertainty_ns};

    return put_line(writer, trace_clock_event_print(writer->rank, &of_file, writer->moved_ns,
                                                    writer->line, sizeof(writer->line)));
}

static enum status put_header(struct trace_writer *writer, const struct trace_writer_config *config)
{
    TRY(put_process(writer, config));
    for (int track = 0; track < TRACE_TRACKS; track++) {
        TRY(put_line(writer, trace_event_print_track(config->rank, track, (enum trace_track)track,
                                                     0, writer->line, sizeof(writer->line))));
    }
    for (size_t index = 0; index < config->size_count; index++) {
        TRY(put_line(writer, trace_event_print_size(config->rank, &config->sizes[index],
                                                    writer->line, sizeof(writer->line))));
    }
    if (config->clock != NULL) {
        TRY(put_clock(writer, config->clock));
    }
    if (writer->written + TRAILER_BYTES > config->most_bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "trace %s: the limit of %" PRIu64 " bytes does not hold the %" PRIu64
                           " bytes of its head; raise trace.max_mb",
                           config->path, config->most_bytes, writer->written + TRAILER_BYTES);
    }
    return STATUS_OK;
}

enum status trace_writer_put_clock(struct trace_writer *writer, const struct trace_clock *clock)
{
    return writer->failed ? STATUS_ERR_IO : put_clock(writer, clock);
}

enum status trace_writer_open(const struct trace_writer_config *config,
                              struct trace_writer **writer_out)
{
    struct trace_writer *writer = calloc(1, sizeof(*writer));
    enum status status = STATUS_OK;

    if (writer == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: a writer for %s", config->path);
    }
    writer->path = strdup(config->path);
    writer->stream = malloc(STREAM_BYTES);
    writer->batch = calloc(BATCH_SPANS, sizeof(*writer->batch));
    if (writer->path == NULL || writer->stream == NULL || writer->batch == NULL) {
        release_writer(writer);
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: buffers to write %s", config->path);
    }
    writer->rank = config->rank;
    /* By what is known now the file counts from the moment that is time 0 elsewhere: clocks of hosts may be
     * years apart. */
    writer->moved_ns = config->clock != NULL ? config->clock->offset_ns : 0;
    writer->origin_ns = config->origin_ns - writer->moved_ns;
    writer->most_bytes = config->most_bytes;
    writer->file = fopen(config->path, "we");
    if (writer->file == NULL) {
        status =
            status_fail(STATUS_ERR_IO, "opening the trace %s: %s", config->path, strerror(errno));
        goto fail;
    }
    (void)setvbuf(writer->file, writer->stream, _IOFBF, STREAM_BYTES);
    TRY_OR(fail, status, put_header(writer, config));
    *writer_out = writer;
    return STATUS_OK;
fail:
    release_writer(writer);
    return status;
}

/* The newest are dropped, so that what is in the file has no holes. */
static enum status put_span(struct trace_writer *writer, const struct span *span)
{
    size_t line_bytes = 0;

    if (!writer->full) {
        line_bytes = trace_event_print(span, writer->rank, (int32_t)trace_track_of(span),
                                       writer->origin_ns, writer->line);
        writer->full = writer->written + 2 + line_bytes + TRAILER_BYTES > writer->most_bytes;
    }
    if (writer->full) {
        writer->dropped++;
        return STATUS_OK;
    }
    TRY(put_line(writer, line_bytes));
    writer->events++;
    return STATUS_OK;
}

static enum status put_batch(struct trace_writer *writer, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        TRY(put_span(writer, &writer->batch[index]));
    }
    return STATUS_OK;
}

enum status trace_writer_drain(struct trace_writer *writer, struct span_ring *ring)
{
    size_t taken = 0;

    if (writer->failed) {
        return STATUS_ERR_IO;
    }
    writer->dropped += ring->dropped;
    ring->dropped = 0;
    do {
        taken = span_ring_take(ring, writer->batch, BATCH_SPANS);
        TRY(put_batch(writer, taken));
    } while (taken > 0);
    /* A run that is killed later leaves every step that was drained. */
    return fflush(writer->file) == 0 ? STATUS_OK : fail_write(writer);
}

static enum status put_trailer(struct trace_writer *writer)
{
    size_t line_bytes =
        (size_t)snprintf(writer->line, sizeof(writer->line),
                         "{\"ph\":\"M\",\"name\":\"weir_end\",\"pid\":%d,\"tid\":0,"
                         "\"args\":{\"events\":%" PRIu64 ",\"dropped\":%" PRIu64 "}}\n]\n",
                         (int)writer->rank, writer->events, writer->dropped);

    return put_line(writer, line_bytes);
}

enum status trace_writer_close(struct trace_writer **writer)
{
    enum status status = STATUS_OK;

    if (*writer == NULL) {
        return STATUS_OK;
    }
    status = (*writer)->failed ? STATUS_ERR_IO : put_trailer(*writer);
    if (status == STATUS_OK && fflush((*writer)->file) != 0) {
        status = fail_write(*writer);
    }
    release_writer(*writer);
    *writer = NULL;
    return status;
}
