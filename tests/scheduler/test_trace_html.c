/* The page: one file that needs no other, and holds every span of the run as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace_html.h"
#include "scheduler/trace_message.h"
#include "scheduler/trace_path.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/scratch.h"

static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_1F1B,
                                                  .ranks = 3,
                                                  .microbatches = 5,
                                                  .virtual_stages = 1,
                                                  .lane_depth = 2,
                                                  .early_send = true,
                                                  .embedding_sync = true},
                                        .first_step = 7,
                                        .steps = 3,
                                        .forward_ms = 3.1,
                                        .input_ms = 3.3,
                                        .weight_ms = 2.9,
                                        .message_ms = 0.3,
                                        .slope = 0.05,
                                        .update_ms = 2.0,
                                        .sync_ms = 5.0};

/* The page of a run; the caller frees it. */
static char *write_page(const struct trace_run *run)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;

    scratch_make(&scratch);
    scratch_path(&scratch, "page.html", path);
    assert_int_equal(trace_html_write(run, path), STATUS_OK);
    text = scratch_read(path, &bytes);
    assert_int_equal(strlen(text), bytes);
    scratch_remove(&scratch);
    return text;
}

static json_t *read_data(const char *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"trace\">";
    const char *at = strstr(page, begin);
    const char *end = NULL;
    json_error_t error;
    json_t *data = NULL;

    assert_non_null(at);
    at += sizeof(begin) - 1;
    end = strstr(at, "</script>");
    assert_non_null(end);
    data = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, &error);
    if (data == NULL) {
        fail_msg("line %d: %s", error.line, error.text);
    }
    return data;
}

static int64_t number(const json_t *columns, const char *name, size_t index)
{
    const json_t *item = json_array_get(json_object_get(columns, name), index);

    assert_true(json_is_integer(item));
    return json_integer_value(item);
}

static size_t length(const json_t *columns, const char *name)
{
    return json_array_size(json_object_get(columns, name));
}

/* The spans of a rank, put together again from their columns. */
static void assert_spans(const json_t *data, const struct trace_run *run, size_t at)
{
    const struct trace_rank *rank = &run->ranks[at];
    const json_t *spans =
        json_object_get(json_array_get(json_object_get(data, "ranks"), at), "spans");
    const json_t *kinds = json_object_get(data, "kinds");
    static const char *const names[] = {"F",    "I",         "W",    "B",       "wait",
                                        "send", "recv",      "sync", "reduce",  "gather",
                                        "step", "optimizer", "data", "evaluate"};
    int64_t begin = 0;
    int64_t step = 0;
    bool cut = json_object_get(spans, "slices") != NULL;

    assert_int_equal(length(spans, "begin"), rank->count);
    for (size_t index = 0; index < rank->count; index++) {
        const struct span *span = &rank->spans[index];
        const char *kind =
            json_string_value(json_array_get(kinds, (size_t)number(spans, "kind", index)));

        begin += number(spans, "begin", index);
        step += number(spans, "step", index);
        assert_int_equal(begin, span->begin_ns);
        assert_int_equal(begin + number(spans, "duration", index), span->end_ns);
        assert_string_equal(kind, names[span->kind]);
        assert_int_equal(step, span->args[TRACE_ARG_STEP]);
        assert_int_equal(number(spans, "microbatch", index), span->args[TRACE_ARG_MICROBATCH]);
        assert_int_equal(number(spans, "stage", index), span->args[TRACE_ARG_VIRTUAL_STAGE]);
        assert_int_equal(number(spans, "peer", index), span->args[TRACE_ARG_PEER]);
        assert_int_equal(number(spans, "direction", index), span->args[TRACE_ARG_DIRECTION]);
        assert_int_equal(number(spans, "bytes", index), span->bytes);
        assert_int_equal(number(spans, "evaluation", index), 0);
        assert_int_equal(cut ? number(spans, "slices", index) : -1, span->args[TRACE_ARG_SLICES]);
    }
}

/* Two micro-batches in three slices: pieces 0 to 5, of three each. Whole sequences have no such column. */
static void slices_are_in_the_page_where_there_are_any(void **state)
{
    struct demo_config config = demo;
    struct trace_run run;
    char *page = NULL;
    json_t *data = NULL;

    (void)state;
    demo_run_make(&config, "demo", &run);
    page = write_page(&run);
    assert_null(strstr(page, "\"slices\":["));
    free(page);
    trace_run_release(&run);
    config.shape.schedule = SCHEDULE_SEQ1F1B;
    config.shape.sequence_slices = 3;
    config.shape.microbatches = 6;
    demo_run_make(&config, "demo", &run);
    page = write_page(&run);
    data = read_data(page);
    assert_non_null(strstr(page, "\"slices\":[3,"));
    for (size_t index = 0; index < 3; index++) {
        assert_spans(data, &run, index);
    }
    json_decref(data);
    free(page);
    trace_run_release(&run);
}

static void every_span_message_and_part_of_the_path_is_in_the_page(void **state)
{
    struct trace_run run;
    struct trace_path path;
    char *page = NULL;
    json_t *data = NULL;
    const json_t *parts = NULL;
    int64_t begin = 0;

    (void)state;
    demo_run_make(&demo, "demo", &run);
    page = write_page(&run);
    data = read_data(page);
    assert_int_equal(length(data, "ranks"), 3);
    for (size_t index = 0; index < 3; index++) {
        assert_spans(data, &run, index);
    }
    /* Three steps, five micro-batches, two borders, both directions, four numbers each. */
    assert_int_equal(length(data, "messages"), 3 * 5 * 2 * 2 * 4);
    assert_int_equal(trace_path_make(&run, &path), STATUS_OK);
    parts = json_object_get(data, "path");
    assert_int_equal(length(parts, "begin"), path.count);
    for (size_t index = 0; index < path.count; index++) {
        begin += number(parts, "begin", index);
        assert_int_equal(begin, path.parts[index].begin_ns);
        assert_int_equal(number(parts, "rank", index), path.parts[index].rank->rank);
    }
    trace_path_release(&path);
    json_decref(data);
    free(page);
    trace_run_release(&run);
}

static void messages_name_a_send_and_its_recv(void **state)
{
    struct trace_run run;
    char *page = NULL;
    json_t *data = NULL;
    const json_t *messages = NULL;

    (void)state;
    demo_run_make(&demo, "demo", &run);
    page = write_page(&run);
    data = read_data(page);
    messages = json_object_get(data, "messages");
    for (size_t at = 0; at < json_array_size(messages); at += 4) {
        int64_t place[4];

        for (size_t part = 0; part < 4; part++) {
            place[part] = json_integer_value(json_array_get(messages, at + part));
        }
        const struct span *send = &run.ranks[place[0]].spans[place[1]];
        const struct span *recv = &run.ranks[place[2]].spans[place[3]];

        assert_int_equal(send->kind, TRACE_SEND);
        assert_int_equal(recv->kind, TRACE_RECV);
        assert_int_equal(send->args[TRACE_ARG_PEER], place[2]);
        assert_int_equal(recv->args[TRACE_ARG_PEER], place[0]);
        assert_int_equal(send->args[TRACE_ARG_MICROBATCH], recv->args[TRACE_ARG_MICROBATCH]);
    }
    json_decref(data);
    free(page);
    trace_run_release(&run);
}

/* Nothing is fetched from anywhere: no address, no element that would. */
static void the_page_needs_nothing_else(void **state)
{
    static const char *const forbidden[] = {
        "http://", "https://", "//cdn",  "src=",    "@import", "url(",          "<link",
        "<img",    "<iframe",  "fetch(", "import(", "{{",      "XMLHttpRequest"};
    struct trace_run run;
    char *page = NULL;

    (void)state;
    demo_run_make(&demo, "demo", &run);
    page = write_page(&run);
    assert_int_equal(strncmp(page, "<!DOCTYPE html>", 15), 0);
    for (size_t index = 0; index < sizeof(forbidden) / sizeof(forbidden[0]); index++) {
        if (strstr(page, forbidden[index]) != NULL) {
            fail_msg("the page holds %s", forbidden[index]);
        }
    }
    assert_non_null(strstr(page, "critical path, "));
    assert_non_null(strstr(page, "the bubble by cause"));
    free(page);
    trace_run_release(&run);
}

static size_t count_text(const char *text, const char *wanted)
{
    size_t found = 0;

    for (const char *at = strstr(text, wanted); at != NULL; at = strstr(at + 1, wanted)) {
        found++;
    }
    return found;
}

/* Each element that is opened is closed, whatever the run is called. */
static void a_name_cannot_leave_its_place(void **state)
{
    static const char *const names[] = {
        "</script><script>alert(1)</script>", "<!--", "</pre></body>", "\"}],\\", "{{data}}",
        "caf\xc3\xa9 \xff\x01\n\t",           ""};
    static const char *const elements[] = {"html",   "head",   "body",  "script", "style",
                                           "pre",    "title",  "h1",    "select", "section",
                                           "button", "header", "label", "table",  "noscript"};

    (void)state;
    for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
        struct trace_run run;
        char *page = NULL;
        json_t *data = NULL;

        demo_run_make(&demo, names[index], &run);
        page = write_page(&run);
        for (size_t element = 0; element < sizeof(elements) / sizeof(elements[0]); element++) {
            char open[32];
            char exact[32];
            char close[32];

            (void)snprintf(open, sizeof(open), "<%s ", elements[element]);
            (void)snprintf(exact, sizeof(exact), "<%s>", elements[element]);
            (void)snprintf(close, sizeof(close), "</%s>", elements[element]);
            assert_int_equal(count_text(page, open) + count_text(page, exact),
                             count_text(page, close));
        }
        assert_int_equal(count_text(page, "<script"), 2);
        assert_int_equal(count_text(page, "<!--"), 0);
        data = read_data(page);
        if (index < 5) { /* the others have bytes that are no text */
            assert_string_equal(json_string_value(json_object_get(data, "name")), names[index]);
        }
        json_decref(data);
        free(page);
        trace_run_release(&run);
    }
}

static void a_place_that_cannot_be_written_is_an_error(void **state)
{
    struct trace_run run;

    (void)state;
    demo_run_make(&demo, "run", &run);
    assert_int_equal(trace_html_write(&run, "/nonexistent/page.html"), STATUS_ERR_IO);
    assert_int_equal(trace_html_write(&run, "/dev/full"), STATUS_ERR_IO);
    trace_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_in_the_page_where_there_are_any),
        cmocka_unit_test(every_span_message_and_part_of_the_path_is_in_the_page),
        cmocka_unit_test(messages_name_a_send_and_its_recv),
        cmocka_unit_test(the_page_needs_nothing_else),
        cmocka_unit_test(a_name_cannot_leave_its_place),
        cmocka_unit_test(a_place_that_cannot_be_written_is_an_error),
    };

    return cmocka_run_group_tests_name("trace_html", tests, NULL, NULL);
}
