#include "scheduler/timeline.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/escape.h"
#include "scheduler/timeline_parts.h"

static void measure_span(struct timeline *timeline, const struct span *span)
{
    int32_t microbatch = span->args[TRACE_ARG_MICROBATCH];
    int32_t slices = span->args[TRACE_ARG_SLICES];
    int32_t step = span->args[TRACE_ARG_STEP];

    microbatch = slices > 0 ? microbatch / slices : microbatch;
    if (!timeline_opens_window(span)) {
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

        if (!timeline_draws(rank)) {
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
                ".critical{stroke:#c81e1e;stroke-width:1.6;fill:none}\n"
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

/* What is drawn: the steps of a run, or the size of a plan. */
static void draw_subject(const struct timeline *timeline)
{
    if (timeline->look->unit != NULL) {
        (void)fputs("simulated", timeline->file);
    } else if (timeline->first_step == timeline->last_step) {
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
}

static enum status draw_title(const struct timeline *timeline)
{
    const char *run_name = timeline->run->name == NULL ? "" : timeline->run->name;
    const char *title = timeline->look->title == NULL ? run_name : timeline->look->title;
    size_t text_bytes = strlen(title) * ESCAPE_MOST_BYTES + 1;
    char *text = malloc(text_bytes);

    if (text == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "timeline: %zu bytes for the title", text_bytes);
    }
    (void)escape_xml(title, text, text_bytes);
    (void)fprintf(timeline->file,
                  "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
                  "<text class=\"title\" x=\"24\" y=\"36\">%s</text>\n"
                  "<text class=\"talk\" x=\"24\" y=\"58\">",
                  text, text);
    free(text);
    draw_subject(timeline);
    if (timeline->summary.steps > 0 && timeline->look->unit != NULL) {
        (void)fprintf(timeline->file, " · makespan %.6g",
                      timeline->summary.span_ns / timeline->look->unit_ns);
    } else if (timeline->summary.steps > 0) {
        (void)fprintf(timeline->file, " · pipeline %.4g ms a step",
                      timeline->summary.span_ns / timeline->summary.steps / 1e6);
    }
    (void)fprintf(timeline->file, " · bubble %.1f%%</text>\n", 100.0 * timeline->summary.bubble);
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
        x += 90.0;
    }
    if (timeline->path.count > 0) {
        (void)fprintf(timeline->file,
                      "<rect class=\"critical\" x=\"%.1f\" y=\"74\" width=\"20\" height=\"10\" "
                      "rx=\"2\"/><text class=\"small\" x=\"%.1f\" y=\"83\">critical path</text>\n",
                      x, x + 26.0);
    }
}

/* Step of the axis: 1, 2 or 5 times a power of ten, 6 to 14 of them in the window. */
static double tick_of(double window)
{
    double tick = pow(10.0, floor(log10(window / 8.0)));

    if (window / tick > 28.0) {
        return 5.0 * tick;
    }
    return window / tick > 14.0 ? 2.0 * tick : tick;
}

static void draw_axis(const struct timeline *timeline)
{
    double window_ns = (double)(timeline->end_ns - timeline->begin_ns);
    double unit = window_ns < 2e6 ? 1e3 : window_ns < 2e10 ? 1e6 : 1e9;
    const char *unit_text = window_ns < 2e6 ? "µs" : window_ns < 2e10 ? "ms" : "s";
    double bottom = TOP + timeline_plot_height(timeline);
    double tick = 0.0;

    if (timeline->look->unit != NULL) {
        unit = timeline->look->unit_ns;
        unit_text = timeline->look->unit;
    }
    tick = tick_of(window_ns / unit);

    for (int index = 0; index * tick * unit <= window_ns; index++) {
        double x = LEFT + index * tick * unit * timeline->scale;

        (void)fprintf(timeline->file,
                      "<path class=\"grid\" d=\"M%.2f %dV%.1f\"/>"
                      "<text class=\"small middle\" x=\"%.2f\" y=\"%.1f\">%.6g</text>\n",
                      x, TOP - 8, bottom, x, bottom + 17.0, index * tick);
    }
    (void)fprintf(timeline->file,
                  "<text class=\"small middle\" x=\"%.1f\" y=\"%.1f\">time in %s</text>\n",
                  LEFT + (WIDTH - LEFT - RIGHT) / 2.0, bottom + 37.0, unit_text);
}

static void draw_row(const struct timeline *timeline, const struct trace_rank *rank, double bubble)
{
    double y = timeline_y(rank);

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

static enum status draw(const struct timeline *timeline)
{
    double height = TOP + timeline_plot_height(timeline) + FOOT;

    (void)fprintf(timeline->file,
                  "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                  "viewBox=\"0 0 %d %.0f\">\n",
                  WIDTH, height, WIDTH, height);
    draw_style(timeline->file);
    TRY(draw_title(timeline));
    draw_legend(timeline);
    for (size_t index = 0; index < timeline->run->count; index++) {
        if (timeline_draws(&timeline->run->ranks[index])) {
            draw_row(timeline, &timeline->run->ranks[index], timeline->summary.ranks[index].bubble);
        }
    }
    draw_axis(timeline);
    timeline_draw_inside(timeline);
    (void)fputs("</svg>\n", timeline->file);
    return ferror(timeline->file) ? STATUS_ERR_IO : STATUS_OK;
}

static enum status prepare(struct timeline *timeline)
{
    const struct trace_run *run = timeline->run;

    timeline->chunks = calloc(run->count + 1, sizeof(*timeline->chunks));
    if (timeline->chunks == NULL) {
        (void)status_fail(STATUS_ERR_NO_MEMORY, "timeline: chunks of %zu ranks", run->count);
        return STATUS_ERR_NO_MEMORY;
    }
    TRY(measure(timeline));
    TRY(trace_steps_find(run, &timeline->steps, &timeline->step_count));
    TRY(trace_summary_make(run, &timeline->summary));
    TRY(trace_messages_find(run, &timeline->messages, &timeline->message_count));
    return trace_path_make(run, &timeline->path);
}

static void release(struct timeline *timeline)
{
    trace_path_release(&timeline->path);
    trace_summary_release(&timeline->summary);
    free(timeline->messages);
    free(timeline->steps);
    for (size_t index = 0; timeline->chunks != NULL && index < timeline->run->count; index++) {
        trace_chunks_release(&timeline->chunks[index]);
    }
    free(timeline->chunks);
}

enum status timeline_print(const struct trace_run *run, const struct timeline_look *look, FILE *out)
{
    struct timeline timeline = {.run = run, .look = look, .file = out};
    enum status status = prepare(&timeline);

    if (status >= 0) {
        status = draw(&timeline);
    }
    release(&timeline);
    return status;
}

static enum status draw_file(struct timeline *timeline, const char *path)
{
    enum status status = STATUS_OK;

    timeline->file = fopen(path, "we");
    if (timeline->file == NULL) {
        return status_fail(STATUS_ERR_IO, "opening %s: %s", path, strerror(errno));
    }
    status = draw(timeline);
    if (fclose(timeline->file) != 0 && status >= 0) {
        status = STATUS_ERR_IO;
    }
    if (status == STATUS_ERR_IO) {
        return status_fail(status, "writing the timeline %s: %s", path, strerror(errno));
    }
    return status;
}

/* What cannot be drawn leaves no file. */
enum status timeline_write(const struct trace_run *run, const char *title, const char *path)
{
    const struct timeline_look look = {.title = title};
    struct timeline timeline = {.run = run, .look = &look};
    enum status status = prepare(&timeline);

    if (status >= 0) {
        status = draw_file(&timeline, path);
    }
    release(&timeline);
    return status;
}
