#include "scheduler/trace_event.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/action.h"
#include "scheduler/trace_clock_event.h"

/* Beyond this a double no longer holds every nanosecond. */
#define MOST_NS 9007199254740992.0

static const char *const kind_names[] = {
#define X(kind, name, track) name,
    TRACE_TABLE(X)
#undef X
};

static const char *const track_names[] = {
#define X(id, name) name,
    TRACE_TRACK_TABLE(X)
#undef X
};

static const char *const arg_names[SPAN_ARGS] = {
    [TRACE_ARG_STEP] = "step",
    [TRACE_ARG_MICROBATCH] = "microbatch",
    [TRACE_ARG_VIRTUAL_STAGE] = "virtual_stage",
    [TRACE_ARG_PEER] = "peer",
    [TRACE_ARG_SEQUENCE] = "sequence",
    [TRACE_ARG_DIRECTION] = "direction",
    [TRACE_ARG_INDEX] = "index",
    [TRACE_ARG_EVALUATION] = "evaluation",
    [TRACE_ARG_SLICES] = "slices",
};

const char *trace_kind_name(uint32_t kind)
{
    return kind < TRACE_KINDS ? kind_names[kind] : "?";
}

bool trace_kind_is_compute(uint32_t kind)
{
    return kind == TRACE_F || kind == TRACE_I || kind == TRACE_W || kind == TRACE_B;
}

enum trace_track trace_track_of(const struct span *span)
{
    bool backward = span->args[TRACE_ARG_DIRECTION] == LANE_B;

    switch (span->kind) {
    case TRACE_WAIT:
        return TRACE_TRACK_WAIT;
    case TRACE_SEND:
        return backward ? TRACE_TRACK_SEND_B : TRACE_TRACK_SEND_F;
    case TRACE_RECV:
        return backward ? TRACE_TRACK_RECV_B : TRACE_TRACK_RECV_F;
    case TRACE_SYNC:
        return TRACE_TRACK_EMBEDDING;
    case TRACE_REDUCE:
        return TRACE_TRACK_REDUCE;
    case TRACE_GATHER:
        return TRACE_TRACK_GATHER;
    case TRACE_OPTIMIZER:
        return TRACE_TRACK_OPTIMIZER;
    case TRACE_DATA:
        return TRACE_TRACK_DATA;
    case TRACE_STEP:
    case TRACE_EVALUATE:
        return TRACE_TRACK_CONTROL;
    default:
        return TRACE_TRACK_COMPUTE;
    }
}

const char *trace_track_name(enum trace_track track)
{
    return track_names[track];
}

/* What such a span is of in a plan, where its text form says a direction; else ACTION_KINDS. */
static enum action_kind directed_kind(uint32_t kind)
{
    switch (kind) {
    case TRACE_SEND:
        return ACTION_SEND;
    case TRACE_RECV:
        return ACTION_RECV;
    case TRACE_GATHER:
        return ACTION_GATHER;
    default:
        return ACTION_KINDS;
    }
}

/* Microseconds with three decimals. */
static void print_us(int64_t ns, char out[32])
{
    const char *sign = ns < 0 ? "-" : "";
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

    (void)snprintf(out, 32, "%s%" PRIu64 ".%03" PRIu64, sign, size / 1000, size % 1000);
}

/* A run prints thousands of spans between two steps, so their lines are put together by hand, five times as
 * fast as by printf. */
static char *put_text(char *out, const char *text)
{
    while (*text != '\0') {
        *out++ = *text++;
    }
    return out;
}

static char *put_number(char *out, uint64_t number)
{
    char digits[20];
    int count = 0;

    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0) {
        *out++ = digits[--count];
    }
    return out;
}

static char *put_signed(char *out, int64_t number)
{
    if (number < 0) {
        *out++ = '-';
        return put_number(out, 0 - (uint64_t)number);
    }
    return put_number(out, (uint64_t)number);
}

/* "3", or with slices "3.1": the micro-batch and the slice of its sequences. */
static char *put_piece(char *out, const struct span *span)
{
    int32_t number = span->args[TRACE_ARG_MICROBATCH];
    int32_t slices = span->args[TRACE_ARG_SLICES];

    if (slices <= 0) {
        return put_signed(out, number);
    }
    out = put_signed(out, number / slices);
    *out++ = '.';
    return put_signed(out, number % slices);
}

/* The name of a span, of at most 47 characters. */
static char *put_name(char *out, const struct span *span)
{
    int32_t stage = span->args[TRACE_ARG_VIRTUAL_STAGE];
    int32_t microbatch = span->args[TRACE_ARG_MICROBATCH];
    bool computes = trace_kind_is_compute(span->kind);
    enum action_kind directed = directed_kind(span->kind);

    if (stage < 0 || microbatch < 0 || (!computes && directed == ACTION_KINDS)) {
        return put_text(out, trace_kind_name(span->kind));
    }
    out = put_signed(out, stage);
    if (computes) {
        out = put_text(out, trace_kind_name(span->kind));
    } else {
        out = put_text(out, action_kind_text(directed));
        out = put_text(out, span->args[TRACE_ARG_DIRECTION] == LANE_B ? "_B" : "_F");
    }
    return put_piece(out, span);
}

/* What fits of the text from `text` to `end`, with its end; returns how much that is. */
static size_t copy_text(char *out, size_t out_bytes, const char *text, const char *end)
{
    size_t bytes = (size_t)(end - text);

    bytes = bytes < out_bytes ? bytes : out_bytes - 1;
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return bytes;
}

size_t trace_event_number(const struct span *span, char *out, size_t out_bytes)
{
    char number[24];

    return copy_text(out, out_bytes, number, put_piece(number, span));
}

size_t trace_event_name(const struct span *span, char *out, size_t out_bytes)
{
    char name[48];

    return copy_text(out, out_bytes, name, put_name(name, span));
}

/* As print_us(). */
static char *put_us(char *out, int64_t ns)
{
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    uint64_t rest = size % 1000;

    out = ns < 0 ? put_text(out, "-") : out;
    out = put_number(out, size / 1000);
    *out++ = '.';
    *out++ = (char)('0' + rest / 100);
    *out++ = (char)('0' + rest / 10 % 10);
    *out++ = (char)('0' + rest % 10);
    return out;
}

size_t trace_event_print(const struct span *span, int32_t pid, int32_t tid, int64_t origin_ns,
                         char out[TRACE_EVENT_BYTES])
{
    char *at = put_text(out, "{\"ph\":\"X\",\"name\":\"");

    at = put_name(at, span);
    at = put_text(at, "\",\"cat\":\"");
    at = put_text(at, trace_kind_name(span->kind));
    at = put_text(at, "\",\"pid\":");
    at = put_signed(at, pid);
    at = put_text(at, ",\"tid\":");
    at = put_signed(at, tid);
    at = put_text(at, ",\"ts\":");
    at = put_us(at, span->begin_ns - origin_ns);
    at = put_text(at, ",\"dur\":");
    at = put_us(at, span->end_ns - span->begin_ns);
    at = put_text(at, ",\"args\":{");
    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        if (span->args[arg] != ACTION_NONE) {
            *at++ = '"';
            at = put_text(at, arg_names[arg]);
            at = put_text(at, "\":");
            at = put_signed(at, span->args[arg]);
            *at++ = ',';
        }
    }
    at = put_text(at, "\"bytes\":");
    at = put_number(at, span->bytes);
    at = put_text(at, "}}");
    *at = '\0';
    return (size_t)(at - out);
}

size_t trace_event_print_track(int32_t pid, int32_t tid, enum trace_track track, int32_t overflow,
                               char *out, size_t out_bytes)
{
    char more[16] = "";
    int length = 0;

    if (overflow > 0) {
        (void)snprintf(more, sizeof(more), " (%d)", (int)overflow + 1);
    }
    length = snprintf(out, out_bytes,
                      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
                      "\"args\":{\"name\":\"%s%s\"}},\n"
                      "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,"
                      "\"args\":{\"sort_index\":%d}}",
                      (int)pid, (int)tid, track_names[track], more, (int)pid, (int)tid,
                      (int)track * 64 + (int)overflow);
    return length < 0 ? 0 : (size_t)length;
}

size_t trace_event_print_flow(bool arrives, int32_t direction, uint64_t id, int32_t pid,
                              int32_t tid, int64_t ns, char *out, size_t out_bytes)
{
    char time[32];
    int length = 0;

    print_us(ns, time);
    length =
        snprintf(out, out_bytes,
                 "{\"ph\":\"%s\",%s\"name\":\"%s\",\"cat\":\"message\",\"id\":%" PRIu64
                 ",\"pid\":%d,\"tid\":%d,\"ts\":%s}",
                 arrives ? "f" : "s", arrives ? "\"bp\":\"e\"," : "",
                 direction == LANE_B ? "gradient" : "activation", id, (int)pid, (int)tid, time);
    return length < 0 ? 0 : (size_t)length;
}

size_t trace_event_print_size(int32_t pid, const struct trace_memory_size *size, char *out,
                              size_t out_bytes)
{
    int length =
        snprintf(out, out_bytes,
                 "{\"ph\":\"M\",\"name\":\"weir_memory\",\"pid\":%d,\"tid\":0,"
                 "\"args\":{\"virtual_stage\":%d,\"stash_bytes\":%" PRIu64
                 ",\"gradient_bytes\":%" PRIu64 "}}",
                 (int)pid, (int)size->virtual_stage, size->stash_bytes, size->gradient_bytes);

    return length < 0 ? 0 : (size_t)length;
}

size_t trace_event_print_memory(int32_t pid, int64_t ns, const char *const *names,
                                const int64_t *bytes, size_t count, char *out, size_t out_bytes)
{
    char time[32];
    size_t used = 0;

    print_us(ns, time);
    used = (size_t)snprintf(out, out_bytes,
                            "{\"ph\":\"C\",\"name\":\"memory\",\"pid\":%d,\"tid\":0,"
                            "\"ts\":%s,\"args\":{",
                            (int)pid, time);
    for (size_t index = 0; index < count && used < out_bytes; index++) {
        used += (size_t)snprintf(out + used, out_bytes - used, "%s\"%s\":%" PRId64,
                                 index == 0 ? "" : ",", names[index], bytes[index]);
    }
    if (used < out_bytes) {
        used += (size_t)snprintf(out + used, out_bytes - used, "}}");
    }
    return used;
}

static enum status take_int(const json_t *object, const char *key, int64_t least, int64_t most,
                            int64_t *value_out)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most) {
        return status_note(STATUS_ERR_FORMAT,
                           "expected an integer from %" PRId64 " to %" PRId64 " as \"%s\"", least,
                           most, key);
    }
    *value_out = json_integer_value(value);
    return STATUS_OK;
}

static enum status take_ns(const json_t *object, const char *key, int64_t *ns_out)
{
    const json_t *value = json_object_get(object, key);
    double ns = json_is_number(value) ? json_number_value(value) * 1e3 : NAN;

    if (!(fabs(ns) <= MOST_NS)) {
        return status_note(STATUS_ERR_FORMAT, "expected microseconds as \"%s\"", key);
    }
    *ns_out = llround(ns);
    return STATUS_OK;
}

static bool find_kind(const char *name, uint32_t *kind_out)
{
    for (uint32_t kind = 0; kind < TRACE_KINDS; kind++) {
        if (strcmp(name, kind_names[kind]) == 0) {
            *kind_out = kind;
            return true;
        }
    }
    return false;
}

static enum status take_arg(const json_t *args, const char *name, int32_t *arg_out)
{
    int64_t value = ACTION_NONE;

    if (json_object_get(args, name) != NULL) {
        TRY(take_int(args, name, INT32_MIN, INT32_MAX, &value));
    }
    *arg_out = (int32_t)value;
    return STATUS_OK;
}

static enum status take_args(const json_t *args, struct span *span)
{
    int64_t bytes = 0;

    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        TRY(take_arg(args, arg_names[arg], &span->args[arg]));
    }
    TRY(take_int(args, "bytes", 0, INT64_MAX, &bytes));
    span->bytes = (uint64_t)bytes;
    return STATUS_OK;
}

/* An X event of a kind that is not known stays OTHER: a newer weir wrote it. */
static enum status take_span(const json_t *event, struct trace_line *line)
{
    const json_t *category = json_object_get(event, "cat");
    int64_t duration = 0;

    if (!json_is_string(category)) {
        return status_note(STATUS_ERR_FORMAT, "expected a string as \"cat\"");
    }
    if (!find_kind(json_string_value(category), &line->span.kind)) {
        return STATUS_OK;
    }
    TRY(take_ns(event, "ts", &line->span.begin_ns));
    TRY(take_ns(event, "dur", &duration));
    if (duration < 0) {
        return status_note(STATUS_ERR_FORMAT, "a duration below zero");
    }
    line->span.end_ns = line->span.begin_ns + duration;
    TRY(take_args(json_object_get(event, "args"), &line->span));
    line->kind = TRACE_LINE_SPAN;
    return STATUS_OK;
}

static enum status take_process(const json_t *event, struct trace_line *line)
{
    const json_t *args = json_object_get(event, "args");
    const json_t *run = json_object_get(args, "run");
    int64_t rank = 0;
    int64_t pipeline_rank = 0;

    if (!json_is_string(run)) {
        return status_note(STATUS_ERR_FORMAT, "expected a string as \"run\"");
    }
    TRY(take_int(event, "pid", 0, TRACE_RANKS_MOST - 1, &rank));
    TRY(take_int(args, "pipeline_rank", 0, rank, &pipeline_rank));
    line->run_name = strdup(json_string_value(run));
    if (line->run_name == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "trace: the name of the run");
    }
    line->rank = (int32_t)rank;
    line->pipeline_rank = (int32_t)pipeline_rank;
    line->kind = TRACE_LINE_PROCESS;
    return STATUS_OK;
}

static enum status take_size(const json_t *event, struct trace_line *line)
{
    const json_t *args = json_object_get(event, "args");
    int64_t stage = 0;
    int64_t stash = 0;
    int64_t gradient = 0;

    TRY(take_int(args, "virtual_stage", 0, INT32_MAX, &stage));
    TRY(take_int(args, "stash_bytes", 0, INT64_MAX, &stash));
    TRY(take_int(args, "gradient_bytes", 0, INT64_MAX, &gradient));
    line->size = (struct trace_memory_size){.virtual_stage = (int32_t)stage,
                                            .stash_bytes = (uint64_t)stash,
                                            .gradient_bytes = (uint64_t)gradient};
    line->kind = TRACE_LINE_SIZE;
    return STATUS_OK;
}

static enum status take_event(const json_t *event, struct trace_line *line)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    const char *name = json_string_value(json_object_get(event, "name"));
    int64_t dropped = 0;

    if (phase == NULL || name == NULL) {
        return status_note(STATUS_ERR_FORMAT, "expected strings as \"ph\" and \"name\"");
    }
    if (strcmp(phase, "X") == 0) {
        return take_span(event, line);
    }
    if (strcmp(phase, "M") == 0 && strcmp(name, "process_name") == 0) {
        return take_process(event, line);
    }
    if (strcmp(phase, "M") == 0 && strcmp(name, "weir_memory") == 0) {
        return take_size(event, line);
    }
    if (strcmp(phase, "M") == 0 && strcmp(name, TRACE_CLOCK_EVENT_NAME) == 0) {
        line->kind = TRACE_LINE_CLOCK;
        return trace_clock_event_take(json_object_get(event, "args"), &line->clock,
                                      &line->clock_moved_ns);
    }
    if (strcmp(phase, "M") == 0 && strcmp(name, "weir_end") == 0) {
        TRY(take_int(json_object_get(event, "args"), "dropped", 0, INT64_MAX, &dropped));
        line->dropped = (uint64_t)dropped;
        line->kind = TRACE_LINE_END;
    }
    return STATUS_OK;
}

enum status trace_line_parse(const char *text, size_t text_bytes, struct trace_line *line_out)
{
    struct trace_line line = {.kind = TRACE_LINE_OTHER};
    enum status status = STATUS_OK;
    json_error_t error;
    json_t *event = json_loadb(text, text_bytes, 0, &error);

    if (!json_is_object(event)) {
        json_decref(event);
        return status_note(STATUS_ERR_FORMAT, "not a JSON object: %s",
                           event == NULL ? error.text : "another type");
    }
    status = take_event(event, &line);
    json_decref(event);
    TRY(status);
    *line_out = line;
    return STATUS_OK;
}
