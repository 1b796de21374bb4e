/* The traces of ranks whose clocks differ. What is expected is worked out by hand: a clock that gains one part
 * in a thousand turns whole microseconds into whole nanoseconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace.h"
#include "scheduler/trace_clock.h"
#include "scheduler/trace_merge.h"
#include "scheduler/trace_read.h"
#include "scheduler/trace_report.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/hand_run.h"
#include "tests/scheduler/scratch.h"

#define SECOND    INT64_C(1000000000)
#define YEAR      (INT64_C(365) * 24 * 3600 * SECOND)
#define ORIGIN_NS (17 * SECOND) /* time 0 of the trace, by rank 0's clock */

/* Three ranks of 1F1B, whose times are multiples of a quarter of a millisecond. */
static const struct demo_config three = {.shape = {.schedule = SCHEDULE_1F1B,
                                                   .ranks = 3,
                                                   .microbatches = 4,
                                                   .virtual_stages = 1,
                                                   .lane_depth = 2,
                                                   .early_send = true},
                                         .first_step = 1,
                                         .steps = 3,
                                         .forward_ms = 2.0,
                                         .input_ms = 2.0,
                                         .weight_ms = 1.5,
                                         .message_ms = 0.25,
                                         .update_ms = 1.0};

/* The clock of a rank: `ahead_ns` ahead at the origin, and faster by one part in a thousand. */
struct clock {
    int64_t ahead_ns;
    bool has_end;
    bool is_killed; /* the file is read before the rank has closed it */
};

/* What it says when the trace's time is `ns`, a multiple of a microsecond. */
static int64_t local(const struct clock *clock, int64_t ns)
{
    return ORIGIN_NS + ns + ns / 1000 + clock->ahead_ns;
}

/* Measured when the trace's time is `ns`. */
static struct trace_clock measured(const struct clock *clock, int64_t ns, int64_t uncertainty_ns)
{
    return (struct trace_clock){.at_ns = local(clock, ns),
                                .offset_ns = ORIGIN_NS + ns - local(clock, ns),
                                .uncertainty_ns = uncertainty_ns};
}

static struct trace_writer *write_rank(const struct trace_rank *rank, const char *run_dir,
                                       const struct clock *clock)
{
    struct trace_writer *writer = NULL;
    struct span_ring ring;
    char path[SCRATCH_PATH_BYTES + 64];
    const struct trace_clock start = measured(clock, 0, 31000);
    const struct trace_clock end = measured(clock, SECOND, 17000);
    const struct trace_writer_config config = {.path = path,
                                               .run_name = "clocks",
                                               .rank = rank->rank,
                                               .pipeline_rank = rank->pipeline_rank,
                                               .most_bytes = (uint64_t)1 << 30,
                                               .origin_ns = ORIGIN_NS,
                                               .clock = &start};

    (void)snprintf(path, sizeof(path), "%s/trace/rank-%d.json", run_dir, (int)rank->rank);
    assert_int_equal(span_ring_init(&ring, rank->count + 1), STATUS_OK);
    assert_int_equal(trace_writer_open(&config, &writer), STATUS_OK);
    for (size_t item = 0; item < rank->count; item++) {
        struct span span = rank->spans[item];

        span.begin_ns = local(clock, span.begin_ns);
        span.end_ns = local(clock, span.end_ns);
        span_ring_put(&ring, &span);
    }
    assert_int_equal(trace_writer_drain(writer, &ring), STATUS_OK);
    if (clock->has_end) {
        assert_int_equal(trace_writer_put_clock(writer, &end), STATUS_OK);
    }
    if (!clock->is_killed) {
        assert_int_equal(trace_writer_close(&writer), STATUS_OK);
    }
    span_ring_release(&ring);
    return writer;
}

static char *merged(const struct trace_run *run, const struct scratch *scratch, const char *name)
{
    char path[SCRATCH_PATH_BYTES];
    size_t bytes = 0;

    scratch_path(scratch, name, path);
    assert_int_equal(trace_merge_write(run, path), STATUS_OK);
    return scratch_read(path, &bytes);
}

/* Rank 2, on another host, leaves what it would have left on rank 0's. */
static void assert_aligned(int64_t ahead_ns)
{
    const struct clock clock = {.ahead_ns = ahead_ns, .has_end = true};
    struct scratch scratch;
    struct trace_run truth;
    struct trace_run run;

    scratch_make(&scratch);
    scratch_folder(&scratch, "trace");
    demo_run_make(&three, "clocks", &truth);
    demo_run_write(&truth, scratch.path);
    (void)write_rank(&truth.ranks[2], scratch.path, &clock);
    assert_int_equal(trace_read(scratch.path, &run), STATUS_OK);
    assert_int_equal(run.ranks[1].clock_count, 0);
    assert_int_equal(run.ranks[2].clock_count, 2);
    for (size_t index = 0; index < 3; index++) {
        assert_int_equal(run.ranks[index].count, truth.ranks[index].count);
        assert_memory_equal(run.ranks[index].spans, truth.ranks[index].spans,
                            run.ranks[index].count * sizeof(struct span));
    }
    char *of_truth = merged(&truth, &scratch, "truth.json");
    char *of_run = merged(&run, &scratch, "run.json");

    assert_string_equal(of_run, of_truth);
    free(of_truth);
    free(of_run);
    trace_run_release(&run);
    trace_run_release(&truth);
    scratch_remove(&scratch);
}

static void a_skewed_and_drifting_clock_is_mapped_to_rank_0s_to_the_nanosecond(void **state)
{
    (void)state;
    assert_aligned(0);
    assert_aligned(1204000);
    assert_aligned(-777 * SECOND);
}

/* Hosts count from when they were started. */
static void hosts_that_were_started_years_apart_lose_no_nanosecond(void **state)
{
    (void)state;
    assert_aligned(5 * YEAR);
    assert_aligned(-5 * YEAR);
}

static void a_run_that_was_killed_has_the_starts_measurement_alone(void **state)
{
    const struct clock clock = {.ahead_ns = 1204000, .is_killed = true};
    struct scratch scratch;
    struct trace_run truth;
    struct trace_run run;

    (void)state;
    scratch_make(&scratch);
    scratch_folder(&scratch, "trace");
    demo_run_make(&three, "clocks", &truth);
    struct trace_writer *writer = write_rank(&truth.ranks[2], scratch.path, &clock);

    assert_int_equal(trace_read(scratch.path, &run), STATUS_OK);
    assert_int_equal(run.count, 1);
    assert_false(run.ranks[0].complete);
    assert_int_equal(run.ranks[0].clock_count, 1);
    assert_int_equal(run.ranks[0].clocks[0].offset_ns, -1204000);
    assert_int_equal(run.ranks[0].clocks[0].uncertainty_ns, 31000);
    assert_int_equal(run.ranks[0].count, truth.ranks[2].count);
    for (size_t item = 0; item < run.ranks[0].count; item++) {
        int64_t true_ns = truth.ranks[2].spans[item].begin_ns;

        /* What it gains stays in. */
        assert_int_equal(run.ranks[0].spans[item].begin_ns, true_ns + true_ns / 1000);
    }
    trace_run_release(&run);
    assert_int_equal(trace_writer_close(&writer), STATUS_OK);
    trace_run_release(&truth);
    scratch_remove(&scratch);
}

static void times_between_and_beyond_the_measurements_lie_on_one_line(void **state)
{
    struct trace_rank rank = {.rank = 1};
    const struct trace_clock first = {.at_ns = 1000, .offset_ns = -1204000};
    const struct trace_clock second = {.at_ns = SECOND + 1000, .offset_ns = -1204000 - 3100};

    (void)state;
    assert_int_equal(trace_clock_map(&rank, 4711), 4711);
    assert_int_equal(trace_clock_add(&rank, &first, 0), STATUS_OK);
    assert_int_equal(trace_clock_map(&rank, 5 * SECOND), 5 * SECOND - 1204000);
    assert_int_equal(trace_clock_add(&rank, &second, 0), STATUS_OK);
    assert_int_equal(trace_clock_map(&rank, 1000), 1000 - 1204000);
    assert_int_equal(trace_clock_map(&rank, SECOND / 2 + 1000), SECOND / 2 + 1000 - 1204000 - 1550);
    assert_int_equal(trace_clock_map(&rank, SECOND + 1000), SECOND + 1000 - 1204000 - 3100);
    assert_int_equal(trace_clock_map(&rank, 2 * SECOND + 1000), 2 * SECOND + 1000 - 1204000 - 6200);
    assert_int_equal(trace_clock_map(&rank, 1000 - SECOND), 1000 - SECOND - 1204000 + 3100);
}

/* An activation that is sent at 100 us and used at 130, a gradient that is sent at 200 and used at 215. */
static const struct hand_span there_and_back[] = {
    HAND_F(0, 0, 0, 0, 100),
    HAND_SEND(0, 0, 0, 0, 1, 100, 110),
    HAND_RECV(1, 1, 0, 0, 0, 90, 130),
    HAND_F(1, 1, 0, 130, 150),
    HAND_I(1, 1, 0, 150, 200),
    HAND_SEND(1, 1, 0, 1, 0, 200, 210),
    HAND_RECV(0, 0, 0, 1, 1, 120, 215),
    HAND_I(0, 0, 0, 215, 300),
};

/* Rank 1 is said to be `behind_us` behind, give or take 5 us. */
static struct trace_causality check_behind(int64_t behind_us, char **text_out)
{
    const struct trace_clock clock = {
        .at_ns = 0, .offset_ns = behind_us * 1000, .uncertainty_ns = 5000};
    struct trace_causality causality;
    struct trace_run run;
    size_t bytes = 0;
    FILE *memory = open_memstream(text_out, &bytes);

    assert_non_null(memory);
    hand_run_make(there_and_back, sizeof(there_and_back) / sizeof(there_and_back[0]), 2, &run);
    assert_int_equal(trace_clock_add(&run.ranks[1], &clock, 0), STATUS_OK);
    trace_clock_align(&run);
    assert_int_equal(trace_clock_check(&run, &causality), STATUS_OK);
    assert_int_equal(trace_clock_print(&run, memory), STATUS_OK);
    assert_int_equal(fclose(memory), 0);
    trace_run_release(&run);
    return causality;
}

static void messages_bound_a_wrong_offset_from_both_sides(void **state)
{
    char *text = NULL;
    struct trace_causality causality = check_behind(0, &text);

    (void)state;
    assert_int_equal(causality.ranks, 1);
    assert_int_equal(causality.messages, 2);
    assert_int_equal(causality.violations, 0);
    free(text);

    /* The activation is used at 130 - 40 = 90, 10 us before it is sent. */
    causality = check_behind(-40, &text);
    assert_int_equal(causality.violations, 1);
    assert_int_equal(causality.worst_ns, 10000);
    assert_int_equal(causality.allowed_ns, 5000);
    assert_int_equal(causality.sender, 0);
    assert_int_equal(causality.receiver, 1);
    assert_string_equal(
        text, "clocks: rank 1 +0.040 ms ± 0.005 ms, drift unknown (no measurement at the end); "
              "1 of 2 messages arrive before they were sent, the worst, from rank 0 to rank 1, by "
              "0.010 ms ± 0.005 ms: do not trust times across ranks\n");
    free(text);

    /* The gradient is sent at 200 + 40 = 240, 25 us after it is used. */
    causality = check_behind(40, &text);
    assert_int_equal(causality.violations, 1);
    assert_int_equal(causality.worst_ns, 25000);
    assert_int_equal(causality.sender, 1);
    assert_int_equal(causality.receiver, 0);
    free(text);
}

static void what_the_uncertainty_allows_is_no_violation(void **state)
{
    char *text = NULL;

    (void)state;
    /* Used 5 us before it is sent, and 6. */
    assert_int_equal(check_behind(-35, &text).violations, 0);
    assert_non_null(strstr(text, "; no message arrives before it was sent\n"));
    free(text);
    assert_int_equal(check_behind(-36, &text).violations, 1);
    free(text);
}

static void the_worst_is_the_one_furthest_beyond_what_is_allowed(void **state)
{
    /* From rank 0 to 1 and on to 2, each used 10 us after it is sent. */
    static const struct hand_span on[] = {
        HAND_SEND(0, 0, 0, 0, 1, 100, 105),
        HAND_RECV(1, 1, 0, 0, 0, 90, 110),
        HAND_SEND(1, 1, 0, 0, 2, 200, 205),
        HAND_RECV(2, 2, 0, 0, 1, 90, 210),
    };
    /* 30 us too early by clocks 1 us exact; rank 2 another 40 by one that is 30 us exact. */
    const struct trace_clock one = {.offset_ns = -30000, .uncertainty_ns = 1000};
    const struct trace_clock two = {.offset_ns = -70000, .uncertainty_ns = 30000};
    struct trace_causality causality;
    struct trace_run run;

    (void)state;
    hand_run_make(on, sizeof(on) / sizeof(on[0]), 3, &run);
    assert_int_equal(trace_clock_add(&run.ranks[1], &one, 0), STATUS_OK);
    assert_int_equal(trace_clock_add(&run.ranks[2], &two, 0), STATUS_OK);
    trace_clock_align(&run);
    assert_int_equal(trace_clock_check(&run, &causality), STATUS_OK);
    /* 100 - 80 = 20 beyond 1; (200 - 30) - (210 - 70) = 30, within 31. */
    assert_int_equal(causality.violations, 1);
    assert_int_equal(causality.worst_ns, 20000);
    assert_int_equal(causality.allowed_ns, 1000);
    assert_int_equal(causality.receiver, 1);
    trace_run_release(&run);
}

static char *report(const struct trace_run *run)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    assert_non_null(memory);
    assert_int_equal(trace_report_print(run, memory), STATUS_OK);
    assert_int_equal(fclose(memory), 0);
    return text;
}

static void the_report_states_offset_uncertainty_and_drift(void **state)
{
    const struct trace_clock first = {.at_ns = 0, .offset_ns = -1204000, .uncertainty_ns = 12000};
    const struct trace_clock second = {
        .at_ns = 100 * SECOND, .offset_ns = -1204310, .uncertainty_ns = 31000};
    struct trace_run run;

    (void)state;
    demo_run_make(&three, "clocks", &run);
    char *text = report(&run);

    assert_null(strstr(text, "clock")); /* one host */
    free(text);
    assert_int_equal(trace_clock_add(&run.ranks[2], &first, first.offset_ns), STATUS_OK);
    assert_int_equal(trace_clock_add(&run.ranks[2], &second, first.offset_ns), STATUS_OK);
    trace_clock_align(&run);
    text = report(&run);
    /* 310 ns in 100 s, give or take 43 us. */
    assert_non_null(strstr(text, "\nclocks: rank 2 +1.204 ms ± 0.031 ms, drift +0.0 ± 0.4 us/s; no "
                                 "message arrives before it was sent\n"));
    free(text);
    assert_int_equal(trace_clock_add(&run.ranks[1], &(struct trace_clock){.offset_ns = 250000}, 0),
                     STATUS_OK);
    text = report(&run);
    assert_non_null(strstr(text, "\nclocks: rank 1 -0.250 ms ± 0.000 ms, drift unknown (no "
                                 "measurement at the end);\n        rank 2 +1.204 ms"));
    free(text);
    trace_run_release(&run);
}

static void a_drift_is_told_in_microseconds_a_second(void **state)
{
    struct trace_rank rank = {.rank = 0};
    struct trace_run run = {.ranks = &rank, .count = 1};
    const struct trace_clock first = {.at_ns = 0, .offset_ns = 500, .uncertainty_ns = 2000};
    const struct trace_clock second = {
        .at_ns = 10 * SECOND, .offset_ns = -30500, .uncertainty_ns = 4000};
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(memory);
    assert_int_equal(trace_clock_add(&rank, &first, 0), STATUS_OK);
    assert_int_equal(trace_clock_add(&rank, &second, 0), STATUS_OK);
    assert_int_equal(trace_clock_print(&run, memory), STATUS_OK);
    assert_int_equal(fclose(memory), 0);
    /* 31 us, give or take 6, in 10 s; it has no messages. */
    assert_non_null(strstr(text, "drift +3.1 ± 0.6 us/s; no message between them shows"));
    free(text);
}

static void write_file(const struct scratch *scratch, const char *lines)
{
    char path[SCRATCH_PATH_BYTES];
    char text[2048];
    int length = snprintf(text, sizeof(text),
                          "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,"
                          "\"args\":{\"name\":\"s\",\"pipeline_rank\":0,\"run\":\"r\"}},\n"
                          "%s,\n"
                          "{\"ph\":\"M\",\"name\":\"weir_end\",\"pid\":0,\"tid\":0,"
                          "\"args\":{\"events\":0,\"dropped\":0}}\n]\n",
                          lines);

    scratch_path(scratch, "trace/rank-0.json", path);
    scratch_write(path, text, (size_t)length);
}

#define CLOCK(args) "{\"ph\":\"M\",\"name\":\"weir_clock\",\"pid\":0,\"args\":{" args "}}"
#define GOOD                                                      \
    CLOCK("\"at_ns\":1000,\"offset_ns\":-5,\"uncertainty_ns\":3") \
    ",\n"

static void a_measurement_that_cannot_be_is_refused_with_file_line_and_key(void **state)
{
    static const struct {
        const char *lines;
        const char *line;
        const char *key;
    } wrong[] = {
        {CLOCK("\"at_ns\":1,\"offset_ns\":2,\"uncertainty_ns\":-1"), "line 3", "uncertainty_ns"},
        {CLOCK("\"at_ns\":1,\"offset_ns\":2"), "line 3", "uncertainty_ns"},
        {CLOCK("\"at_ns\":1,\"offset_ns\":1e300,\"uncertainty_ns\":1"), "line 3", "offset_ns"},
        {CLOCK("\"at_ns\":1,\"offset_ns\":NaN,\"uncertainty_ns\":1"), "line 3", "NaN"},
        {CLOCK("\"at_ns\":\"1\",\"offset_ns\":2,\"uncertainty_ns\":1"), "line 3", "at_ns"},
        {CLOCK("\"at_ns\":9223372036854775807,\"offset_ns\":2,\"uncertainty_ns\":1"), "line 3",
         "at_ns"},
        {CLOCK("\"at_ns\":1,\"offset_ns\":2,\"uncertainty_ns\":1,\"moved_ns\":0.5"), "line 3",
         "moved_ns"},
        {GOOD CLOCK("\"at_ns\":1000,\"offset_ns\":-5,\"uncertainty_ns\":3"), "line 4", "at_ns"},
        {GOOD CLOCK("\"at_ns\":900,\"offset_ns\":-5,\"uncertainty_ns\":3"), "line 4", "at_ns"},
        {GOOD CLOCK("\"at_ns\":1100,\"offset_ns\":95,\"uncertainty_ns\":3"), "line 4", "offset_ns"},
        {GOOD CLOCK("\"at_ns\":1100,\"offset_ns\":-105,\"uncertainty_ns\":3"), "line 4",
         "offset_ns"},
        {GOOD CLOCK("\"at_ns\":1100,\"offset_ns\":-5,\"uncertainty_ns\":3,\"moved_ns\":1"),
         "line 4", "moved_ns"},
        {GOOD CLOCK("\"at_ns\":1100,\"offset_ns\":-5,\"uncertainty_ns\":3") ",\n" CLOCK(
             "\"at_ns\":1200,\"offset_ns\":-5,\"uncertainty_ns\":3"),
         "line 5", "third"},
    };

    (void)state;
    for (size_t index = 0; index < sizeof(wrong) / sizeof(wrong[0]); index++) {
        struct scratch scratch;
        struct trace_run run;

        scratch_make(&scratch);
        scratch_folder(&scratch, "trace");
        write_file(&scratch, wrong[index].lines);
        assert_int_equal(trace_read(scratch.path, &run), STATUS_ERR_FORMAT);
        assert_non_null(strstr(status_last()->message, "trace/rank-0.json"));
        assert_non_null(strstr(status_last()->message, wrong[index].line));
        assert_non_null(strstr(status_last()->message, wrong[index].key));
        scratch_remove(&scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skewed_and_drifting_clock_is_mapped_to_rank_0s_to_the_nanosecond),
        cmocka_unit_test(hosts_that_were_started_years_apart_lose_no_nanosecond),
        cmocka_unit_test(a_run_that_was_killed_has_the_starts_measurement_alone),
        cmocka_unit_test(times_between_and_beyond_the_measurements_lie_on_one_line),
        cmocka_unit_test(messages_bound_a_wrong_offset_from_both_sides),
        cmocka_unit_test(what_the_uncertainty_allows_is_no_violation),
        cmocka_unit_test(the_worst_is_the_one_furthest_beyond_what_is_allowed),
        cmocka_unit_test(the_report_states_offset_uncertainty_and_drift),
        cmocka_unit_test(a_drift_is_told_in_microseconds_a_second),
        cmocka_unit_test(a_measurement_that_cannot_be_is_refused_with_file_line_and_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
