/* What a rank writes: strict JSON within its limit, whatever the run is called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace.h"
#include "scheduler/trace_event.h"
#include "tests/scheduler/scratch.h"

#define NO_LIMIT ((uint64_t)1 << 40)

struct writing {
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    struct trace_writer *writer;
    struct span_ring ring;
};

/* In double; cmocka's own comparison is in float. */
static void assert_near(double found, double expected, double allowed)
{
    if (!(fabs(found - expected) <= allowed)) {
        fail_msg("found %.17g, expected %.17g", found, expected);
    }
}

static struct span make_span(enum trace_kind kind, int64_t begin_ns, int64_t end_ns, int32_t step)
{
    struct span span = {.begin_ns = begin_ns, .end_ns = end_ns, .kind = kind, .bytes = 12};
    const int32_t args[SPAN_ARGS] = {step, 3, 1, 2, 7, 1, 40, 0, -1};

    memcpy(span.args, args, sizeof(args));
    return span;
}

static enum status open_writer(struct writing *writing, const char *run_name, uint64_t most_bytes)
{
    struct trace_writer_config config = {.run_name = run_name,
                                         .rank = 5,
                                         .pipeline_rank = 2,
                                         .most_bytes = most_bytes,
                                         .origin_ns = 1000};

    memset(writing, 0, sizeof(*writing));
    scratch_make(&writing->scratch);
    scratch_path(&writing->scratch, "rank-5.json", writing->path);
    config.path = writing->path;
    assert_int_equal(span_ring_init(&writing->ring, 4096), STATUS_OK);
    return trace_writer_open(&config, &writing->writer);
}

static void close_writer(struct writing *writing)
{
    assert_int_equal(trace_writer_close(&writing->writer), STATUS_OK);
    assert_null(writing->writer);
}

static json_t *load(const struct writing *writing)
{
    json_t *events = json_load_file(writing->path, JSON_REJECT_DUPLICATES, NULL);

    assert_non_null(events);
    assert_true(json_is_array(events));
    return events;
}

static void finish(struct writing *writing)
{
    span_ring_release(&writing->ring);
    scratch_remove(&writing->scratch);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    assert_non_null(text);
    return text;
}

static size_t count_phase(const json_t *events, const char *phase)
{
    size_t found = 0;

    for (size_t index = 0; index < json_array_size(events); index++) {
        found += strcmp(text_of(json_array_get(events, index), "ph"), phase) == 0 ? 1 : 0;
    }
    return found;
}

static const json_t *find_named(const json_t *events, const char *name)
{
    for (size_t index = 0; index < json_array_size(events); index++) {
        const json_t *event = json_array_get(events, index);

        if (strcmp(text_of(event, "name"), name) == 0) {
            return event;
        }
    }
    fail_msg("no event is called %s", name);
    return NULL;
}

static void a_closed_trace_is_strict_json_with_every_field(void **state)
{
    struct writing writing;
    struct span span = make_span(TRACE_F, 1234567, 1300000, 17);
    json_t *events = NULL;
    const json_t *event = NULL;
    const json_t *args = NULL;

    (void)state;
    assert_int_equal(open_writer(&writing, "run", NO_LIMIT), STATUS_OK);
    span_ring_put(&writing.ring, &span);
    assert_int_equal(trace_writer_drain(writing.writer, &writing.ring), STATUS_OK);
    close_writer(&writing);
    events = load(&writing);
    event = find_named(events, "1F3");
    args = json_object_get(event, "args");
    assert_string_equal(text_of(event, "ph"), "X");
    assert_string_equal(text_of(event, "cat"), "F");
    assert_int_equal(json_integer_value(json_object_get(event, "pid")), 5);
    /* (1,234,567 - 1,000) ns and 65,433 ns, in microseconds. */
    assert_near(json_number_value(json_object_get(event, "ts")), 1233.567, 1e-9);
    assert_near(json_number_value(json_object_get(event, "dur")), 65.433, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(args, "step")), 17);
    assert_int_equal(json_integer_value(json_object_get(args, "microbatch")), 3);
    assert_int_equal(json_integer_value(json_object_get(args, "virtual_stage")), 1);
    assert_int_equal(json_integer_value(json_object_get(args, "peer")), 2);
    assert_int_equal(json_integer_value(json_object_get(args, "sequence")), 7);
    assert_int_equal(json_integer_value(json_object_get(args, "direction")), 1);
    assert_int_equal(json_integer_value(json_object_get(args, "index")), 40);
    assert_int_equal(json_integer_value(json_object_get(args, "evaluation")), 0);
    assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 12);
    json_decref(events);
    finish(&writing);
}

static void every_kind_has_a_name_and_a_named_track(void **state)
{
    struct writing writing;
    json_t *events = NULL;

    (void)state;
    assert_int_equal(open_writer(&writing, "run", NO_LIMIT), STATUS_OK);
    for (uint32_t kind = 0; kind < TRACE_KINDS; kind++) {
        struct span span = make_span((enum trace_kind)kind, 2000 + kind, 2001 + kind, 1);

        span_ring_put(&writing.ring, &span);
    }
    assert_int_equal(trace_writer_drain(writing.writer, &writing.ring), STATUS_OK);
    close_writer(&writing);
    events = load(&writing);
    assert_int_equal(count_phase(events, "X"), TRACE_KINDS);
    (void)find_named(events, "1SEND_B3");
    (void)find_named(events, "1RECV_B3");
    (void)find_named(events, "optimizer");
    json_decref(events);
    finish(&writing);
}

static void every_kind_goes_to_the_track_of_the_table(void **state)
{
    static const char *const tracks[] = {
#define X(kind, name, track) track,
        TRACE_TABLE(X)
#undef X
    };

    (void)state;
    for (uint32_t kind = 0; kind < TRACE_KINDS; kind++) {
        struct span span = make_span((enum trace_kind)kind, 0, 1, 1);
        const char *track = trace_track_name(trace_track_of(&span));

        /* Messages have a track a direction, "send B". */
        assert_int_equal(strncmp(track, tracks[kind], strlen(tracks[kind])), 0);
    }
}

static void a_span_is_named_as_its_action_is(void **state)
{
    struct span span = make_span(TRACE_F, 0, 1, 1);
    struct trace_line line;
    char text[TRACE_EVENT_BYTES];
    char name[48];

    (void)state;
    (void)trace_event_name(&span, name, sizeof(name));
    assert_string_equal(name, "1F3");
    span.args[TRACE_ARG_SLICES] = 2;
    (void)trace_event_name(&span, name, sizeof(name));
    assert_string_equal(name, "1F1.1");
    span.kind = TRACE_SEND;
    (void)trace_event_name(&span, name, sizeof(name));
    assert_string_equal(name, "1SEND_B1.1");
    assert_int_equal(trace_line_parse(text, trace_event_print(&span, 0, 0, 0, text), &line),
                     STATUS_OK);
    assert_int_equal(line.span.args[TRACE_ARG_SLICES], 2);
}

static void any_run_name_is_kept(void **state)
{
    const char *name = "q\" b\\ n\n t\t one\x01 \xc3\xa9\xe2\x82\xac end";
    struct writing writing;
    json_t *events = NULL;
    const json_t *event = NULL;

    (void)state;
    assert_int_equal(open_writer(&writing, name, NO_LIMIT), STATUS_OK);
    close_writer(&writing);
    events = load(&writing);
    event = find_named(events, "process_name");
    assert_string_equal(text_of(json_object_get(event, "args"), "run"), name);
    assert_string_equal(text_of(json_object_get(event, "args"), "name"), "stage 2 (rank 5)");
    json_decref(events);
    finish(&writing);
}

static void a_run_name_that_is_not_utf_8_is_strict_json_too(void **state)
{
    struct writing writing;
    json_t *events = NULL;
    const json_t *event = NULL;

    (void)state;
    assert_int_equal(open_writer(&writing, "a\xff z", NO_LIMIT), STATUS_OK);
    close_writer(&writing);
    events = load(&writing);
    event = find_named(events, "process_name");
    assert_string_equal(text_of(json_object_get(event, "args"), "run"), "a\xef\xbf\xbd z");
    json_decref(events);
    finish(&writing);
}

static void a_file_stays_within_its_limit_and_drops_the_newest(void **state)
{
    enum {
        LIMIT = 100000,
        STEPS = 40,
        SPANS_A_STEP = 500
    };
    struct writing writing;
    json_t *events = NULL;
    const json_t *end = NULL;
    size_t bytes = 0;
    size_t kept = 0;
    char *text = NULL;

    (void)state;
    assert_int_equal(open_writer(&writing, "run", LIMIT), STATUS_OK);
    for (int32_t step = 0; step < STEPS; step++) {
        for (int64_t index = 0; index < SPANS_A_STEP; index++) {
            int64_t begin_ns = (int64_t)step * 1000000 + index * 1000 + 1000;
            struct span span = make_span(TRACE_W, begin_ns, begin_ns + 900, step);

            span_ring_put(&writing.ring, &span);
        }
        assert_int_equal(trace_writer_drain(writing.writer, &writing.ring), STATUS_OK);
    }
    close_writer(&writing);
    text = scratch_read(writing.path, &bytes);
    free(text);
    assert_in_range(bytes, LIMIT - 1000, LIMIT);
    events = load(&writing);
    kept = count_phase(events, "X");
    end = json_object_get(find_named(events, "weir_end"), "args");
    assert_int_equal(json_integer_value(json_object_get(end, "events")), kept);
    assert_int_equal(json_integer_value(json_object_get(end, "dropped")),
                     STEPS * SPANS_A_STEP - (int)kept);
    /* The oldest are there: the first 100 spans of step 0 fit for sure. */
    assert_true(kept > 100);
    assert_near(json_number_value(json_object_get(find_named(events, "1W3"), "ts")), 0.0, 1e-9);
    json_decref(events);
    finish(&writing);
}

static void a_limit_that_does_not_hold_the_head_is_refused(void **state)
{
    struct writing writing;

    (void)state;
    assert_int_equal(open_writer(&writing, "run", 100), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "trace.max_mb"));
    finish(&writing);
}

static void what_the_ring_overwrote_counts_as_dropped(void **state)
{
    struct writing writing;
    struct span span = make_span(TRACE_I, 5000, 6000, 1);
    json_t *events = NULL;
    const json_t *end = NULL;

    (void)state;
    assert_int_equal(open_writer(&writing, "run", NO_LIMIT), STATUS_OK);
    for (int index = 0; index < 4096 + 9; index++) {
        span_ring_put(&writing.ring, &span);
    }
    assert_int_equal(trace_writer_drain(writing.writer, &writing.ring), STATUS_OK);
    assert_int_equal(trace_writer_drain(writing.writer, &writing.ring), STATUS_OK);
    close_writer(&writing);
    events = load(&writing);
    end = json_object_get(find_named(events, "weir_end"), "args");
    assert_int_equal(json_integer_value(json_object_get(end, "events")), 4096);
    assert_int_equal(json_integer_value(json_object_get(end, "dropped")), 9);
    json_decref(events);
    finish(&writing);
}

static void a_folder_that_is_not_there_is_an_error(void **state)
{
    struct trace_writer_config config = {
        .path = "/nonexistent/trace/rank-0.json", .run_name = "run", .most_bytes = NO_LIMIT};
    struct trace_writer *writer = NULL;

    (void)state;
    assert_int_equal(trace_writer_open(&config, &writer), STATUS_ERR_IO);
    assert_null(writer);
    assert_int_equal(trace_writer_close(&writer), STATUS_OK);
}

static void a_full_disk_is_an_error_once_and_stays_one(void **state)
{
    struct trace_writer_config config = {
        .path = "/dev/full", .run_name = "run", .most_bytes = NO_LIMIT};
    struct trace_writer *writer = NULL;
    struct span_ring ring;

    (void)state;
    assert_int_equal(span_ring_init(&ring, 4), STATUS_OK);
    assert_int_equal(trace_writer_open(&config, &writer), STATUS_OK);
    assert_int_equal(trace_writer_drain(writer, &ring), STATUS_ERR_IO);
    assert_int_equal(trace_writer_drain(writer, &ring), STATUS_ERR_IO);
    assert_int_equal(trace_writer_close(&writer), STATUS_ERR_IO);
    assert_null(writer);
    span_ring_release(&ring);
}

static void a_line_reads_back_as_the_span_that_it_was(void **state)
{
    struct span span = make_span(TRACE_SEND, -1500, 9007199254740, 3);
    struct trace_line line;
    char text[TRACE_EVENT_BYTES];
    size_t text_bytes = 0;

    (void)state;
    span.args[TRACE_ARG_PEER] = -1;
    span.bytes = UINT64_C(1) << 40;
    text_bytes = trace_event_print(&span, 0, 0, 0, text);
    assert_int_equal(text_bytes, strlen(text));
    assert_int_equal(trace_line_parse(text, text_bytes, &line), STATUS_OK);
    assert_int_equal(line.kind, TRACE_LINE_SPAN);
    assert_memory_equal(&line.span, &span, sizeof(span));
}

static void the_longest_line_fits(void **state)
{
    struct span span = {.begin_ns = INT64_MIN / 2, .end_ns = INT64_MAX / 2, .bytes = UINT64_MAX};
    char text[2 * TRACE_EVENT_BYTES];

    (void)state;
    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        span.args[arg] = INT32_MIN;
    }
    for (uint32_t kind = 0; kind < TRACE_KINDS; kind++) {
        span.kind = kind;
        assert_in_range(trace_event_print(&span, INT32_MIN, INT32_MIN, 0, text), 1,
                        TRACE_EVENT_BYTES - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_trace_is_strict_json_with_every_field),
        cmocka_unit_test(every_kind_has_a_name_and_a_named_track),
        cmocka_unit_test(every_kind_goes_to_the_track_of_the_table),
        cmocka_unit_test(a_span_is_named_as_its_action_is),
        cmocka_unit_test(any_run_name_is_kept),
        cmocka_unit_test(a_run_name_that_is_not_utf_8_is_strict_json_too),
        cmocka_unit_test(a_file_stays_within_its_limit_and_drops_the_newest),
        cmocka_unit_test(a_limit_that_does_not_hold_the_head_is_refused),
        cmocka_unit_test(what_the_ring_overwrote_counts_as_dropped),
        cmocka_unit_test(a_folder_that_is_not_there_is_an_error),
        cmocka_unit_test(a_full_disk_is_an_error_once_and_stays_one),
        cmocka_unit_test(a_line_reads_back_as_the_span_that_it_was),
        cmocka_unit_test(the_longest_line_fits),
    };

    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
