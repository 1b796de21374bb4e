#include "scheduler/timeline.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/escape.h"
#include "scheduler/trace_chunk.h"
#include "scheduler/trace_event.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_summary.h"

/* Pixels. */
#define WIDTH       1200
#define LEFT        92
#define RIGHT       76
#define TOP         126
#define BAR_HEIGHT  34
#define SYNC_HEIGHT 5
#define ROW_HEIGHT  62
#define FOOT        58

struct timeline {
    const struct trace_run *run;
    struct trace_summary summary;   /* owns */
    struct trace_message *messages; /* owns */
    struct trace_chunks *chunks;    /* owns; by rank, as in the run */
    size_t message_count;
    FILE *file; /* borrows */
    int32_t rows;
    int32_t microbatches;
    int32_t most_chunks; /* of a rank */
    int32_t first_step;
    int32_t last_step;
    int64_t begin_ns; /* left edge of the window */
    int64_t end_ns;   /* right edge */
    double scale;     /* pixels a nanosecond */
};

/* kind, colour, label in the legend; the order of the legend. */
#define COLOUR_TABLE(X)                  \
    X(F, "#7db2f5", "forward")           \
    X(I, "#fdb863", "input gradient")    \
    X(W, "#86cf8f", "weight gradient")   \
    X(B, "#f4938a", "backward")          \
    X(OPTIMIZER, "#b99cf0", "optimizer") \
    X(STEP, "#bcc6d2", "step")           \
    X(REDUCE, "#6fcfc3", "reduction")    \
    X(GATHER, "#9fd8e8", "gathering")    \
    X(SYNC, "#ee7fb0", "embedding sync") \
    X(DATA, "#d2b48c", "data")           \
    X(EVALUATE, "#dccbe8", "evaluation") \
    X(WAIT, "#eceff3", "wait")

static bool is_drawn(const struct trace_rank *rank)
{
    return rank->replica == 0;
}

/* What becomes a rectangle. Evaluation's own actions are hidden under its one bar. */
static bool is_bar(const struct span *span)
{
    return span->kind < TRACE_KINDS && span->kind != TRACE_SEND && span->kind != TRACE_RECV &&
           span->args[TRACE_ARG_EVALUATION] != 1;
}

static bool opens_window(const struct span *span)
{
    return is_bar(span) && span->kind != TRACE_EVALUATE;
}

static double x_of(const struct timeline *timeline, int64_t ns)
{
    double x = LEFT + (double)(ns - timeline->begin_ns) * timeline->scale;

    return fmin(fmax(x, LEFT), WIDTH - RIGHT);
}

static double y_of(const struct trace_rank *rank)
{
    return TOP + (double)rank->pipeline_rank * ROW_HEIGHT;
}

static void measure_span(struct timeline *timeline, const struct span *span)
{
    int32_t microbatch = span->args[TRACE_ARG_MICROBATCH];
    int32_t step = span->args[TRACE_ARG_STEP];

    if (!opens_window(span)) {
        return;
    }
    timeline->begin_ns = span->begin_ns < timeline->begin_ns ? span->begin_ns : timeline->begin_ns;
    timeline->end_ns = span->end_ns > timeline->end_ns ? span->end_ns : timeline->end_ns;
    timeline->first_step = step < timeline->first_step ? step : timeline->first_step;
    timeline->last_step = step > timeline->last_step ? step : timeline->last_step;
    if (microbatch >= timeline->microbatches && microbatch < INT32_MAX) {
        timeline->microbatches = microbatch + 1;
    }
}

static enum status measure(struct timeline *timeline)
{
    timeline->begin_ns = INT64_MAX;
    timeline->end_ns = INT64_MIN;
    timeline->first_step = INT32_MAX;
    timeline->last_step = -1;
    for (size_t index = 0; index < timeline->run->count; index++) {
        const struct trace_rank *rank = &timeline->run->ranks[index];

        if (!is_drawn(rank)) {
            continue;
        }
        for (size_t item = 0; item < rank->count; item++) {
            measure_span(timeline, &rank->spans[item]);
        }
        TRY(trace_chunks_find(rank, &timeline->chunks[index]));
        if (timeline->chunks[index].count > timeline->most_chunks) {
            timeline->most_chunks = timeline->chunks[index].count;
        }
    }
    if (timeline->begin_ns >= timeline->end_ns) {
        return status_fail(STATUS_ERR_REFUSED, "timeline: the chosen steps hold nothing to draw");
    }
    timeline->rows = trace_run_stages(timeline->run);
    timeline->scale = (WIDTH - LEFT - RIGHT) / (double)(timeline->end_ns - timeline->begin_ns);
    return STATUS_OK;
}

/* Height of the plot, from the first row's bars to the axis. */
static double plot_height(const struct timeline *timeline)
{
    return (double)timeline->rows * ROW_HEIGHT - (ROW_HEIGHT - BAR_HEIGHT) / 2.0;
}

static void draw_style(FILE *file)
{
    (void)fputs("<style>\n"
                "text{font-family:Inter,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2933}\n"
                ".title{font-size:20px;font-weight:600}.talk{font-size:13px;fill:#52606d}\n"
                ".stage{font-size:14px;font-weight:600}.small{font-size:11px;fill:#52606d}\n"
                ".number{font-size:11px;text-anchor:middle}.tight{font-size:8.5px}\n"
                ".grid{stroke:#e4e7eb;stroke-width:1}.row{fill:#f8f9fb}\n"
                ".cut{stroke:#9aa5b1;stroke-width:1;stroke-dasharray:3 3}\n"
                ".message{stroke:#52606d;stroke-width:0.9;fill:none;opacity:0.6}\n"
                ".faint .message{opacity:0.3;stroke-width:0.6;marker-end:none}\n"
                ".end{fill:#52606d}.right{text-anchor:end}.middle{text-anchor:middle}\n",
                file);
#define X(kind, colour, label) (void)fprintf(file, "." #kind "{fill:" colour "}");
    COLOUR_TABLE(X)
#undef X
    (void)fputs("\n</style>\n<defs><marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" "
                "markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">"
                "<path class=\"end\" d=\"M0 0.5L6 3L0 5.5z\"/></marker></defs>\n",
                file);
}

static enum status draw_title(const struct timeline *timeline, const char *title)
{
    size_t text_bytes = strlen(title) * ESCAPE_MOST_BYTES + 1;
    char *text = malloc(text_bytes);

    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "timeline: %zu bytes for the title", text_bytes);
    }
    (void)escape_xml(title, text, text_bytes);
    (void)fprintf(timeline->file,
                  "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
                  "<text class=\"title\" x=\"24\" y=\"36\">%s</text>\n",
                  text, text);
    free(text);
    (void)fprintf(timeline->file, "<text class=\"talk\" x=\"24\" y=\"58\">");
    if (timeline->first_step == timeline->last_step) {
        (void)fprintf(timeline->file, "step %d", (int)timeline->first_step);
    } else {
        (void)fprintf(timeline->file, "steps %d to %d", (int)timeline->first_step,
                      (int)timeline->last_step);
    }
    (void)fprintf(timeline->file, " · %d stage%s · %d micro-batch%s", (int)timeline->rows,
                  timeline->rows == 1 ? "" : "s", (int)timeline->microbatches,
                  timeline->microbatches == 1 ? "" : "es");
    if (timeline->most_chunks > 1) {
        (void)fprintf(timeline->file, " · %d chunks a stage, the later the paler",
                      (int)timeline->most_chunks);
    }
    if (timeline->summary.steps > 0) {
        (void)fprintf(timeline->file, " · pipeline %.4g ms a step · bubble %.1f%%",
                      timeline->summary.span_ns / timeline->summary.steps / 1e6,
                      100.0 * timeline->summary.bubble);
    }
    (void)fprintf(timeline->file, "</text>\n");
    return STATUS_OK;
}

static bool has_kind(const struct timeline *timeline, uint32_t kind)
{
    for (size_t index = 0; index < timeline->summary.count; index++) {
        if (timeline->summary.ranks[index].kind_ns[kind] > 0.0) {
            return true;
        }
    }
    return false;
}

/* Only the kinds that the picture holds. */
static void draw_legend(const struct timeline *timeline)
{
    static const struct {
        uint32_t kind;
        const char *label;
        const char *class_name;
    } entries[] = {
#define X(kind, colour, label) {TRACE_##kind, label, #kind},
        COLOUR_TABLE(X)
#undef X
    };
    double x = 24.0;

    for (size_t index = 0; index < sizeof(entries) / sizeof(entries[0]); index++) {
        if (!has_kind(timeline, entries[index].kind)) {
            continue;
        }
        (void)fprintf(timeline->file,
                      "<rect class=\"%s\" x=\"%.1f\" y=\"73\" width=\"14\" height=\"12\" rx=\"2\"/>"
                      "<text class=\"small\" x=\"%.1f\" y=\"83\">%s</text>\n",
                      entries[index].class_name, x, x + 19.0, entries[index].label);
        x += 36.0 + 6.1 * (double)strlen(entries[index].label);
    }
    if (timeline->message_count > 0) {
        (void)fprintf(timeline->file,
                      "<path class=\"message\" marker-end=\"url(#tip)\" d=\"M%.1f 79h22\"/>"
                      "<text class=\"small\" x=\"%.1f\" y=\"83\">message</text>\n",
                      x, x + 27.0);
    }
}

/* Step of the axis: 1, 2 or 5 times a power of ten, 6 to 14 of them in the window. */
static double tick_ns(double window_ns)
{
    double tick = pow(10.0, floor(log10(window_ns / 8.0)));

    if (window_ns / tick > 28.0) {
        return 5.0 * tick;
    }
    return window_ns / tick > 14.0 ? 2.0 * tick : tick;
}

static void draw_axis(const struct timeline *timeline)
{
    double window_ns = (double)(timeline->end_ns - timeline->begin_ns);
    double tick = tick_ns(window_ns);
    double unit = window_ns < 2e6 ? 1e3 : window_ns < 2e10 ? 1e6 : 1e9;
    const char *unit_text = window_ns < 2e6 ? "µs" : window_ns < 2e10 ? "ms" : "s";
    double bottom = TOP + plot_height(timeline);

    for (int index = 0; index * tick <= window_ns; index++) {
        double x = LEFT + index * tick * timeline->scale;

        (void)fprintf(timeline->file,
                      "<path class=\"grid\" d=\"M%.2f %dV%.1f\"/>"
                      "<text class=\"small middle\" x=\"%.2f\" y=\"%.1f\">%.6g</text>\n",
                      x, TOP - 8, bottom, x, bottom + 17.0, index * tick / unit);
    }
    (void)fprintf(timeline->file,
                  "<text class=\"small middle\" x=\"%.1f\" y=\"%.1f\">time in %s</text>\n",
                  LEFT + (WIDTH - LEFT - RIGHT) / 2.0, bottom + 37.0, unit_text);
}

static void draw_row(const struct timeline *timeline, const struct trace_rank *rank, double bubble)
{
    double y = y_of(rank);

    (void)fprintf(timeline->file,
                  "<rect class=\"row\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>"
                  "<text class=\"stage\" x=\"24\" y=\"%.1f\">stage %d</text>"
                  "<text class=\"small\" x=\"24\" y=\"%.1f\">rank %d</text>"
                  "<text class=\"stage right\" x=\"%d\" y=\"%.1f\">%.1f%%</text>"
                  "<text class=\"small right\" x=\"%d\" y=\"%.1f\">bubble</text>\n",
                  LEFT, y, WIDTH - LEFT - RIGHT, BAR_HEIGHT, y + 15.0, (int)rank->pipeline_rank,
                  y + 30.0, (int)rank->rank, WIDTH - 20, y + 15.0, 100.0 * bubble, WIDTH - 20,
                  y + 30.0);
}

static void draw_number(const struct timeline *timeline, const struct span *span, double x,
                        double y, double width)
{
    char number[16];
    double digits =
        (double)snprintf(number, sizeof(number), "%d", (int)span->args[TRACE_ARG_MICROBATCH]);

    if (width >= 6.6 * digits + 3.0) {
        (void)fprintf(timeline->file, "<text class=\"number\" x=\"%.2f\" y=\"%.1f\">%s</text>\n",
                      x + width / 2.0, y + BAR_HEIGHT / 2.0 + 4.0, number);
    } else if (width >= 5.0 * digits + 1.0) {
        (void)fprintf(timeline->file,
                      "<text class=\"number tight\" x=\"%.2f\" y=\"%.1f\">%s</text>\n",
                      x + width / 2.0, y + BAR_HEIGHT / 2.0 + 3.0, number);
    }
}

/* The first chunk of a rank has the full colour. */
static double shade_of(const struct trace_chunks *chunks, const struct span *span)
{
    int32_t chunk = trace_kind_is_compute(span->kind)
                        ? trace_chunks_of(chunks, span->args[TRACE_ARG_VIRTUAL_STAGE])
                        : 0;

    return chunk > 0 ? 1.0 - 0.6 * chunk / chunks->count : 1.0;
}

static void draw_bar(const struct timeline *timeline, const struct trace_rank *rank,
                     const struct span *span)
{
    static const char *const class_names[TRACE_KINDS] = {
#define X(kind, colour, label) [TRACE_##kind] = #kind,
        COLOUR_TABLE(X)
#undef X
    };
    double x = x_of(timeline, span->begin_ns);
    bool thin = span->kind == TRACE_SYNC;
    /* The head's gradient leaves in no time; it is shown all the same. */
    double width = fmax(x_of(timeline, span->end_ns) - x, thin ? 2.0 : 0.0);
    double y = y_of(rank) + (thin ? BAR_HEIGHT + 2.0 : 0.0);
    /* A hair of white between neighbours, as long as both can be seen. */
    double gap = width > 3.0 ? 0.6 : 0.0;
    double shade = shade_of(&timeline->chunks[rank - timeline->run->ranks], span);
    char opacity[32] = "";
    char name[48];

    (void)trace_event_name(span, name, sizeof(name));
    if (shade < 1.0) {
        (void)snprintf(opacity, sizeof(opacity), " fill-opacity=\"%.2f\"", shade);
    }
    (void)fprintf(timeline->file,
                  "<rect class=\"bar %s\"%s x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" "
                  "rx=\"%d\"><title>%s, %.3f ms, step %d</title></rect>\n",
                  class_names[span->kind], opacity, x, y, width - gap,
                  thin ? SYNC_HEIGHT : BAR_HEIGHT, width > 6.0 ? 2 : 0, name,
                  (double)(span->end_ns - span->begin_ns) / 1e6, (int)span->args[TRACE_ARG_STEP]);
    if (trace_kind_is_compute(span->kind) && span->args[TRACE_ARG_MICROBATCH] >= 0) {
        draw_number(timeline, span, x, y, width);
    }
}

/* Waits first, so that no bar is hidden by one. */
static void draw_bars(const struct timeline *timeline, const struct trace_rank *rank, bool waits)
{
    for (size_t index = 0; index < rank->count; index++) {
        const struct span *span = &rank->spans[index];
        bool inside = span->begin_ns < timeline->end_ns && span->end_ns >= timeline->begin_ns;

        if (is_bar(span) && inside && (span->kind == TRACE_WAIT) == waits) {
            draw_bar(timeline, rank, span);
        }
    }
}

static void draw_message(const struct timeline *timeline, const struct trace_message *message)
{
    bool down = message->receiver->pipeline_rank > message->sender->pipeline_rank;
    double from_y = y_of(message->sender) + (down ? BAR_HEIGHT : 0.0);
    double to_y = y_of(message->receiver) + (down ? 0.0 : BAR_HEIGHT);

    if (!is_drawn(message->sender) || message->send->args[TRACE_ARG_EVALUATION] == 1) {
        return;
    }
    (void)fprintf(timeline->file,
                  "<path class=\"message\" marker-end=\"url(#tip)\" d=\"M%.2f %.1fL%.2f %.1f\"/>\n",
                  x_of(timeline, message->send->begin_ns), from_y,
                  x_of(timeline, message->recv->end_ns), to_y);
}

/* Arrows that stand closer than a few pixels would hide the picture: they are faint then, and
 * without heads. */
static void draw_messages(const struct timeline *timeline)
{
    double gaps = timeline->rows > 1 ? timeline->rows - 1.0 : 1.0;
    double spacing = (WIDTH - LEFT - RIGHT) * gaps / ((double)timeline->message_count + 1.0);

    (void)fprintf(timeline->file, "<g%s>\n", spacing < 9.0 ? " class=\"faint\"" : "");
    for (size_t index = 0; index < timeline->message_count; index++) {
        draw_message(timeline, &timeline->messages[index]);
    }
    (void)fputs("</g>\n", timeline->file);
}

/* Begin of a step on one rank, INT64_MAX where the rank has nothing of it. */
static int64_t step_begin(const struct trace_rank *rank, int32_t step)
{
    for (size_t item = 0; item < rank->count; item++) {
        const struct span *span = &rank->spans[item];

        if (span->args[TRACE_ARG_STEP] == step && opens_window(span)) {
            return span->begin_ns; /* spans stand in the order of their begins */
        }
    }
    return INT64_MAX;
}

/* A dashed line and a label where the first of the drawn ranks begins each step. */
static void draw_steps(const struct timeline *timeline)
{
    for (int32_t step = timeline->first_step; step <= timeline->last_step; step++) {
        int64_t begin_ns = INT64_MAX;

        for (size_t index = 0; index < timeline->run->count; index++) {
            const struct trace_rank *rank = &timeline->run->ranks[index];
            int64_t own_ns = is_drawn(rank) ? step_begin(rank, step) : INT64_MAX;

            begin_ns = own_ns < begin_ns ? own_ns : begin_ns;
        }
        if (begin_ns != INT64_MAX) {
            (void)fprintf(timeline->file,
                          "<path class=\"cut\" d=\"M%.2f %dV%.1f\"/>"
                          "<text class=\"small\" x=\"%.2f\" y=\"%d\">step %d</text>\n",
                          x_of(timeline, begin_ns), TOP - 22, TOP + plot_height(timeline),
                          x_of(timeline, begin_ns) + 5.0, TOP - 14, (int)step);
        }
    }
}

static enum status draw(const struct timeline *timeline, const char *title)
{
    double height = TOP + plot_height(timeline) + FOOT;

    (void)fprintf(timeline->file,
                  "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                  "viewBox=\"0 0 %d %.0f\">\n",
                  WIDTH, height, WIDTH, height);
    draw_style(timeline->file);
    TRY(draw_title(timeline, title));
    draw_legend(timeline);
    for (size_t index = 0; index < timeline->run->count; index++) {
        if (is_drawn(&timeline->run->ranks[index])) {
            draw_row(timeline, &timeline->run->ranks[index], timeline->summary.ranks[index].bubble);
        }
    }
    draw_axis(timeline);
    for (size_t index = 0; index < timeline->run->count; index++) {
        const struct trace_rank *rank = &timeline->run->ranks[index];

        if (is_drawn(rank)) {
            draw_bars(timeline, rank, true);
            draw_bars(timeline, rank, false);
        }
    }
    draw_steps(timeline);
    draw_messages(timeline);
    (void)fputs("</svg>\n", timeline->file);
    return ferror(timeline->file) ? STATUS_ERR_IO : STATUS_OK;
}

static enum status draw_file(struct timeline *timeline, const char *title, const char *path)
{
    enum status status = STATUS_OK;

    timeline->file = fopen(path, "we");
    if (timeline->file == NULL) {
        return status_fail(STATUS_ERR_IO, "opening %s: %s", path, strerror(errno));
    }
    status = draw(timeline, title);
    if (fclose(timeline->file) != 0 && status >= 0) {
        status = STATUS_ERR_IO;
    }
    if (status == STATUS_ERR_IO) {
        return status_fail(status, "writing the timeline %s: %s", path, strerror(errno));
    }
    return status;
}

enum status timeline_write(const struct trace_run *run, const char *title, const char *path)
{
    struct timeline timeline = {.run = run};
    enum status status = STATUS_OK;

    if (title == NULL) {
        title = run->name == NULL ? "" : run->name;
    }
    timeline.chunks = calloc(run->count + 1, sizeof(*timeline.chunks));
    if (timeline.chunks == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "timeline: chunks of %zu ranks", run->count);
    }
    TRY_OR(done, status, measure(&timeline));
    TRY_OR(done, status, trace_summary_make(run, &timeline.summary));
    TRY_OR(done, status, trace_messages_find(run, &timeline.messages, &timeline.message_count));
    status = draw_file(&timeline, title, path);
done:
    trace_summary_release(&timeline.summary);
    free(timeline.messages);
    for (size_t index = 0; index < run->count; index++) {
        trace_chunks_release(&timeline.chunks[index]);
    }
    free(timeline.chunks);
    return status;
}
