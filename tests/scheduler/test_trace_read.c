/* Reading a run's traces back, whole, cut or wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/trace.h"
#include "scheduler/trace_read.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/scratch.h"

static const struct demo_config small = {.shape = {.schedule = SCHEDULE_1F1B,
                                                   .ranks = 2,
                                                   .microbatches = 2,
                                                   .virtual_stages = 1,
                                                   .lane_depth = 2,
                                                   .early_send = true},
                                         .first_step = 4,
                                         .steps = 3,
                                         .forward_ms = 2.0,
                                         .input_ms = 2.0,
                                         .weight_ms = 1.5,
                                         .message_ms = 0.25,
                                         .update_ms = 1.0};

static void make_folder(struct scratch *scratch)
{
    scratch_make(scratch);
    scratch_folder(scratch, "trace");
}

static void every_span_comes_back(void **state)
{
    struct scratch scratch;
    struct trace_run written;
    struct trace_run run;

    (void)state;
    make_folder(&scratch);
    demo_run_make(&small, "a \"run\"\n\x01", &written);
    demo_run_write(&written, scratch.path);
    assert_int_equal(trace_read(scratch.path, &run), STATUS_OK);
    assert_string_equal(run.name, "a \"run\"\n\x01");
    assert_int_equal(run.count, 2);
    for (size_t index = 0; index < 2; index++) {
        assert_int_equal(run.ranks[index].rank, index);
        assert_int_equal(run.ranks[index].pipeline_rank, index);
        assert_int_equal(run.ranks[index].count, written.ranks[index].count);
        assert_memory_equal(run.ranks[index].spans, written.ranks[index].spans,
                            run.ranks[index].count * sizeof(struct span));
        assert_true(run.ranks[index].complete);
        assert_int_equal(run.ranks[index].dropped, 0);
    }
    trace_run_release(&run);
    trace_run_release(&run);
    trace_run_release(&written);
    scratch_remove(&scratch);
}

/* Events of whole lines: each ends with "}}" and what follows it in the file. */
static size_t whole_events(const char *text, size_t text_bytes)
{
    size_t found = 0;

    for (size_t at = 0; at < text_bytes; at++) {
        if (strncmp(text + at, "{\"ph\":\"X\"", 9) == 0) {
            const char *end = strstr(text + at, "}}");

            found += end != NULL && (size_t)(end + 2 - text) <= text_bytes ? 1 : 0;
        }
    }
    return found;
}

static void a_file_cut_at_any_byte_still_reads(void **state)
{
    struct scratch scratch;
    struct trace_run written;
    char path[SCRATCH_PATH_BYTES];
    char *text = NULL;
    size_t text_bytes = 0;

    (void)state;
    make_folder(&scratch);
    demo_run_make(&small, "run", &written);
    written.ranks[0].count = 6; /* enough to cut in every way, and quick */
    demo_run_write(&written, scratch.path);
    scratch_path(&scratch, "trace/rank-0.json", path);
    text = scratch_read(path, &text_bytes);
    for (size_t cut = 0; cut <= text_bytes; cut++) {
        struct trace_run run;
        bool is_named = memchr(text, '}', cut) != NULL && cut > 90;

        scratch_write(path, text, cut);
        assert_int_equal(trace_read(scratch.path, &run), STATUS_OK);
        /* Rank 1 is whole; rank 0 is there as soon as its first line is. */
        if (run.count == 2) {
            assert_int_equal(run.ranks[0].count, whole_events(text, cut));
            assert_true(is_named);
        } else {
            assert_int_equal(run.count, 1);
            assert_int_equal(whole_events(text, cut), 0);
        }
        trace_run_release(&run);
    }
    free(text);
    trace_run_release(&written);
    scratch_remove(&scratch);
}

static void write_rank(const struct scratch *scratch, const char *middle)
{
    char path[SCRATCH_PATH_BYTES];
    char text[2048];
    int length = snprintf(text, sizeof(text),
                          "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,"
                          "\"args\":{\"name\":\"s\",\"pipeline_rank\":0,\"run\":\"r\"}},\n"
                          "%s,\n"
                          "{\"ph\":\"M\",\"name\":\"weir_end\",\"pid\":0,\"tid\":0,"
                          "\"args\":{\"events\":1,\"dropped\":0}}\n]\n",
                          middle);

    scratch_path(scratch, "trace/rank-0.json", path);
    scratch_write(path, text, (size_t)length);
}

static const char step_too_large[] =
    "{\"ph\":\"X\",\"name\":\"F\",\"cat\":\"F\",\"ts\":1,\"dur\":1,"
    "\"args\":{\"bytes\":0,\"step\":2147483648}}";

static void a_malformed_line_is_refused_with_its_place(void **state)
{
    static const char *const lines[] = {
        "{\"ph\":\"X\"",
        "17",
        "{\"ph\":\"X\",\"name\":\"F\"}",
        "{\"ph\":7,\"name\":\"F\"}",
        "{\"ph\":\"X\",\"name\":\"F\",\"cat\":\"F\",\"ts\":\"1\",\"dur\":1,\"args\":{\"bytes\":0}}",
        "{\"ph\":\"X\",\"name\":\"F\",\"cat\":\"F\",\"ts\":1e300,\"dur\":1,\"args\":{\"bytes\":0}}",
        "{\"ph\":\"X\",\"name\":\"F\",\"cat\":\"F\",\"ts\":1,\"dur\":-1,\"args\":{\"bytes\":0}}",
        "{\"ph\":\"X\",\"name\":\"F\",\"cat\":\"F\",\"ts\":1,\"dur\":1,\"args\":{\"bytes\":-1}}",
        "{\"ph\":\"X\",\"name\":\"F\",\"cat\":\"F\",\"ts\":1,\"dur\":1,\"args\":{\"step\":1.5}}",
        step_too_large,
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":-1,\"args\":{\"run\":\"r\"}}",
    };

    (void)state;
    for (size_t index = 0; index < sizeof(lines) / sizeof(lines[0]); index++) {
        struct scratch scratch;
        struct trace_run run;

        make_folder(&scratch);
        write_rank(&scratch, lines[index]);
        assert_int_equal(trace_read(scratch.path, &run), STATUS_ERR_FORMAT);
        assert_non_null(strstr(status_last()->message, "trace/rank-0.json, line 3"));
        scratch_remove(&scratch);
    }
}

static void events_that_a_newer_version_may_write_are_skipped(void **state)
{
    struct scratch scratch;
    struct trace_run run;

    (void)state;
    make_folder(&scratch);
    write_rank(&scratch, "{\"ph\":\"X\",\"name\":\"n\",\"cat\":\"new\",\"ts\":1,\"dur\":1},\n"
                         "{\"ph\":\"C\",\"name\":\"bytes\",\"ts\":1}");
    assert_int_equal(trace_read(scratch.path, &run), STATUS_OK);
    assert_int_equal(run.ranks[0].count, 0);
    assert_true(run.ranks[0].complete);
    trace_run_release(&run);
    scratch_remove(&scratch);
}

static void a_run_that_is_not_there_is_refused(void **state)
{
    struct trace_run run;

    (void)state;
    assert_int_equal(trace_read("/nonexistent/run", &run), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "/nonexistent/run"));
}

static void a_run_without_a_trace_is_refused_with_the_key_that_makes_one(void **state)
{
    struct scratch scratch;
    struct trace_run run;

    (void)state;
    scratch_make(&scratch);
    assert_int_equal(trace_read(scratch.path, &run), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "--trace.enabled=true"));
    scratch_folder(&scratch, "trace");
    assert_int_equal(trace_read(scratch.path, &run), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "--trace.enabled=true"));
    scratch_remove(&scratch);
}

static void other_files_of_the_folder_are_left_alone(void **state)
{
    static const char *const names[] = {"trace/trace.json", "trace/rank-.json",
                                        "trace/rank-0.json~", "trace/rank-1x.json"};
    struct scratch scratch;
    struct trace_run run;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    make_folder(&scratch);
    write_rank(&scratch, "{\"ph\":\"C\",\"name\":\"bytes\",\"ts\":1}");
    for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
        scratch_path(&scratch, names[index], path);
        scratch_write(path, "no\njson\nat all", 14);
    }
    assert_int_equal(trace_read(scratch.path, &run), STATUS_OK);
    assert_int_equal(run.count, 1);
    trace_run_release(&run);
    scratch_remove(&scratch);
}

static void the_steps_are_those_that_every_rank_has_whole(void **state)
{
    struct trace_run run;
    int32_t first = 0;
    int32_t last = 0;

    (void)state;
    demo_run_make(&small, "run", &run);
    assert_int_equal(trace_run_steps(&run, &first, &last), STATUS_OK);
    assert_int_equal(first, 4);
    assert_int_equal(last, 6);
    run.ranks[1].complete = false; /* its last step may lack its end */
    assert_int_equal(trace_run_steps(&run, &first, &last), STATUS_OK);
    assert_int_equal(last, 5);
    run.ranks[1].complete = true;
    run.ranks[0].dropped = 1;
    assert_int_equal(trace_run_steps(&run, &first, &last), STATUS_OK);
    assert_int_equal(last, 5);
    run.ranks[0].dropped = 0;
    trace_run_keep(&run, 5, 5);
    assert_int_equal(trace_run_steps(&run, &first, &last), STATUS_OK);
    assert_int_equal(first, 5);
    assert_int_equal(last, 5);
    run.ranks[0].count = 0;
    assert_int_equal(trace_run_steps(&run, &first, &last), STATUS_ERR_REFUSED);
    trace_run_release(&run);
}

static void replicas_are_numbered_within_a_stage(void **state)
{
    struct trace_rank ranks[6] = {{0}};
    struct trace_run run = {.ranks = ranks, .count = 6};

    (void)state;
    /* Three pipelines of two stages, found in any order. */
    for (int32_t index = 0; index < 6; index++) {
        ranks[index].rank = 5 - index;
        ranks[index].pipeline_rank = (5 - index) / 3;
    }
    trace_run_arrange(&run);
    for (int32_t index = 0; index < 6; index++) {
        assert_int_equal(ranks[index].rank, index);
        assert_int_equal(ranks[index].replica, index % 3);
    }
    assert_int_equal(trace_run_stages(&run), 2);
}

/* A file that was copied under another rank's name, or two that were put together. */
static void a_file_of_another_rank_is_refused(void **state)
{
    struct scratch scratch;
    struct trace_run written;
    struct trace_run run;
    char from[SCRATCH_PATH_BYTES];
    char to[SCRATCH_PATH_BYTES];
    char *text = NULL;
    char *twice = NULL;
    size_t bytes = 0;

    (void)state;
    make_folder(&scratch);
    demo_run_make(&small, "run", &written);
    demo_run_write(&written, scratch.path);
    scratch_path(&scratch, "trace/rank-1.json", from);
    scratch_path(&scratch, "trace/rank-7.json", to);
    text = scratch_read(from, &bytes);
    scratch_write(to, text, bytes);
    assert_int_equal(trace_read(scratch.path, &run), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "rank-7.json, line 2: names rank 1, but"));
    assert_int_equal(remove(to), 0);
    twice = malloc(2 * bytes);
    assert_non_null(twice);
    memcpy(twice, text, bytes);
    memcpy(twice + bytes, text, bytes);
    scratch_write(from, twice, 2 * bytes);
    assert_int_equal(trace_read(scratch.path, &run), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "names rank 1 after rank 1"));
    free(twice);
    free(text);
    trace_run_release(&written);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_span_comes_back),
        cmocka_unit_test(a_file_cut_at_any_byte_still_reads),
        cmocka_unit_test(a_file_of_another_rank_is_refused),
        cmocka_unit_test(a_malformed_line_is_refused_with_its_place),
        cmocka_unit_test(events_that_a_newer_version_may_write_are_skipped),
        cmocka_unit_test(a_run_that_is_not_there_is_refused),
        cmocka_unit_test(a_run_without_a_trace_is_refused_with_the_key_that_makes_one),
        cmocka_unit_test(other_files_of_the_folder_are_left_alone),
        cmocka_unit_test(the_steps_are_those_that_every_rank_has_whole),
        cmocka_unit_test(replicas_are_numbered_within_a_stage),
    };

    return cmocka_run_group_tests_name("trace_read", tests, NULL, NULL);
}
