/* Trace files spoilt at random: each is refused, or read and shown in every form, and never more. What a
 * sanitizer sees here it reports; the seed makes every run the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/plan.h"
#include "scheduler/timeline.h"
#include "scheduler/trace.h"
#include "scheduler/trace_chart.h"
#include "scheduler/trace_explain.h"
#include "scheduler/trace_html.h"
#include "scheduler/trace_merge.h"
#include "scheduler/trace_perfetto.h"
#include "scheduler/trace_report.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/plan_fixture.h"
#include "tests/scheduler/scratch.h"

#define ROUNDS 800

static const struct demo_config small = {.shape = {.schedule = SCHEDULE_1F1B,
                                                   .ranks = 2,
                                                   .microbatches = 3,
                                                   .virtual_stages = 1,
                                                   .lane_depth = 2,
                                                   .early_send = true,
                                                   .embedding_sync = true,
                                                   .reduce = true},
                                         .first_step = 4,
                                         .steps = 2,
                                         .forward_ms = 2.0,
                                         .input_ms = 2.0,
                                         .weight_ms = 1.5,
                                         .message_ms = 0.25,
                                         .update_ms = 1.0,
                                         .sync_ms = 1.0,
                                         .reduce_ms = 0.5};

/* xorshift: any sequence will do, as long as it is always the same. */
static uint32_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (uint32_t)(*seed >> 32);
}

/* All forms; each may refuse, none may do anything else. */
static size_t show_all(struct trace_run *run, const struct plan *lowered, FILE *sink)
{
    const struct timeline_look look = {.title = NULL};
    struct trace_explanation explanation;
    int32_t first = 0;
    int32_t last = 0;
    size_t shown = 0;

    shown += trace_merge_write(run, "/dev/null") >= 0 ? 1 : 0;
    shown += trace_perfetto_write(run, "/dev/null") >= 0 ? 1 : 0;
    if (trace_run_steps(run, &first, &last) < 0) {
        return shown;
    }
    trace_run_keep(run, first, last);
    shown += trace_html_write(run, "/dev/null") >= 0 ? 1 : 0;
    shown += timeline_print(run, &look, sink) >= 0 ? 1 : 0;
    shown += trace_report_print(run, sink) >= 0 ? 1 : 0;
    shown += trace_chart_print(run, 100, false, sink) >= 0 ? 1 : 0;
    if (trace_explain_make(run, lowered, &explanation) >= 0) {
        shown += trace_explain_print(&explanation, sink) >= 0 ? 1 : 0;
    }
    return shown;
}

/* Replaces the first digits behind a place by a number that does not belong there. */
static void put_number(char *text, size_t bytes, uint64_t *seed)
{
    static const char *const numbers[] = {
        "-1",        "2147483647", "-2147483648", "9007199254740992",
        "1e308",     "-0",         "4294967296",  "9223372036854775807",
        "0.0000001", "99",         "null",        "\"a\"",
        "1048575"};
    const char *number = numbers[draw(seed) % (sizeof(numbers) / sizeof(numbers[0]))];
    size_t at = draw(seed) % bytes;
    size_t end = 0;

    while (at < bytes && (text[at] < '0' || text[at] > '9')) {
        at++;
    }
    for (end = at; end < bytes && ((text[end] >= '0' && text[end] <= '9') || text[end] == '.');) {
        end++;
    }
    if (end - at >= strlen(number)) { /* padded with blanks in front */
        memset(text + at, ' ', end - at);
        for (size_t back = 1; back <= strlen(number); back++) {
            text[end - back] = number[strlen(number) - back];
        }
    } else if (end < bytes) {
        text[at] = '9';
    }
}

static void spoil(char *text, size_t bytes, uint64_t *seed)
{
    uint32_t times = 1 + draw(seed) % 4;

    for (uint32_t time = 0; time < times; time++) {
        if (draw(seed) % 3 == 0) {
            text[draw(seed) % bytes] = (char)draw(seed);
        } else {
            put_number(text, bytes, seed);
        }
    }
}

static void spoilt_files_are_refused_or_shown(void **state)
{
    struct scratch scratch;
    struct trace_run written;
    char path[SCRATCH_PATH_BYTES];
    char *text = NULL;
    char *copy = NULL;
    size_t bytes = 0;
    size_t read = 0;
    size_t shown = 0;
    uint64_t seed = 88172645463325252ULL;
    struct plan *lowered = fixture_lowered(SCHEDULE_1F1B, 2, 3, true);
    FILE *sink = fopen("/dev/null", "we");
    int saved = fixture_mute();

    (void)state;
    assert_non_null(sink);
    scratch_make(&scratch);
    scratch_folder(&scratch, "trace");
    demo_run_make(&small, "run", &written);
    demo_run_write(&written, scratch.path);
    scratch_path(&scratch, "trace/rank-1.json", path);
    text = scratch_read(path, &bytes);
    copy = malloc(bytes);
    assert_non_null(copy);
    for (int round = 0; round < ROUNDS; round++) {
        struct trace_run run;

        memcpy(copy, text, bytes);
        spoil(copy, bytes, &seed);
        scratch_write(path, copy, draw(&seed) % 8 == 0 ? draw(&seed) % bytes : bytes);
        if (trace_read(scratch.path, &run) >= 0) {
            read++;
            shown += show_all(&run, lowered, sink);
            trace_run_release(&run);
        }
    }
    fixture_unmute(saved);
    /* Both ways were taken, often. */
    assert_in_range(read, ROUNDS / 10, ROUNDS - ROUNDS / 10);
    assert_true(shown > 3 * read);
    (void)fclose(sink);
    free(copy);
    free(text);
    plan_destroy(&lowered);
    trace_run_release(&written);
    scratch_remove(&scratch);
}

/* A million spans on two ranks: all forms, in the time that a test has. */
static void a_million_spans_are_shown(void **state)
{
    struct trace_run run = {.count = 2};
    FILE *sink = fopen("/dev/null", "we");
    const struct timeline_look look = {.title = "large"};

    (void)state;
    assert_non_null(sink);
    run.ranks = calloc(2, sizeof(*run.ranks));
    assert_non_null(run.ranks);
    for (int32_t rank = 0; rank < 2; rank++) {
        run.ranks[rank].rank = run.ranks[rank].pipeline_rank = rank;
        run.ranks[rank].complete = true;
        for (int32_t index = 0; index < 500000; index++) {
            struct span span = {.kind = index % 3 == 0   ? TRACE_F
                                        : index % 3 == 1 ? TRACE_I
                                                         : TRACE_W,
                                .begin_ns = (int64_t)index * 1000,
                                .end_ns = (int64_t)index * 1000 + 900};

            for (int arg = 0; arg < SPAN_ARGS; arg++) {
                span.args[arg] = ACTION_NONE;
            }
            span.args[TRACE_ARG_STEP] = index / 3000;
            span.args[TRACE_ARG_MICROBATCH] = index / 3 % 1000;
            span.args[TRACE_ARG_VIRTUAL_STAGE] = rank;
            assert_int_equal(trace_rank_append(&run.ranks[rank], &span), STATUS_OK);
        }
    }
    trace_run_arrange(&run);
    assert_int_equal(trace_perfetto_write(&run, "/dev/null"), STATUS_OK);
    assert_int_equal(trace_html_write(&run, "/dev/null"), STATUS_OK);
    assert_int_equal(trace_report_print(&run, sink), STATUS_OK);
    assert_int_equal(timeline_print(&run, &look, sink), STATUS_OK);
    assert_int_equal(trace_chart_print(&run, 100, false, sink), STATUS_OK);
    (void)fclose(sink);
    trace_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spoilt_files_are_refused_or_shown),
        cmocka_unit_test(a_million_spans_are_shown),
    };

    return cmocka_run_group_tests_name("trace_fuzz", tests, NULL, NULL);
}
