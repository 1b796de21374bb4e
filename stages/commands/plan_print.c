#include "stages/commands/plan_print.h"

#include <jansson.h>

#include "scheduler/bubble_formula.h"
#include "scheduler/plan_chart.h"
#include "scheduler/plan_text.h"
#include "scheduler/plan_trace.h"
#include "scheduler/timeline.h"

/* More digits would show how 0.1 is stored, fewer would round costs that were measured. */
#define JSON_DIGITS 15

/* Beyond as many ranks a list or a picture says less than its largest value. */
#define MOST_LISTED_RANKS  32
#define MOST_CHARTED_RANKS 64

static json_t *json_lines(const struct plan *plan)
{
    json_t *lines = json_array();
    char text[32];
    int32_t rank;
    int32_t i;

    for (rank = 0; lines != NULL && rank < plan->shape.ranks; rank++) {
        json_t *line = json_array();

        for (i = 0; i < plan->lines[rank].count; i++) {
            (void)action_print(&plan->lines[rank].actions[i], text, sizeof(text));
            if (json_array_append_new(line, json_string(text)) != 0) {
                json_decref(line);
                json_decref(lines);
                return NULL;
            }
        }
        if (json_array_append_new(lines, line) != 0) {
            json_decref(lines);
            return NULL;
        }
    }
    return lines;
}

static json_t *json_peaks(const double *peaks, int32_t count)
{
    json_t *array = json_array();
    int32_t i;

    for (i = 0; array != NULL && i < count; i++) {
        if (json_array_append_new(array, json_real(peaks[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *json_placement(const struct plan *plan)
{
    json_t *array = json_array();
    int32_t stage;

    for (stage = 0; array != NULL && stage < plan_stages(plan); stage++) {
        if (json_array_append_new(array, json_integer(plan->rank_of[stage])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* For each kind the bytes of each rank. */
static json_t *json_traffic(const struct plan_traffic *traffic)
{
    json_t *kinds = json_object();

    for (int kind = 0; kinds != NULL && kind < TRAFFIC_KINDS; kind++) {
        json_t *bytes = json_array();
        int failed = bytes == NULL ? -1 : 0;

        for (int32_t rank = 0; failed == 0 && rank < traffic->count; rank++) {
            failed = json_array_append_new(
                bytes, json_integer((json_int_t)traffic->ranks[rank].bytes[kind]));
        }
        if (json_object_set_new(kinds, traffic_key((enum traffic_kind)kind), bytes) != 0 ||
            failed != 0) {
            json_decref(kinds);
            return NULL;
        }
    }
    return kinds;
}

static json_t *json_bytes(const struct plan_memory *memory, int kind)
{
    json_t *bytes = json_array();

    for (int32_t rank = 0; bytes != NULL && rank < memory->count; rank++) {
        const struct memory_table *table = &memory->ranks[rank];
        size_t number = kind < MEMORY_KINDS ? table->bytes[kind] : table->total_bytes;

        if (json_array_append_new(bytes, json_integer((json_int_t)number)) != 0) {
            json_decref(bytes);
            return NULL;
        }
    }
    return bytes;
}

static json_t *json_state_each(const struct plan_memory *memory)
{
    const double *each = memory->state_each;

    return json_pack("[f, f, f, f]", each[0], each[1], each[2], each[3]);
}

/* For each kind, and the total, the bytes of each rank; the bytes of state a parameter of the
 * largest rank by ZeRO stage. */
static json_t *json_memory(const struct plan_memory *memory)
{
    int64_t limit = memory->config->train.memory_limit;
    json_t *object =
        json_pack("{s:o, s:i, s:o}", "limit", limit > 0 ? json_integer(limit) : json_null(),
                  "largest_rank", memory->largest, "state_each", json_state_each(memory));

    for (int kind = 0; object != NULL && kind <= MEMORY_KINDS; kind++) {
        const char *key = kind < MEMORY_KINDS ? memory_key((enum memory_kind)kind) : "total";

        if (json_object_set_new(object, key, json_bytes(memory, kind)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* At the mean costs; the bubble is null where no closed form holds for them. */
static json_t *json_formula(const struct plan_print *print)
{
    struct bubble_formula formula;

    bubble_formula_find(&print->compute->shape, print->F, print->I, print->W, &formula);
    return json_pack("{s:s?, s:s?, s:o}", "text", formula.text, "limit", formula.limit, "bubble",
                     formula.text != NULL && formula.limit == NULL ? json_real(formula.bubble)
                                                                   : json_null());
}

/* Takes what it is given; NULL where memory ran out on the way. */
static json_t *json_plan(const struct plan_print *print)
{
    const struct plan_shape *shape = &print->compute->shape;
    const struct plan_report *report = print->report;
    const struct simulation *simulation = &report->simulation;
    json_t *costs = json_pack("{s:f, s:f, s:f, s:f}", "F", print->F, "I", print->I, "W", print->W,
                              "c", print->message);
    json_t *peak = json_pack("{s:o, s:o}", "w0", json_peaks(report->peak_w0, shape->ranks), "wall",
                             json_peaks(report->peak_wall, shape->ranks));

    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:b, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:o, s:I, "
                     "s:o, s:i, s:i, s:o, "
                     "s:o}",
                     "schedule", schedule_text(shape->schedule), "p", shape->ranks, "m",
                     shape->microbatches / plan_slices(print->compute), "v", shape->virtual_stages,
                     "sequence_slices", plan_slices(print->compute), "early_send",
                     shape->early_send ? 1 : 0, "placement", json_placement(print->compute),
                     "costs", costs, "makespan", simulation->makespan, "ideal", simulation->ideal,
                     "bubble", simulation->bubble, "span_bubble", simulation->span_bubble,
                     "bubble_ratio", report->bubble_ratio, "peak", peak, "messages",
                     (json_int_t)report->messages, "formula", json_formula(print), "min_depth",
                     report->min_depth, "d_perf", report->perf_depth, "ranks",
                     json_lines(print->compute), "lowered", json_lines(print->lowered));
}

/* Without a model nothing has a size. */
static bool has_memory(const struct plan_print *print)
{
    return print->memory != NULL && print->memory->count > 0;
}

enum status plan_print_json(const struct plan_print *print, FILE *out)
{
    json_t *root = json_plan(print);
    bool failed = root == NULL;
    int written;

    if (!failed && print->traffic->count > 0) {
        failed = json_object_set_new(root, "traffic", json_traffic(print->traffic)) != 0;
    }
    if (!failed && has_memory(print)) {
        failed = json_object_set_new(root, "memory", json_memory(print->memory)) != 0;
    }
    if (failed) {
        json_decref(root);
        root = NULL;
    }
    if (root == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "plan: no memory for its JSON form");
    }
    written = json_dumpf(root, out, JSON_REAL_PRECISION(JSON_DIGITS) | JSON_COMPACT);
    json_decref(root);
    if (written != 0 || fputc('\n', out) == EOF) {
        return status_fail(STATUS_ERR_IO, "plan: writing its JSON form failed");
    }
    return STATUS_OK;
}

static void print_peaks(const double *peaks, int32_t ranks, FILE *out)
{
    double largest = 0.0;
    int32_t rank;

    for (rank = 0; rank < ranks; rank++) {
        largest = peaks[rank] > largest ? peaks[rank] : largest;
        if (ranks <= MOST_LISTED_RANKS) {
            (void)fprintf(out, " %g", peaks[rank]);
        }
    }
    if (ranks > MOST_LISTED_RANKS) {
        (void)fprintf(out, " at most %g", largest);
    }
}

static void print_depths(const struct plan_print *print, const char *prefix, FILE *out)
{
    const struct plan_report *report = print->report;
    int32_t depth = print->lowered->shape.lane_depth;

    if (report->min_depth == 0) {
        (void)fprintf(out,
                      "%smessages    %lld\n%slane depth  %d; the least that is enough is not "
                      "looked for in a plan of this size\n",
                      prefix, (long long)report->messages, prefix, depth);
        return;
    }
    (void)fprintf(out, "%smessages    %lld, no deadlock with %d landing buffer%s a lane or more\n",
                  prefix, (long long)report->messages, report->min_depth,
                  report->min_depth == 1 ? "" : "s");
    (void)fprintf(out, "%slane depth  %d; %s %d\n", prefix, depth,
                  report->perf_depth <= depth ? "nothing waits for more from"
                                              : "the makespan falls until",
                  report->perf_depth);
}

enum status plan_print_summary(const struct plan_print *print, const char *prefix, FILE *out)
{
    const struct plan_shape *shape = &print->compute->shape;
    const struct plan_report *report = print->report;
    const struct simulation *simulation = &report->simulation;

    (void)fprintf(out, "%s%s, pp %d, %d micro-batches", prefix, schedule_text(shape->schedule),
                  shape->ranks, shape->microbatches / plan_slices(print->compute));
    if (plan_slices(print->compute) > 1) {
        (void)fprintf(out, " in %d slices", plan_slices(print->compute));
    }
    (void)fprintf(out, ", %d chunk%s a rank, early send %s\n", shape->virtual_stages,
                  shape->virtual_stages == 1 ? "" : "s", shape->early_send ? "on" : "off");
    if (print->found != NULL && print->found[0] != '\0') {
        (void)fprintf(out, "%sfound       %s\n", prefix, print->found);
    }
    (void)fprintf(out, "%scosts       F %g, I %g, W %g a rank and micro-batch, %g a message\n",
                  prefix, print->F, print->I, print->W, print->message);
    (void)fprintf(
        out,
        "%smakespan    %g, ideal %g, in units of the costs; ideal is what the fullest rank "
        "computes\n",
        prefix, simulation->makespan, simulation->ideal);
    (void)fprintf(out, "%sbubble      %g, %.1f %% of the makespan; %g within the span of a rank\n",
                  prefix, simulation->bubble, 100.0 * report->bubble_ratio,
                  simulation->span_bubble);
    (void)fprintf(out, "%speak        by rank, in micro-batches, to W:", prefix);
    print_peaks(report->peak_wall, shape->ranks, out);
    (void)fprintf(out, "; to I:");
    print_peaks(report->peak_w0, shape->ranks, out);
    (void)fprintf(out, "\n");
    print_depths(print, prefix, out);
    TRY(plan_costs_print(print->costs, print->lowered, &report->simulation, prefix, out));
    if (print->traffic->count > 0) {
        plan_traffic_print(print->traffic, prefix, out);
    }
    if (has_memory(print)) {
        plan_memory_print(print->memory, prefix, out);
    }
    return ferror(out) != 0 ? status_fail(STATUS_ERR_IO, "plan: writing its summary failed")
                            : STATUS_OK;
}

enum status plan_print_text(const struct plan_print *print, int columns, FILE *out)
{
    bool drawn = false;

    TRY(plan_text_print(print->compute, PLAN_TEXT_LINES, out));
    (void)fprintf(out, "#\n");
    TRY(plan_print_summary(print, "# ", out));
    if (print->compute->shape.ranks <= MOST_CHARTED_RANKS) {
        (void)fprintf(out, "#\n");
        TRY(plan_chart_print(print->lowered, &print->report->simulation, "# ", columns, out,
                             &drawn));
    }
    return STATUS_OK;
}

enum status plan_print_svg(const struct plan_print *print, FILE *out)
{
    const struct plan_shape *shape = &print->compute->shape;
    const struct simulation *simulation = &print->report->simulation;
    char title[128];
    const struct timeline_look look = {.title = title,
                                       .unit = "units of the costs",
                                       .unit_ns = PLAN_TRACE_NS / simulation->makespan};
    struct trace_run run;
    enum status status = STATUS_OK;

    (void)snprintf(title, sizeof(title), "%s, early send %s, costs F %g, I %g, W %g, %g a message",
                   schedule_text(shape->schedule), shape->early_send ? "on" : "off", print->F,
                   print->I, print->W, print->message);
    TRY(plan_trace_make(print->lowered, simulation, &run));
    status = timeline_print(&run, &look, out);
    trace_run_release(&run);
    return status == STATUS_ERR_IO ? status_fail(status, "plan: writing its picture failed")
                                   : status;
}
