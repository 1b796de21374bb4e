/* The binary trace, decoded by its published schema and compared span by span. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/protobuf.h"
#include "scheduler/trace_perfetto.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/hand_run.h"
#include "tests/scheduler/perfetto_reader.h"
#include "tests/scheduler/scratch.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_INTERLEAVED_1F1B,
                                                  .ranks = 2,
                                                  .microbatches = 4,
                                                  .virtual_stages = 2,
                                                  .lane_depth = 2,
                                                  .early_send = true},
                                        .first_step = 3,
                                        .steps = 2,
                                        .forward_ms = 3.1,
                                        .input_ms = 3.3,
                                        .weight_ms = 2.9,
                                        .message_ms = 0.3,
                                        .update_ms = 2.0};

static void decode(const struct trace_run *run, struct perfetto_trace *trace_out)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char *bytes = NULL;
    size_t count = 0;

    scratch_make(&scratch);
    scratch_path(&scratch, "trace.pftrace", path);
    assert_int_equal(trace_perfetto_write(run, path), STATUS_OK);
    bytes = scratch_read(path, &count);
    perfetto_read((const unsigned char *)bytes, count, trace_out);
    free(bytes);
    scratch_remove(&scratch);
}

/* The slice of a span, which must be there once; it is crossed out. */
static struct perfetto_slice *take_slice(struct perfetto_trace *trace, const char *process,
                                         const char *category, const struct span *span)
{
    for (size_t index = 0; index < trace->slice_count; index++) {
        struct perfetto_slice *slice = &trace->slices[index];

        if (slice->begin == (uint64_t)span->begin_ns && slice->end == (uint64_t)span->end_ns &&
            strcmp(slice->category, category) == 0 && strcmp(slice->process, process) == 0 &&
            slice->step == span->args[TRACE_ARG_STEP] &&
            slice->microbatch == span->args[TRACE_ARG_MICROBATCH] &&
            slice->peer == span->args[TRACE_ARG_PEER] && slice->bytes == (int64_t)span->bytes) {
            slice->category[0] = '\0';
            return slice;
        }
    }
    fail_msg("no slice of %s from %lld", category, (long long)span->begin_ns);
    return NULL;
}

static void every_span_is_one_slice(void **state)
{
    static const char *const names[] = {"F",    "I",         "W",    "B",       "wait",
                                        "send", "recv",      "sync", "reduce",  "gather",
                                        "step", "optimizer", "data", "evaluate"};
    struct trace_run run;
    struct perfetto_trace trace;
    size_t spans = 0;

    (void)state;
    demo_run_make(&demo, "demo", &run);
    decode(&run, &trace);
    for (size_t index = 0; index < run.count; index++) {
        const struct trace_rank *rank = &run.ranks[index];
        char process[64];

        (void)snprintf(process, sizeof(process), "stage %d (rank %d)", (int)rank->pipeline_rank,
                       (int)rank->rank);
        for (size_t item = 0; item < rank->count; item++) {
            (void)take_slice(&trace, process, names[rank->spans[item].kind], &rank->spans[item]);
        }
        spans += rank->count;
    }
    assert_int_equal(trace.slice_count, spans);
    assert_int_equal(trace.clock, 3); /* BUILTIN_CLOCK_MONOTONIC */
    perfetto_release(&trace);
    trace_run_release(&run);
}

static void slices_have_the_names_of_the_plan(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 2, 13, 0, 10),
        HAND_SEND(0, 2, 13, LANE_F, 1, 10, 11),
        HAND_RECV(1, 3, 13, LANE_F, 0, 0, 12),
        HAND_F(1, 3, 13, 12, 20),
        HAND_OTHER(1, STEP, 20, 25),
    };
    static const char *const names[] = {"2F13", "3RECV_F13", "2SEND_F13", "3F13", "step"};
    static const char *const tracks[] = {"compute", "recv F", "send F", "compute", "control"};
    struct trace_run run;
    struct perfetto_trace trace;

    (void)state;
    hand_run_make(spans, COUNT(spans), 2, &run);
    decode(&run, &trace);
    assert_int_equal(trace.slice_count, 5);
    for (size_t index = 0; index < 5; index++) {
        assert_string_equal(trace.slices[index].name, names[index]);
        assert_string_equal(trace.slices[index].track, tracks[index]);
    }
    perfetto_release(&trace);
    trace_run_release(&run);
}

/* From the SEND to the F that reads the message, which begins later: the RECV began before. */
static void an_arrow_goes_from_the_copy_to_the_reader(void **state)
{
    struct trace_run run;
    struct perfetto_trace trace;
    size_t begins = 0;
    size_t ends = 0;

    (void)state;
    demo_run_make(&demo, "demo", &run);
    decode(&run, &trace);
    for (size_t index = 0; index < trace.slice_count; index++) {
        const struct perfetto_slice *slice = &trace.slices[index];

        if (slice->flow == 0 || slice->flow_ends) {
            ends += slice->flow != 0 ? 1 : 0;
            continue;
        }
        begins++;
        assert_string_equal(slice->category, "send");
        for (size_t other = 0; other < trace.slice_count; other++) {
            const struct perfetto_slice *end = &trace.slices[other];

            if (end->flow == slice->flow && end->flow_ends) {
                assert_true(end->begin >= slice->begin);
                assert_int_equal(end->microbatch, slice->microbatch);
                assert_string_not_equal(end->process, slice->process);
            }
        }
    }
    /* Two steps, four micro-batches, three borders of four virtual stages, both directions. */
    assert_int_equal(begins, 2 * 4 * 3 * 2);
    assert_int_equal(ends, begins);
    perfetto_release(&trace);
    trace_run_release(&run);
}

/* A stash of 100 bytes from 0 to 30, two of them from 10 to 30; 5 of gradients from 20. */
static void counters_say_what_is_taken(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, 0, 10),  HAND_F(0, 0, 1, 10, 20), HAND_I(0, 0, 0, 20, 25),
        HAND_W(0, 0, 0, 25, 30), HAND_I(0, 0, 1, 40, 45), HAND_W(0, 0, 1, 45, 50),
    };
    struct trace_memory_size size = {.virtual_stage = 0, .stash_bytes = 100, .gradient_bytes = 5};
    struct trace_run run;
    struct perfetto_trace trace;
    int64_t most = 0;
    size_t stashes = 0;

    (void)state;
    hand_run_make(spans, COUNT(spans), 1, &run);
    run.ranks[0].sizes = malloc(sizeof(size));
    assert_non_null(run.ranks[0].sizes);
    run.ranks[0].sizes[0] = size;
    run.ranks[0].size_count = 1;
    decode(&run, &trace);
    for (size_t index = 0; index < trace.value_count; index++) {
        if (strcmp(trace.values[index].track, "stashes") == 0) {
            stashes++;
            most = trace.values[index].value > most ? trace.values[index].value : most;
            if (trace.values[index].ns == 10000) {
                assert_int_equal(trace.values[index].value, 200);
            }
        }
    }
    assert_true(stashes >= 4);
    assert_int_equal(most, 200);
    perfetto_release(&trace);
    trace_run_release(&run);
}

/* Times below 0 move all others; overlaps go to a further track. */
static void what_overlaps_or_begins_early_is_shown_too(void **state)
{
    static const struct hand_span spans[] = {
        HAND_F(0, 0, 0, -5, 10),
        HAND_F(0, 0, 1, 5, 15),
        HAND_F(0, 0, 2, 10, 10),
        HAND_F(0, 0, 3, 10, 10),
    };
    struct trace_run run;
    struct perfetto_trace trace;

    (void)state;
    hand_run_make(spans, COUNT(spans), 1, &run);
    decode(&run, &trace);
    assert_int_equal(trace.slice_count, 4);
    assert_int_equal(trace.slices[0].begin, 0);
    assert_int_equal(trace.slices[0].end, 15000);
    assert_string_equal(trace.slices[1].track, "compute (2)");
    assert_int_equal(trace.slices[1].begin, 10000);
    assert_int_equal(trace.slices[1].end, 20000);
    perfetto_release(&trace);
    trace_run_release(&run);
}

/* The examples of the published description of the wire format: 150 in field 1 is 08 96 01, "testing"
 * in field 2 is 12 07 and the text, a message with the first in field 3 is 1a 03 08 96 01. */
static void fields_are_written_as_published(void **state)
{
    static const unsigned char expected[] = {
        0x08, 0x96, 0x01, 0x12, 0x07, 't',  'e',  's',  't',  'i',  'n', 'g', 0x1a,
        0x03, 0x08, 0x96, 0x01, 0x21, 0x02, 0x01, 0,    0,    0,    0,   0,   0,
        0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    struct protobuf inner = {0};
    struct protobuf outer = {0};

    (void)state;
    protobuf_put_uint(&inner, 1, 150);
    protobuf_put_uint(&outer, 1, 150);
    protobuf_put_text(&outer, 2, "testing");
    protobuf_put_message(&outer, 3, &inner);
    protobuf_put_fixed64(&outer, 4, 0x102);
    protobuf_put_int(&outer, 5, -1);
    assert_false(outer.failed);
    assert_int_equal(outer.count, sizeof(expected));
    assert_memory_equal(outer.bytes, expected, sizeof(expected));
    protobuf_release(&inner);
    protobuf_release(&outer);
}

static void a_place_that_cannot_be_written_is_an_error(void **state)
{
    struct trace_run run;

    (void)state;
    demo_run_make(&demo, "run", &run);
    assert_int_equal(trace_perfetto_write(&run, "/nonexistent/trace"), STATUS_ERR_IO);
    assert_int_equal(trace_perfetto_write(&run, "/dev/full"), STATUS_ERR_IO);
    trace_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_span_is_one_slice),
        cmocka_unit_test(slices_have_the_names_of_the_plan),
        cmocka_unit_test(an_arrow_goes_from_the_copy_to_the_reader),
        cmocka_unit_test(counters_say_what_is_taken),
        cmocka_unit_test(what_overlaps_or_begins_early_is_shown_too),
        cmocka_unit_test(fields_are_written_as_published),
        cmocka_unit_test(a_place_that_cannot_be_written_is_an_error),
    };

    return cmocka_run_group_tests_name("trace_perfetto", tests, NULL, NULL);
}
