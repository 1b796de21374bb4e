#include "scheduler/trace_html.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/escape.h"
#include "scheduler/page/page.h"
#include "scheduler/trace_bubble.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_memory.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_path.h"
#include "scheduler/trace_report.h"
#include "scheduler/trace_summary.h"

/* A number above this is none that JavaScript can hold. */
#define MOST_NUMBER ((uint64_t)1 << 53)

struct html {
    const struct trace_run *run;
    struct trace_summary summary;   /* owns */
    struct trace_bubble bubble;     /* owns */
    struct trace_path path;         /* owns */
    struct trace_message *messages; /* owns */
    size_t message_count;
    char *report; /* owns; the text of trace_report */
    FILE *file;   /* borrows */
};

/* A column of numbers, of `count` items that `item_of` gives. */
typedef int64_t (*column_item)(const struct html *html, const void *items, size_t index);

static void put_column(const struct html *html, const char *name, const void *items, size_t count,
                       column_item item_of)
{
    (void)fprintf(html->file, "\"%s\":[", name);
    for (size_t index = 0; index < count; index++) {
        (void)fprintf(html->file, "%s%" PRId64, index == 0 ? "" : ",", item_of(html, items, index));
    }
    (void)fputc(']', html->file);
}

static int64_t span_begin(const struct html *html, const void *items, size_t index)
{
    const struct span *spans = items;

    (void)html;
    return spans[index].begin_ns - (index == 0 ? 0 : spans[index - 1].begin_ns);
}

static int64_t span_duration(const struct html *html, const void *items, size_t index)
{
    const struct span *span = (const struct span *)items + index;

    (void)html;
    return span->end_ns - span->begin_ns;
}

static int64_t span_kind(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return ((const struct span *)items)[index].kind;
}

static int64_t span_track(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return trace_track_of((const struct span *)items + index);
}

static int64_t span_step(const struct html *html, const void *items, size_t index)
{
    const struct span *spans = items;
    int64_t step = spans[index].args[TRACE_ARG_STEP];

    (void)html;
    return index == 0 ? step : step - spans[index - 1].args[TRACE_ARG_STEP];
}

static int64_t span_microbatch(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return ((const struct span *)items)[index].args[TRACE_ARG_MICROBATCH];
}

static int64_t span_stage(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return ((const struct span *)items)[index].args[TRACE_ARG_VIRTUAL_STAGE];
}

static int64_t span_peer(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return ((const struct span *)items)[index].args[TRACE_ARG_PEER];
}

static int64_t span_direction(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return ((const struct span *)items)[index].args[TRACE_ARG_DIRECTION];
}

static int64_t span_bytes(const struct html *html, const void *items, size_t index)
{
    uint64_t bytes = ((const struct span *)items)[index].bytes;

    (void)html;
    return (int64_t)(bytes < MOST_NUMBER ? bytes : MOST_NUMBER - 1);
}

static int64_t span_evaluation(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return ((const struct span *)items)[index].args[TRACE_ARG_EVALUATION] == 1 ? 1 : 0;
}

static int64_t span_slices(const struct html *html, const void *items, size_t index)
{
    int32_t slices = ((const struct span *)items)[index].args[TRACE_ARG_SLICES];

    (void)html;
    return slices > 0 ? slices : -1;
}

/* Most runs have none, and are spared the column. */
static bool has_slices(const struct trace_rank *rank)
{
    size_t index = 0;

    while (index < rank->count && rank->spans[index].args[TRACE_ARG_SLICES] <= 0) {
        index++;
    }
    return index < rank->count;
}

static void put_spans(const struct html *html, const struct trace_rank *rank)
{
    static const struct {
        const char *name;
        column_item item_of;
    } columns[] = {
        {"begin", span_begin},
        {"duration", span_duration},
        {"kind", span_kind},
        {"track", span_track},
        {"step", span_step},
        {"microbatch", span_microbatch},
        {"stage", span_stage},
        {"peer", span_peer},
        {"direction", span_direction},
        {"bytes", span_bytes},
        {"evaluation", span_evaluation},
    };

    (void)fputs("\n\"spans\":{", html->file);
    for (size_t column = 0; column < sizeof(columns) / sizeof(columns[0]); column++) {
        (void)fputs(column == 0 ? "" : ",\n", html->file);
        put_column(html, columns[column].name, rank->spans, rank->count, columns[column].item_of);
    }
    if (has_slices(rank)) {
        (void)fputs(",\n", html->file);
        put_column(html, "slices", rank->spans, rank->count, span_slices);
    }
    (void)fputc('}', html->file);
}

static int64_t memory_time(const struct html *html, const void *items, size_t index)
{
    const struct trace_memory_point *points = items;

    (void)html;
    return points[index].ns - (index == 0 ? 0 : points[index - 1].ns);
}

static int64_t memory_together(const struct html *html, const void *items, size_t index)
{
    const struct trace_memory_point *point = (const struct trace_memory_point *)items + index;
    uint64_t bytes = 0;

    (void)html;
    for (int kind = 0; kind < TRACE_MEMORY_KINDS; kind++) {
        bytes += point->bytes[kind] > 0 ? (uint64_t)point->bytes[kind] : 0;
    }
    return (int64_t)(bytes < MOST_NUMBER ? bytes : MOST_NUMBER - 1);
}

static enum status put_memory(const struct html *html, const struct trace_rank *rank)
{
    struct trace_memory memory;

    TRY(trace_memory_make(rank, html->messages, html->message_count, &memory));
    (void)fputs(",\n\"memory\":{", html->file);
    put_column(html, "time", memory.points, memory.count, memory_time);
    (void)fputc(',', html->file);
    put_column(html, "together", memory.points, memory.count, memory_together);
    (void)fputc('}', html->file);
    trace_memory_release(&memory);
    return STATUS_OK;
}

static enum status put_rank(const struct html *html, size_t index)
{
    const struct trace_rank *rank = &html->run->ranks[index];
    const struct trace_bubble_rank *bubble = &html->bubble.ranks[index];

    (void)fprintf(html->file,
                  "%s\n{\"rank\":%d,\"stage\":%d,\"replica\":%d,\"bubble\":%.6f,\"causes\":[",
                  index == 0 ? "" : ",", (int)rank->rank, (int)rank->pipeline_rank,
                  (int)rank->replica, html->summary.ranks[index].bubble);
    for (int cause = 0; cause < TRACE_BUBBLE_CAUSES; cause++) {
        (void)fprintf(html->file, "%s%.6f", cause == 0 ? "" : ",",
                      html->bubble.span_ns > 0.0 ? bubble->cause_ns[cause] / html->bubble.span_ns
                                                 : 0.0);
    }
    (void)fputs("],", html->file);
    put_spans(html, rank);
    TRY(put_memory(html, rank));
    (void)fputc('}', html->file);
    return STATUS_OK;
}

static void put_messages(const struct html *html)
{
    const struct trace_rank *ranks = html->run->ranks;

    (void)fputs("],\n\"messages\":[", html->file);
    for (size_t index = 0; index < html->message_count; index++) {
        const struct trace_message *message = &html->messages[index];

        (void)fprintf(html->file, "%s%td,%td,%td,%td", index == 0 ? "" : ",",
                      message->sender - ranks, message->send - message->sender->spans,
                      message->receiver - ranks, message->recv - message->receiver->spans);
    }
    (void)fputs("],\n", html->file);
}

static int64_t path_cause(const struct html *html, const void *items, size_t index)
{
    (void)html;
    return ((const struct trace_path_part *)items)[index].cause;
}

static int64_t path_rank(const struct html *html, const void *items, size_t index)
{
    return ((const struct trace_path_part *)items)[index].rank - html->run->ranks;
}

static int64_t path_span(const struct html *html, const void *items, size_t index)
{
    const struct trace_path_part *part = (const struct trace_path_part *)items + index;

    (void)html;
    return part->span - part->rank->spans;
}

static int64_t path_from(const struct html *html, const void *items, size_t index)
{
    const struct trace_path_part *part = (const struct trace_path_part *)items + index;

    return part->from == NULL ? -1 : part->from - html->run->ranks;
}

static int64_t path_begin(const struct html *html, const void *items, size_t index)
{
    const struct trace_path_part *parts = items;

    (void)html;
    return parts[index].begin_ns - (index == 0 ? 0 : parts[index - 1].begin_ns);
}

static int64_t path_duration(const struct html *html, const void *items, size_t index)
{
    const struct trace_path_part *part = (const struct trace_path_part *)items + index;

    (void)html;
    return part->end_ns - part->begin_ns;
}

static void put_path(const struct html *html)
{
    static const struct {
        const char *name;
        column_item item_of;
    } columns[] = {{"cause", path_cause}, {"rank", path_rank},   {"span", path_span},
                   {"from", path_from},   {"begin", path_begin}, {"duration", path_duration}};

    (void)fputs("\"path\":{", html->file);
    for (size_t column = 0; column < sizeof(columns) / sizeof(columns[0]); column++) {
        (void)fputs(column == 0 ? "" : ",\n", html->file);
        put_column(html, columns[column].name, html->path.parts, html->path.count,
                   columns[column].item_of);
    }
    (void)fputs("}}\n", html->file);
}

/* Names of kinds, tracks and causes have nothing to escape. */
static void put_names(const struct html *html)
{
    (void)fputs("\"kinds\":[", html->file);
    for (uint32_t kind = 0; kind < TRACE_KINDS; kind++) {
        (void)fprintf(html->file, "%s\"%s\"", kind == 0 ? "" : ",", trace_kind_name(kind));
    }
    (void)fputs("],\"tracks\":[", html->file);
    for (int track = 0; track < TRACE_TRACKS; track++) {
        (void)fprintf(html->file, "%s\"%s\"", track == 0 ? "" : ",",
                      trace_track_name((enum trace_track)track));
    }
    (void)fputs("],\"causes\":[", html->file);
    for (int cause = 0; cause < TRACE_BUBBLE_CAUSES; cause++) {
        (void)fprintf(html->file, "%s\"%s\"", cause == 0 ? "" : ",",
                      trace_bubble_text((enum trace_bubble_cause)cause));
    }
    (void)fputs("],\n", html->file);
}

/* The run's name inside a string of JSON inside an element: no tag can begin in it. */
static enum status put_name(const struct html *html)
{
    const char *run_name = html->run->name == NULL ? "" : html->run->name;
    size_t bytes = strlen(run_name) * ESCAPE_MOST_BYTES + 1;
    char *name = malloc(bytes);

    if (name == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu bytes for the run's name", bytes);
    }
    (void)escape_json(run_name, name, bytes);
    (void)fputs("{\"name\":\"", html->file);
    for (const char *at = name; *at != '\0'; at++) {
        (void)(*at == '<' ? fputs("\\u003c", html->file) : fputc(*at, html->file));
    }
    free(name);
    return STATUS_OK;
}

static enum status put_data(const struct html *html)
{
    TRY(put_name(html));
    (void)fprintf(html->file, "\",\"stages\":%d,\"bubble\":%.6f,\n", (int)html->summary.stages,
                  html->summary.bubble);
    put_names(html);
    (void)fputs("\"ranks\":[", html->file);
    for (size_t index = 0; index < html->run->count; index++) {
        TRY(put_rank(html, index));
    }
    put_messages(html);
    put_path(html);
    return STATUS_OK;
}

/* Line by line, because escaped text has no ends of lines. */
static enum status put_text(const struct html *html, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *line = malloc(bytes * (1 + ESCAPE_MOST_BYTES));

    if (line == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: %zu bytes of text", bytes);
    }
    while (*text != '\0') {
        size_t line_bytes = strcspn(text, "\n");
        char *escaped = line + bytes;

        memcpy(line, text, line_bytes);
        line[line_bytes] = '\0';
        (void)escape_xml(line, escaped, bytes * ESCAPE_MOST_BYTES);
        (void)fputs(escaped, html->file);
        text += line_bytes;
        if (*text == '\n') {
            (void)fputc('\n', html->file);
            text++;
        }
    }
    free(line);
    return STATUS_OK;
}

static enum status put_filling(const struct html *html, const char *mark, size_t mark_bytes)
{
    if (strncmp(mark, "title", mark_bytes) == 0) {
        return put_text(html, html->run->name == NULL || html->run->name[0] == '\0'
                                  ? "a run without a name"
                                  : html->run->name);
    }
    return strncmp(mark, "summary", mark_bytes) == 0 ? put_text(html, html->report)
                                                     : put_data(html);
}

/* The page with its marks filled in. */
static enum status put_page(const struct html *html)
{
    const char *at = page_text;
    const char *mark = strstr(at, "{{");

    while (mark != NULL) {
        const char *end = strstr(mark, "}}");

        (void)fwrite(at, 1, (size_t)(mark - at), html->file);
        TRY(put_filling(html, mark + 2, (size_t)(end - mark) - 2));
        at = end + 2;
        mark = strstr(at, "{{");
    }
    (void)fwrite(at, 1, page_text_bytes - (size_t)(at - page_text), html->file);
    return ferror(html->file) != 0 ? STATUS_ERR_IO : STATUS_OK;
}

static enum status make_report(struct html *html)
{
    size_t bytes = 0;
    enum status status = STATUS_OK;
    FILE *memory = open_memstream(&html->report, &bytes);

    if (memory == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: no memory for the page's text");
    }
    status = trace_report_print(html->run, memory);
    if (fclose(memory) != 0 && status >= 0) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "trace: no memory for the page's text");
    }
    return status;
}

static enum status put_file(struct html *html, const char *path)
{
    enum status status = STATUS_OK;

    html->file = fopen(path, "we");
    if (html->file == NULL) {
        return status_fail(STATUS_ERR_IO, "opening %s: %s", path, strerror(errno));
    }
    status = put_page(html);
    if (fclose(html->file) != 0 && status >= 0) {
        status = STATUS_ERR_IO;
    }
    return status == STATUS_ERR_IO
               ? status_fail(status, "writing the page %s: %s", path, strerror(errno))
               : status;
}

enum status trace_html_write(const struct trace_run *run, const char *path)
{
    struct html html = {.run = run};
    enum status status = STATUS_OK;

    TRY_OR(done, status, trace_summary_make(run, &html.summary));
    TRY_OR(done, status, trace_bubble_make(run, &html.bubble));
    TRY_OR(done, status, trace_path_make(run, &html.path));
    TRY_OR(done, status, trace_messages_find(run, &html.messages, &html.message_count));
    TRY_OR(done, status, make_report(&html));
    status = put_file(&html, path);
done:
    free(html.report);
    free(html.messages);
    trace_path_release(&html.path);
    trace_bubble_release(&html.bubble);
    trace_summary_release(&html.summary);
    return status;
}
