/* The picture: well-formed, in its bounds, with a bar for every span. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/timeline.h"
#include "scheduler/trace.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/hand_run.h"
#include "tests/scheduler/scratch.h"

#define MOST_DEPTH 32
#define MOST_NAME  16

static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_1F1B,
                                                  .ranks = 4,
                                                  .microbatches = 8,
                                                  .virtual_stages = 1,
                                                  .lane_depth = 2,
                                                  .early_send = true,
                                                  .embedding_sync = true},
                                        .first_step = 18,
                                        .steps = 2,
                                        .forward_ms = 3.1,
                                        .input_ms = 3.3,
                                        .weight_ms = 2.9,
                                        .message_ms = 0.3,
                                        .slope = 0.05,
                                        .update_ms = 2.0,
                                        .sync_ms = 5.0};

/* In double; cmocka's own comparison is in float. */
static void assert_near(double found, double expected, double allowed)
{
    if (!(fabs(found - expected) <= allowed)) {
        fail_msg("found %.17g, expected %.17g", found, expected);
    }
}

/* Draws a run and lends the text; NULL title takes the run's name. */
static char *draw(const struct trace_run *run, const char *title)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char *text = NULL;
    size_t text_bytes = 0;

    scratch_make(&scratch);
    scratch_path(&scratch, "timeline.svg", path);
    assert_int_equal(timeline_write(run, title, path), STATUS_OK);
    text = scratch_read(path, &text_bytes);
    assert_int_equal(strlen(text), text_bytes);
    scratch_remove(&scratch);
    return text;
}

static size_t count_text(const char *text, const char *wanted)
{
    size_t found = 0;

    for (const char *at = strstr(text, wanted); at != NULL; at = strstr(at + 1, wanted)) {
        found++;
    }
    return found;
}

/* Steps over one attribute, ` name="value"`; the value must hold no `<`. */
static const char *skip_attribute(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at++;
    }
    assert_true(isalpha((unsigned char)*at));
    while (isalnum((unsigned char)*at) || *at == '-' || *at == ':') {
        at++;
    }
    assert_int_equal(strncmp(at, "=\"", 2), 0);
    at += 2;
    while (*at != '"') {
        assert_true(*at != '\0' && *at != '<');
        at++;
    }
    return at + 1;
}

/* An & must begin one of the five references that the writer uses. */
static void check_character(const char *at)
{
    static const char *const references[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    bool known = *at != '&';

    for (size_t index = 0; index < sizeof(references) / sizeof(references[0]); index++) {
        known = known || strncmp(at, references[index], strlen(references[index])) == 0;
    }
    assert_true(known);
    assert_true((unsigned char)*at >= 0x20 || *at == '\n');
}

/* A small strict reader: tags nest, attributes are quoted, text is escaped, one root. */
static void assert_well_formed(const char *text)
{
    char names[MOST_DEPTH][MOST_NAME];
    int depth = 0;
    int roots = 0;
    const char *at = text;

    assert_int_equal(strncmp(at, "<?xml ", 6), 0);
    at = strstr(at, "?>") + 2;
    while (*at != '\0') {
        size_t name_bytes = 0;

        if (*at != '<') {
            assert_true(depth > 0 || isspace((unsigned char)*at));
            check_character(at++);
            continue;
        }
        if (at[1] == '/') {
            at += 2;
            name_bytes = strcspn(at, ">");
            assert_true(depth > 0);
            depth--;
            assert_int_equal(strlen(names[depth]), name_bytes);
            assert_int_equal(strncmp(names[depth], at, name_bytes), 0);
            at += name_bytes + 1;
            continue;
        }
        at++;
        name_bytes = strcspn(at, " />");
        assert_in_range(name_bytes, 1, MOST_NAME - 1);
        assert_in_range(depth, 0, MOST_DEPTH - 1);
        roots += depth == 0 ? 1 : 0;
        memcpy(names[depth], at, name_bytes);
        names[depth][name_bytes] = '\0';
        at += name_bytes;
        while (*at != '>' && *at != '/') {
            at = skip_attribute(at);
        }
        if (*at == '/') {
            at++;
        } else {
            depth++;
        }
        assert_int_equal(*at++, '>');
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}

static double attribute(const char *element, const char *name)
{
    const char *at = strstr(element, name);

    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

static size_t count_bars(const struct trace_run *run)
{
    size_t found = 0;

    for (size_t index = 0; index < run->count; index++) {
        for (size_t item = 0; item < run->ranks[index].count; item++) {
            uint32_t kind = run->ranks[index].spans[item].kind;

            found += kind != TRACE_SEND && kind != TRACE_RECV ? 1 : 0;
        }
    }
    return found;
}

static void the_picture_is_well_formed_whatever_the_run_is_called(void **state)
{
    static const char *const titles[] = {"plain", "<&>\"' \x01\x7f\n\t", "caf\xc3\xa9 \xff\xc0\xaf",
                                         "</svg><!--", ""};

    (void)state;
    for (size_t index = 0; index < sizeof(titles) / sizeof(titles[0]); index++) {
        struct trace_run run;
        char *text = NULL;

        demo_run_make(&demo, titles[index], &run);
        text = draw(&run, NULL);
        assert_well_formed(text);
        free(text);
        trace_run_release(&run);
    }
}

static void every_span_has_a_bar_and_every_message_an_arrow(void **state)
{
    struct trace_run run;
    char *text = NULL;

    (void)state;
    demo_run_make(&demo, "run", &run);
    text = draw(&run, "a title");
    assert_int_equal(count_text(text, "<rect class=\"bar "), count_bars(&run));
    assert_int_equal(count_text(text, "class=\"bar SYNC\""), 2);
    assert_int_equal(count_text(text, "class=\"bar F\""), 2 * 4 * 8);
    /* Two steps, eight micro-batches, three borders, both directions; one more in the legend. */
    assert_int_equal(count_text(text, "<path class=\"message\""), 2 * 8 * 3 * 2 + 1);
    assert_int_equal(count_text(text, ">a title</text>"), 1);
    assert_int_equal(count_text(text, ">bubble</text>"), 4);
    assert_int_equal(count_text(text, ">step 18</text>"), 1);
    assert_int_equal(count_text(text, ">step 19</text>"), 1);
    free(text);
    trace_run_release(&run);
}

static void bars_stay_inside_the_picture_and_do_not_overlap(void **state)
{
    struct trace_run run;
    char *text = NULL;
    double width = 0.0;
    double height = 0.0;
    double row = 0.0;
    double right = 0.0;
    bool waited = false;

    (void)state;
    demo_run_make(&demo, "run", &run);
    text = draw(&run, NULL);
    width = attribute(text, " width=\"");
    height = attribute(text, " height=\"");
    assert_near(width, 1200.0, 0.0);
    for (const char *at = strstr(text, "<rect class=\"bar "); at != NULL;
         at = strstr(at + 1, "<rect class=\"bar ")) {
        double x = attribute(at, " x=\"");
        double y = attribute(at, " y=\"");
        bool waits = strncmp(at, "<rect class=\"bar WAIT", 21) == 0;

        assert_true(x >= 0.0 && x + attribute(at, " width=\"") <= width);
        assert_true(y >= 0.0 && y + attribute(at, " height=\"") <= height);
        assert_true(attribute(at, " width=\"") >= 0.0);
        if (y == row && waits == waited) {
            assert_true(x >= right - 0.011); /* two decimals */
        }
        waited = waits;
        right = x + attribute(at, " width=\"");
        row = y;
    }
    free(text);
    trace_run_release(&run);
}

static void a_bar_stands_where_its_time_says(void **state)
{
    struct trace_rank rank = {.complete = true};
    struct trace_run run = {.ranks = &rank, .count = 1};
    struct span spans[2] = {{.kind = TRACE_F, .begin_ns = 5000000, .end_ns = 6000000},
                            {.kind = TRACE_I, .begin_ns = 7000000, .end_ns = 9000000}};
    const char *bar = NULL;
    char *text = NULL;

    (void)state;
    for (size_t index = 0; index < 2; index++) {
        assert_int_equal(trace_rank_append(&rank, &spans[index]), STATUS_OK);
    }
    text = draw(&run, "t");
    bar = strstr(text, "class=\"bar I\"");
    assert_non_null(bar);
    /* The window of 4 ms is 1032 pixels wide and begins at 92. */
    assert_near(attribute(bar, " x=\""), 92.0 + 516.0, 0.02);
    assert_near(attribute(bar, " width=\""), 516.0, 1.0);
    free(text);
    free(rank.spans);
}

static void only_the_first_replica_is_drawn(void **state)
{
    struct trace_run run;
    struct trace_rank *ranks = NULL;
    char *text = NULL;

    (void)state;
    demo_run_make(&demo, "run", &run);
    ranks = run.ranks;
    for (int32_t index = 0; index < 4; index++) {
        ranks[index].pipeline_rank = index / 2; /* two pipelines of two stages */
    }
    trace_run_arrange(&run);
    text = draw(&run, NULL);
    assert_int_equal(count_text(text, "class=\"stage\""), 2);
    assert_int_equal(count_text(text, "<rect class=\"bar F\""), 2 * 2 * 8);
    free(text);
    trace_run_release(&run);
}

/* Two steps of two ranks with two chunks each: of 4 virtual stages, 2 and 3 are second chunks. The
 * paler of two has 1 - 0.6 · 1/2 of the colour. */
static void later_chunks_are_paler_and_reductions_are_drawn(void **state)
{
    struct demo_config config = demo;
    struct trace_run run;
    char *text = NULL;

    (void)state;
    config.shape.schedule = SCHEDULE_INTERLEAVED_1F1B;
    config.shape.ranks = 2;
    config.shape.virtual_stages = 2;
    config.shape.reduce = true;
    config.reduce_ms = 1.0;
    demo_run_make(&config, "run", &run);
    text = draw(&run, NULL);
    assert_well_formed(text);
    assert_int_equal(count_text(text, "<rect class=\"bar F\""), 2 * 4 * 8);
    assert_int_equal(count_text(text, "<rect class=\"bar F\" fill-opacity=\"0.70\""), 2 * 2 * 8);
    assert_int_equal(count_text(text, "<rect class=\"bar REDUCE\""), 2 * 2);
    assert_int_equal(count_text(text, ">reduction</text>"), 1);
    assert_int_equal(count_text(text, "2 chunks a stage"), 1);
    /* Three borders between virtual stages, all between the two ranks; one in the legend. */
    assert_int_equal(count_text(text, "<path class=\"message\""), 2 * 8 * 3 * 2 + 1);
    free(text);
    trace_run_release(&run);
}

static void evaluation_is_one_bar(void **state)
{
    struct trace_rank rank = {.complete = true};
    struct trace_run run = {.ranks = &rank, .count = 1};
    struct span spans[4] = {{.kind = TRACE_F, .begin_ns = 0, .end_ns = 10},
                            {.kind = TRACE_EVALUATE, .begin_ns = 10, .end_ns = 1000},
                            {.kind = TRACE_F, .begin_ns = 20, .end_ns = 30},
                            {.kind = TRACE_F, .begin_ns = 1000, .end_ns = 1010}};
    char *text = NULL;

    (void)state;
    spans[2].args[TRACE_ARG_EVALUATION] = 1;
    for (size_t index = 0; index < 4; index++) {
        assert_int_equal(trace_rank_append(&rank, &spans[index]), STATUS_OK);
    }
    text = draw(&run, "t");
    assert_int_equal(count_text(text, "<rect class=\"bar "), 3);
    free(text);
    free(rank.spans);
}

/* Of one micro-batch on two stages: F and its copy, F and B, B; over both messages. */
static void the_critical_path_is_framed(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 100),   HAND_SEND(0, 0, 0, LANE_F, 1, 100, 110),
        HAND_B(0, 0, 0, 320, 400), HAND_RECV(0, 0, 0, LANE_B, 1, 110, 320),
        HAND_F(1, 1, 0, 120, 200), HAND_RECV(1, 1, 0, LANE_F, 0, 0, 120),
        HAND_B(1, 1, 0, 200, 300), HAND_SEND(1, 1, 0, LANE_B, 0, 300, 310),
        HAND_W(1, 1, 9, 320, 350),
    };
    struct trace_run run;
    char *text = NULL;

    (void)state;
    hand_run_make(spans, sizeof(spans) / sizeof(spans[0]), 2, &run);
    text = draw(&run, "t");
    /* Six pieces of work and one in the legend; W is on no path. */
    assert_int_equal(count_text(text, "<rect class=\"critical\""), 6 + 1);
    assert_int_equal(count_text(text, "<path class=\"critical\""), 2);
    free(text);
    trace_run_release(&run);
}

/* A plan of 30 units, of which a bar of 2 is a fifteenth of the width. */
static void a_plan_is_drawn_in_the_units_of_its_costs(void **state)
{
    static const struct hand_span spans[] = {HAND_F(0, 0, 0, 0, 2000),
                                             HAND_B(0, 0, 0, 2000, 30000)};
    const struct timeline_look look = {
        .title = "plan", .unit = "units of the costs", .unit_ns = 1e6};
    struct trace_run run;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(memory);
    hand_run_make(spans, 2, 1, &run);
    assert_int_equal(timeline_print(&run, &look, memory), STATUS_OK);
    assert_int_equal(fclose(memory), 0);
    assert_well_formed(text);
    assert_int_equal(count_text(text, ">time in units of the costs</text>"), 1);
    assert_int_equal(count_text(text, "makespan 30"), 1);
    assert_int_equal(count_text(text, ">step 1</text>"), 0);
    assert_near(attribute(strstr(text, "class=\"bar F\""), " width=\""), 1032.0 / 15.0, 0.7);
    free(text);
    trace_run_release(&run);
}

static void nothing_to_draw_is_refused(void **state)
{
    struct trace_rank rank = {.complete = true};
    struct trace_run run = {.ranks = &rank, .count = 1};

    (void)state;
    assert_int_equal(timeline_write(&run, "t", "/dev/null"), STATUS_ERR_REFUSED);
}

static void a_place_that_cannot_be_written_is_an_error(void **state)
{
    struct trace_run run;

    (void)state;
    demo_run_make(&demo, "run", &run);
    assert_int_equal(timeline_write(&run, NULL, "/nonexistent/timeline.svg"), STATUS_ERR_IO);
    assert_int_equal(timeline_write(&run, NULL, "/dev/full"), STATUS_ERR_IO);
    trace_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_picture_is_well_formed_whatever_the_run_is_called),
        cmocka_unit_test(every_span_has_a_bar_and_every_message_an_arrow),
        cmocka_unit_test(bars_stay_inside_the_picture_and_do_not_overlap),
        cmocka_unit_test(a_bar_stands_where_its_time_says),
        cmocka_unit_test(only_the_first_replica_is_drawn),
        cmocka_unit_test(later_chunks_are_paler_and_reductions_are_drawn),
        cmocka_unit_test(evaluation_is_one_bar),
        cmocka_unit_test(the_critical_path_is_framed),
        cmocka_unit_test(a_plan_is_drawn_in_the_units_of_its_costs),
        cmocka_unit_test(nothing_to_draw_is_refused),
        cmocka_unit_test(a_place_that_cannot_be_written_is_an_error),
    };

    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
