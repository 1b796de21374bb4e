/* What is taken of a rank's buffers over time, against a timeline drawn by hand and against plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/action.h"
#include "scheduler/trace.h"
#include "scheduler/trace_memory.h"
#include "scheduler/trace_merge.h"
#include "scheduler/trace_summary.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/scratch.h"

#define STASH    1000
#define GRADIENT 300
#define MESSAGE  ((int64_t)10)

/* Of the simulated runs. */
#define DEMO_MESSAGE 3145728

static void put(struct trace_rank *rank, enum trace_kind kind, int64_t begin_ns, int64_t end_ns,
                int32_t microbatch)
{
    struct span span = {.kind = kind, .begin_ns = begin_ns, .end_ns = end_ns};

    for (int arg = 0; arg < SPAN_ARGS; arg++) {
        span.args[arg] = ACTION_NONE;
    }
    span.args[TRACE_ARG_STEP] = 1;
    span.args[TRACE_ARG_MICROBATCH] = microbatch;
    span.args[TRACE_ARG_VIRTUAL_STAGE] = rank->pipeline_rank;
    span.args[TRACE_ARG_EVALUATION] = 0;
    assert_int_equal(trace_rank_append(rank, &span), STATUS_OK);
}

static void put_message(struct trace_rank *rank, enum trace_kind kind, int64_t begin_ns,
                        int64_t end_ns, int32_t microbatch, enum lane_direction direction)
{
    struct span *span = NULL;

    put(rank, kind, begin_ns, end_ns, microbatch);
    span = &rank->spans[rank->count - 1];
    span->bytes = kind == TRACE_SEND ? MESSAGE : 0;
    span->args[TRACE_ARG_PEER] = 1 - rank->pipeline_rank;
    span->args[TRACE_ARG_SEQUENCE] = microbatch;
    span->args[TRACE_ARG_DIRECTION] = (int32_t)direction;
}

static void assert_point(const struct trace_memory *memory, size_t index, int64_t ns,
                         int64_t stashes, int64_t gradients, int64_t landing)
{
    assert_true(index < memory->count);
    assert_int_equal(memory->points[index].ns, ns);
    assert_int_equal(memory->points[index].bytes[TRACE_MEMORY_STASHES], stashes);
    assert_int_equal(memory->points[index].bytes[TRACE_MEMORY_DY], gradients);
    assert_int_equal(memory->points[index].bytes[TRACE_MEMORY_LANDING], landing);
}

/* Rank 1 of two:       F0 20-30, B0 30-50, F1 50-60, I1 60-70, W1 70-80,
 * messages of rank 0:  activation 0 there at 18, activation 1 at 28; rank 0 does nothing else. */
static void a_timeline_made_by_hand_gives_the_numbers_of_the_hand(void **state)
{
    struct trace_rank ranks[2] = {{.rank = 0}, {.rank = 1, .pipeline_rank = 1}};
    struct trace_run run = {.ranks = ranks, .count = 2};
    struct trace_memory_size size = {
        .virtual_stage = 1, .stash_bytes = STASH, .gradient_bytes = GRADIENT};
    struct trace_message *messages = NULL;
    struct trace_memory memory;
    size_t count = 0;

    (void)state;
    put_message(&ranks[0], TRACE_SEND, 15, 18, 0, LANE_F);
    put_message(&ranks[0], TRACE_SEND, 26, 28, 1, LANE_F);
    put_message(&ranks[1], TRACE_RECV, 10, 20, 0, LANE_F);
    put(&ranks[1], TRACE_F, 20, 30, 0);
    put(&ranks[1], TRACE_B, 30, 50, 0);
    put_message(&ranks[1], TRACE_RECV, 50, 50, 1, LANE_F);
    put(&ranks[1], TRACE_F, 50, 60, 1);
    put(&ranks[1], TRACE_I, 60, 70, 1);
    put(&ranks[1], TRACE_W, 70, 80, 1);
    /* A forward whose end is not in the trace. */
    put(&ranks[1], TRACE_F, 90, 95, 2);
    trace_run_arrange(&run);
    assert_int_equal(trace_messages_find(&run, &messages, &count), STATUS_OK);
    assert_int_equal(count, 2);

    assert_int_equal(trace_memory_make(&ranks[1], messages, count, &memory), STATUS_OK);
    assert_int_equal(memory.count, 0); /* no sizes, no memory */
    ranks[1].sizes = &size;
    ranks[1].size_count = 1;
    assert_int_equal(trace_memory_make(&ranks[1], messages, count, &memory), STATUS_OK);
    assert_int_equal(memory.count, 8);
    assert_point(&memory, 0, 18, 0, 0, MESSAGE);
    assert_point(&memory, 1, 20, STASH, 0, MESSAGE);
    assert_point(&memory, 2, 28, STASH, 0, 2 * MESSAGE);
    assert_point(&memory, 3, 30, STASH, GRADIENT, 2 * MESSAGE);
    assert_point(&memory, 4, 50, STASH, 0, MESSAGE); /* 0 gives back, then 1 takes */
    assert_point(&memory, 5, 60, STASH, GRADIENT, MESSAGE);
    assert_point(&memory, 6, 70, STASH, GRADIENT, 0);
    assert_point(&memory, 7, 80, 0, 0, 0);
    assert_int_equal(memory.peak[TRACE_MEMORY_STASHES], STASH);
    assert_int_equal(memory.peak[TRACE_MEMORY_LANDING], 2 * MESSAGE);
    assert_int_equal(memory.peak_together, STASH + GRADIENT + 2 * MESSAGE);
    trace_memory_release(&memory);
    trace_memory_release(&memory);
    free(messages);
    free(ranks[0].spans);
    free(ranks[1].spans);
}

/* A gradient stays in its landing buffer until W has read it. */
static void a_gradient_lands_until_w(void **state)
{
    struct trace_rank ranks[2] = {{.rank = 0}, {.rank = 1, .pipeline_rank = 1}};
    struct trace_run run = {.ranks = ranks, .count = 2};
    struct trace_memory_size size = {.virtual_stage = 0};
    struct trace_message *messages = NULL;
    struct trace_memory memory;
    size_t count = 0;

    (void)state;
    put_message(&ranks[1], TRACE_SEND, 5, 6, 0, LANE_B);
    put_message(&ranks[0], TRACE_RECV, 5, 7, 0, LANE_B);
    put(&ranks[0], TRACE_F, 0, 3, 0);
    put(&ranks[0], TRACE_I, 7, 9, 0);
    put(&ranks[0], TRACE_W, 9, 12, 0);
    trace_run_arrange(&run);
    ranks[0].sizes = &size;
    ranks[0].size_count = 1;
    assert_int_equal(trace_messages_find(&run, &messages, &count), STATUS_OK);
    assert_int_equal(trace_memory_make(&ranks[0], messages, count, &memory), STATUS_OK);
    assert_int_equal(memory.count, 2);
    assert_point(&memory, 0, 6, 0, 0, MESSAGE);
    assert_point(&memory, 1, 12, 0, 0, 0);
    trace_memory_release(&memory);
    free(messages);
    free(ranks[0].spans);
    free(ranks[1].spans);
}

static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_INTERLEAVED_1F1B,
                                                  .ranks = 2,
                                                  .microbatches = 6,
                                                  .virtual_stages = 2,
                                                  .lane_depth = 2,
                                                  .early_send = true},
                                        .first_step = 1,
                                        .steps = 2,
                                        .forward_ms = 3.0,
                                        .input_ms = 3.0,
                                        .weight_ms = 2.0,
                                        .message_ms = 0.5,
                                        .update_ms = 1.0};

static void give_sizes(struct trace_run *run)
{
    int32_t stages = demo.shape.ranks * demo.shape.virtual_stages;

    for (int32_t stage = 0; stage < stages; stage++) {
        struct trace_rank *rank = &run->ranks[stage % demo.shape.ranks];

        rank->sizes = realloc(rank->sizes, (rank->size_count + 1) * sizeof(*rank->sizes));
        assert_non_null(rank->sizes);
        rank->sizes[rank->size_count++] = (struct trace_memory_size){
            .virtual_stage = stage, .stash_bytes = STASH, .gradient_bytes = GRADIENT};
    }
}

/* 1F1B, p 4, m 6: rank r holds 4 - r micro-batches, one gradient set, and has landing buffers for two
 * messages more than those. */
static void a_plan_takes_the_slots_that_it_plans(void **state)
{
    struct demo_config config = demo;
    struct trace_run run;
    struct trace_summary summary;

    (void)state;
    config.shape.schedule = SCHEDULE_1F1B;
    config.shape.ranks = 4;
    config.shape.virtual_stages = 1;
    demo_run_make(&config, "run", &run);
    for (int32_t rank = 0; rank < 4; rank++) {
        run.ranks[rank].sizes = calloc(1, sizeof(*run.ranks[rank].sizes));
        assert_non_null(run.ranks[rank].sizes);
        run.ranks[rank].size_count = 1;
        run.ranks[rank].sizes[0] = (struct trace_memory_size){
            .virtual_stage = rank, .stash_bytes = STASH, .gradient_bytes = GRADIENT};
    }
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    for (int32_t rank = 0; rank < 4; rank++) {
        const struct trace_summary_rank *found = &summary.ranks[rank];
        int64_t activations = rank > 0 ? 4 - rank + 2 : 0;
        int64_t gradients = rank < 3 ? 3 : 0;

        assert_int_equal(found->taken[TRACE_MEMORY_STASHES], (4 - rank) * STASH);
        assert_int_equal(found->taken[TRACE_MEMORY_DY], GRADIENT);
        assert_in_range(found->taken[TRACE_MEMORY_LANDING], DEMO_MESSAGE,
                        (activations + gradients) * DEMO_MESSAGE);
        assert_true(found->taken_together <= found->taken[TRACE_MEMORY_STASHES] + GRADIENT +
                                                 found->taken[TRACE_MEMORY_LANDING]);
    }
    trace_summary_release(&summary);
    trace_run_release(&run);
}

static void the_summary_prints_what_was_taken(void **state)
{
    struct trace_run run;
    struct trace_summary summary;
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);

    (void)state;
    assert_non_null(out);
    demo_run_make(&demo, "run", &run);
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    assert_int_equal(trace_summary_print(&summary, out), STATUS_OK);
    trace_summary_release(&summary);
    give_sizes(&run);
    assert_int_equal(fflush(out), 0);
    assert_null(strstr(text, "MiB of buffers")); /* no sizes, no table */
    assert_int_equal(trace_summary_make(&run, &summary), STATUS_OK);
    summary.ranks[1].taken[TRACE_MEMORY_STASHES] = 5 << 20;
    summary.ranks[1].taken[TRACE_MEMORY_DY] = 1 << 19;
    summary.ranks[1].taken[TRACE_MEMORY_LANDING] = 2 << 20;
    summary.ranks[1].taken_together = 7 << 20;
    assert_int_equal(trace_summary_print(&summary, out), STATUS_OK);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "MiB of buffers taken at most:\n"
                                 " rank  stage   stashes        dY   landing  together\n"));
    assert_non_null(strstr(text, "\n    1      1      5.00      0.50      2.00      7.00\n"));
    free(text);
    trace_summary_release(&summary);
    trace_run_release(&run);
}

/* The counters of the merged file: in order of time for each rank, from something to nothing. */
static void the_merged_file_has_the_counter_of_every_rank(void **state)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    double last[2] = {0.0, 0.0};
    json_int_t stashes[2] = {-1, -1};
    struct trace_run run;
    json_t *root = NULL;
    json_t *events = NULL;
    size_t found = 0;

    (void)state;
    demo_run_make(&demo, "run", &run);
    give_sizes(&run);
    scratch_make(&scratch);
    scratch_path(&scratch, "trace.json", path);
    assert_int_equal(trace_merge_write(&run, path), STATUS_OK);
    root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    events = json_object_get(root, "traceEvents");
    for (size_t index = 0; index < json_array_size(events); index++) {
        const json_t *event = json_array_get(events, index);
        const json_t *args = json_object_get(event, "args");
        json_int_t pid = json_integer_value(json_object_get(event, "pid"));

        if (strcmp(json_string_value(json_object_get(event, "ph")), "C") != 0) {
            continue;
        }
        assert_string_equal(json_string_value(json_object_get(event, "name")), "memory");
        assert_true(json_number_value(json_object_get(event, "ts")) >= last[pid]);
        last[pid] = json_number_value(json_object_get(event, "ts"));
        stashes[pid] = json_integer_value(json_object_get(args, "stashes"));
        assert_true(json_is_integer(json_object_get(args, "dY")));
        assert_true(json_is_integer(json_object_get(args, "landing")));
        found++;
    }
    assert_true(found > (size_t)24 /* two ranks, two directions, six actions */);
    assert_int_equal(stashes[0], 0);
    assert_int_equal(stashes[1], 0);
    json_decref(root);
    scratch_remove(&scratch);
    trace_run_release(&run);
}

static void sizes_are_written_and_read_back(void **state)
{
    const struct trace_memory_size sizes[] = {
        {.virtual_stage = 1, .stash_bytes = (uint64_t)5 << 32, .gradient_bytes = 7},
        {.virtual_stage = 3, .stash_bytes = 0, .gradient_bytes = 1}};
    struct trace_writer_config config = {.run_name = "run",
                                         .rank = 1,
                                         .pipeline_rank = 1,
                                         .most_bytes = 1 << 20,
                                         .sizes = sizes,
                                         .size_count = 2};
    struct trace_writer *writer = NULL;
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    struct trace_run run;

    (void)state;
    scratch_make(&scratch);
    scratch_folder(&scratch, "trace");
    scratch_path(&scratch, "trace/rank-1.json", path);
    config.path = path;
    assert_int_equal(trace_writer_open(&config, &writer), STATUS_OK);
    assert_int_equal(trace_writer_close(&writer), STATUS_OK);
    assert_int_equal(trace_read(scratch.path, &run), STATUS_OK);
    assert_int_equal(run.count, 1);
    assert_int_equal(run.ranks[0].size_count, 2);
    assert_int_equal(run.ranks[0].sizes[0].virtual_stage, 1);
    assert_true(run.ranks[0].sizes[0].stash_bytes == (uint64_t)5 << 32);
    assert_int_equal(run.ranks[0].sizes[1].virtual_stage, 3);
    assert_int_equal(run.ranks[0].sizes[1].gradient_bytes, 1);
    trace_run_release(&run);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timeline_made_by_hand_gives_the_numbers_of_the_hand),
        cmocka_unit_test(a_gradient_lands_until_w),
        cmocka_unit_test(a_plan_takes_the_slots_that_it_plans),
        cmocka_unit_test(the_summary_prints_what_was_taken),
        cmocka_unit_test(the_merged_file_has_the_counter_of_every_rank),
        cmocka_unit_test(sizes_are_written_and_read_back),
    };

    return cmocka_run_group_tests_name("trace_memory", tests, NULL, NULL);
}
