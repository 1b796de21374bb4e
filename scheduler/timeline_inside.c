#include <math.h>
#include <string.h>

#include "scheduler/timeline_parts.h"
#include "scheduler/trace_event.h"

bool timeline_draws(const struct trace_rank *rank)
{
    return rank->replica == 0;
}

bool timeline_is_bar(const struct span *span)
{
    return span->kind < TRACE_KINDS && span->kind != TRACE_SEND && span->kind != TRACE_RECV &&
           span->args[TRACE_ARG_EVALUATION] != 1;
}

bool timeline_opens_window(const struct span *span)
{
    return timeline_is_bar(span) && span->kind != TRACE_EVALUATE;
}

double timeline_x(const struct timeline *timeline, int64_t ns)
{
    double x = LEFT + (double)(ns - timeline->begin_ns) * timeline->scale;

    return fmin(fmax(x, LEFT), WIDTH - RIGHT);
}

double timeline_y(const struct trace_rank *rank)
{
    return TOP + (double)rank->pipeline_rank * ROW_HEIGHT;
}

double timeline_plot_height(const struct timeline *timeline)
{
    return (double)timeline->rows * ROW_HEIGHT - (ROW_HEIGHT - BAR_HEIGHT) / 2.0;
}

static void draw_number(const struct timeline *timeline, const struct span *span, double x,
                        double y, double width)
{
    char number[24];
    double digits = (double)trace_event_number(span, number, sizeof(number));

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

/* "2F3, 1.250 ms, step 7", or of a plan "2F3, 0.5 units of the costs". */
static void put_title(const struct timeline *timeline, const struct span *span)
{
    double took = (double)(span->end_ns - span->begin_ns);
    char name[48];

    (void)trace_event_name(span, name, sizeof(name));
    if (timeline->look->unit != NULL) {
        (void)fprintf(timeline->file, "<title>%s, %.6g %s</title>", name,
                      took / timeline->look->unit_ns, timeline->look->unit);
    } else {
        (void)fprintf(timeline->file, "<title>%s, %.3f ms, step %d</title>", name, took / 1e6,
                      (int)span->args[TRACE_ARG_STEP]);
    }
}

static void draw_bar(const struct timeline *timeline, const struct trace_rank *rank,
                     const struct span *span)
{
    static const char *const class_names[TRACE_KINDS] = {
#define X(kind, colour, label) [TRACE_##kind] = #kind,
        COLOUR_TABLE(X)
#undef X
    };
    double x = timeline_x(timeline, span->begin_ns);
    bool thin = span->kind == TRACE_SYNC;
    /* The head's gradient leaves in no time; it is shown all the same. */
    double width = fmax(timeline_x(timeline, span->end_ns) - x, thin ? 2.0 : 0.0);
    double y = timeline_y(rank) + (thin ? BAR_HEIGHT + 2.0 : 0.0);
    /* A hair of white between neighbours, as long as both can be seen. */
    double gap = width > 3.0 ? 0.6 : 0.0;
    double shade = shade_of(&timeline->chunks[rank - timeline->run->ranks], span);
    char opacity[32] = "";

    if (shade < 1.0) {
        (void)snprintf(opacity, sizeof(opacity), " fill-opacity=\"%.2f\"", shade);
    }
    (void)fprintf(timeline->file,
                  "<rect class=\"bar %s\"%s x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" "
                  "rx=\"%d\">",
                  class_names[span->kind], opacity, x, y, width - gap,
                  thin ? SYNC_HEIGHT : BAR_HEIGHT, width > 6.0 ? 2 : 0);
    put_title(timeline, span);
    (void)fputs("</rect>\n", timeline->file);
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

        if (timeline_is_bar(span) && inside && (span->kind == TRACE_WAIT) == waits) {
            draw_bar(timeline, rank, span);
        }
    }
}

static void draw_message(const struct timeline *timeline, const struct trace_message *message)
{
    bool down = message->receiver->pipeline_rank > message->sender->pipeline_rank;
    double from_y = timeline_y(message->sender) + (down ? BAR_HEIGHT : 0.0);
    double to_y = timeline_y(message->receiver) + (down ? 0.0 : BAR_HEIGHT);

    if (!timeline_draws(message->sender) || message->send->args[TRACE_ARG_EVALUATION] == 1) {
        return;
    }
    (void)fprintf(timeline->file,
                  "<path class=\"message\" marker-end=\"url(#tip)\" d=\"M%.2f %.1fL%.2f %.1f\"/>\n",
                  timeline_x(timeline, message->send->begin_ns), from_y,
                  timeline_x(timeline, message->recv->end_ns), to_y);
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

/* A dashed line and a label where each step begins. */
static void draw_steps(const struct timeline *timeline)
{
    for (size_t index = 0; index < timeline->step_count; index++) {
        double x = timeline_x(timeline, timeline->steps[index].begin_ns);

        (void)fprintf(timeline->file,
                      "<path class=\"cut\" d=\"M%.2f %dV%.1f\"/>"
                      "<text class=\"small\" x=\"%.2f\" y=\"%d\">step %d</text>\n",
                      x, TOP - 22, TOP + timeline_plot_height(timeline), x + 5.0, TOP - 14,
                      (int)timeline->steps[index].step);
    }
}

/* What took its time on the path, framed; the way from one stage to another as a line. */
static void draw_part(const struct timeline *timeline, const struct trace_path_part *part)
{
    double left = timeline_x(timeline, part->begin_ns);
    double right = timeline_x(timeline, part->end_ns);
    double y = timeline_y(part->rank);
    bool down = part->from != NULL && part->rank->pipeline_rank > part->from->pipeline_rank;

    if (part->from != NULL && timeline_draws(part->from)) {
        (void)fprintf(timeline->file, "<path class=\"critical\" d=\"M%.2f %.1fL%.2f %.1f\"/>\n",
                      left, timeline_y(part->from) + (down ? BAR_HEIGHT : 0.0), right,
                      y + (down ? 0.0 : BAR_HEIGHT));
    } else if (right - left > 2.0 * PATH_EDGE) {
        (void)fprintf(timeline->file,
                      "<rect class=\"critical\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                      "height=\"%.1f\" rx=\"2\"/>\n",
                      left + PATH_EDGE / 2.0, y + PATH_EDGE / 2.0, right - left - PATH_EDGE,
                      BAR_HEIGHT - PATH_EDGE);
    }
}

static void draw_path(const struct timeline *timeline)
{
    for (size_t index = 0; index < timeline->path.count; index++) {
        if (timeline_draws(timeline->path.parts[index].rank)) {
            draw_part(timeline, &timeline->path.parts[index]);
        }
    }
}

void timeline_draw_inside(const struct timeline *timeline)
{
    for (size_t index = 0; index < timeline->run->count; index++) {
        const struct trace_rank *rank = &timeline->run->ranks[index];

        if (timeline_draws(rank)) {
            draw_bars(timeline, rank, true);
            draw_bars(timeline, rank, false);
        }
    }
    if (timeline->look->unit == NULL) {
        draw_steps(timeline);
    }
    draw_messages(timeline);
    draw_path(timeline);
}
