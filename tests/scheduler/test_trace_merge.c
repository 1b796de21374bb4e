/* All ranks in one Chrome trace: order, tracks that nest, arrows with both ends. */
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
#include "scheduler/trace_merge.h"
#include "scheduler/trace_message.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/scratch.h"

#define MOST_EVENTS 8192

static const struct demo_config demo = {.shape = {.schedule = SCHEDULE_1F1B,
                                                  .ranks = 4,
                                                  .microbatches = 6,
                                                  .virtual_stages = 1,
                                                  .lane_depth = 2,
                                                  .early_send = true,
                                                  .embedding_sync = true},
                                        .first_step = 1,
                                        .steps = 2,
                                        .forward_ms = 3.0,
                                        .input_ms = 3.0,
                                        .weight_ms = 2.0,
                                        .message_ms = 0.5,
                                        .update_ms = 1.0,
                                        .sync_ms = 4.0};

/* An event of the merged file, in nanoseconds. */
struct event {
    char phase;
    int pid;
    int tid;
    int64_t begin_ns;
    int64_t end_ns;
    int64_t id;
    const char *category;
    const char *name;
};

struct merged {
    struct scratch scratch;
    json_t *root;
    struct event events[MOST_EVENTS]; /* X, s and f, as they stand */
    size_t count;
};

static int64_t take_ns(const json_t *object, const char *key)
{
    return llround(json_number_value(json_object_get(object, key)) * 1e3);
}

static int take_int(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static void merge(const struct trace_run *run, struct merged *merged)
{
    char path[SCRATCH_PATH_BYTES];
    const json_t *events = NULL;

    memset(merged, 0, sizeof(*merged));
    scratch_make(&merged->scratch);
    scratch_path(&merged->scratch, "trace.json", path);
    assert_int_equal(trace_merge_write(run, path), STATUS_OK);
    merged->root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(merged->root);
    events = json_object_get(merged->root, "traceEvents");
    assert_true(json_is_array(events));
    for (size_t index = 0; index < json_array_size(events); index++) {
        const json_t *event = json_array_get(events, index);
        struct event *item = &merged->events[merged->count];

        item->phase = *json_string_value(json_object_get(event, "ph"));
        if (item->phase == 'M') {
            continue;
        }
        assert_in_range(merged->count, 0, MOST_EVENTS - 2);
        item->pid = take_int(event, "pid");
        item->tid = take_int(event, "tid");
        item->begin_ns = take_ns(event, "ts");
        item->end_ns = item->begin_ns + take_ns(event, "dur");
        item->id = take_int(event, "id");
        item->category = json_string_value(json_object_get(event, "cat"));
        item->name = json_string_value(json_object_get(event, "name"));
        merged->count++;
    }
}

static void release(struct merged *merged)
{
    json_decref(merged->root);
    scratch_remove(&merged->scratch);
}

/* The slice around one end of an arrow. */
static const struct event *slice_around(const struct merged *merged, const struct event *end)
{
    for (size_t index = 0; index < merged->count; index++) {
        const struct event *slice = &merged->events[index];

        if (slice->phase == 'X' && slice->pid == end->pid && slice->tid == end->tid &&
            slice->begin_ns <= end->begin_ns && end->begin_ns <= slice->end_ns) {
            return slice;
        }
    }
    fail_msg("arrow %d hangs in the air", (int)end->id);
    return NULL;
}

static const struct event *find_end(const struct merged *merged, char phase, int64_t id)
{
    const struct event *found = NULL;

    for (size_t index = 0; index < merged->count; index++) {
        const struct event *event = &merged->events[index];

        if (event->phase == phase && event->id == id) {
            assert_null(found); /* an id has one end of each kind */
            found = event;
        }
    }
    return found;
}

static size_t count_kind(const struct trace_run *run, uint32_t kind)
{
    size_t found = 0;

    for (size_t index = 0; index < run->count; index++) {
        for (size_t item = 0; item < run->ranks[index].count; item++) {
            found += run->ranks[index].spans[item].kind == kind ? 1 : 0;
        }
    }
    return found;
}

static void every_message_has_an_arrow_with_both_ends(void **state)
{
    static struct merged merged;
    struct trace_run run;
    size_t arrows = 0;

    (void)state;
    demo_run_make(&demo, "run", &run);
    merge(&run, &merged);
    for (size_t index = 0; index < merged.count; index++) {
        const struct event *leaves = &merged.events[index];
        const struct event *arrives = NULL;
        const char *send = NULL;
        const char *recv = NULL;

        if (leaves->phase == 'f') {
            assert_non_null(find_end(&merged, 's', leaves->id));
        }
        if (leaves->phase != 's') {
            continue;
        }
        arrows++;
        arrives = find_end(&merged, 'f', leaves->id);
        assert_non_null(arrives);
        assert_string_equal(leaves->category, arrives->category);
        assert_string_equal(leaves->name, arrives->name);
        assert_true(leaves->begin_ns <= arrives->begin_ns);
        send = slice_around(&merged, leaves)->name;
        recv = slice_around(&merged, arrives)->name;
        /* "1SEND_F3" goes to "2RECV_F3", "2SEND_B3" to "1RECV_B3". */
        assert_int_equal(strncmp(send + 1, "SEND_", 5), 0);
        assert_int_equal(strncmp(recv + 1, "RECV_", 5), 0);
        assert_string_equal(send + 6, recv + 6);
        assert_int_equal(recv[0] - send[0], send[6] == 'F' ? 1 : -1);
    }
    /* Two steps, six micro-batches, three borders, both directions. */
    assert_int_equal(arrows, 2 * 6 * 3 * 2);
    release(&merged);
    trace_run_release(&run);
}

static void assert_nested(const struct merged *merged)
{
    for (size_t first = 0; first < merged->count; first++) {
        const struct event *outer = &merged->events[first];

        for (size_t second = first + 1; second < merged->count; second++) {
            const struct event *inner = &merged->events[second];

            if (outer->phase == 'X' && inner->phase == 'X' && outer->pid == inner->pid &&
                outer->tid == inner->tid && inner->begin_ns < outer->end_ns) {
                assert_true(inner->end_ns <= outer->end_ns);
            }
        }
    }
}

static void ranks_come_in_the_order_of_time_with_their_names(void **state)
{
    static struct merged merged;
    struct trace_run run;
    int64_t before_ns = INT64_MIN;
    size_t slices = 0;
    const json_t *events = NULL;
    const json_t *process = NULL;

    (void)state;
    demo_run_make(&demo, "a\"b\\c\n\x01", &run);
    merge(&run, &merged);
    for (size_t index = 0; index < merged.count; index++) {
        if (merged.events[index].phase == 'X') {
            assert_true(merged.events[index].begin_ns >= before_ns);
            before_ns = merged.events[index].begin_ns;
            slices++;
        }
    }
    assert_int_equal(slices, run.ranks[0].count + run.ranks[1].count + run.ranks[2].count +
                                 run.ranks[3].count);
    assert_nested(&merged);
    events = json_object_get(merged.root, "traceEvents");
    process = json_array_get(events, 0);
    assert_string_equal(json_string_value(json_object_get(process, "name")), "process_name");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(process, "args"), "name")),
        "stage 0 (rank 0)");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(merged.root, "otherData"), "run")),
        "a\"b\\c\n\x01");
    release(&merged);
    trace_run_release(&run);
}

static void slices_that_overlap_get_tracks_of_their_own(void **state)
{
    static const int64_t times[][2] = {{0, 100},  {10, 50},   {20, 80},   {60, 70},
                                       {90, 120}, {100, 110}, {120, 120}, {120, 130}};
    static struct merged merged;
    struct trace_rank rank = {.complete = true};
    struct trace_run run = {.ranks = &rank, .count = 1};

    (void)state;
    for (size_t index = 0; index < sizeof(times) / sizeof(times[0]); index++) {
        struct span span = {
            .kind = TRACE_SEND, .begin_ns = times[index][0], .end_ns = times[index][1]};

        assert_int_equal(trace_rank_append(&rank, &span), STATUS_OK);
    }
    trace_run_arrange(&run);
    merge(&run, &merged);
    assert_int_equal(merged.count, sizeof(times) / sizeof(times[0]));
    assert_nested(&merged);
    assert_int_equal(merged.events[0].tid, merged.events[1].tid); /* nests */
    assert_int_not_equal(merged.events[0].tid, merged.events[4].tid);
    release(&merged);
    free(rank.spans);
}

/* Two pipelines side by side send the same names; each message stays in its own. */
static void messages_stay_within_their_replica(void **state)
{
    struct trace_rank ranks[4] = {{0}};
    struct trace_run run = {.ranks = ranks, .count = 4};
    struct trace_message *messages = NULL;
    size_t count = 0;

    (void)state;
    for (int32_t index = 0; index < 4; index++) {
        /* The second pipeline sends last and receives first. */
        struct span span = {.kind = index < 2 ? TRACE_SEND : TRACE_RECV,
                            .begin_ns = index < 2 ? index : 10 - index,
                            .end_ns = 20};

        ranks[index].rank = index;
        ranks[index].pipeline_rank = index / 2;
        span.args[TRACE_ARG_PEER] = index < 2 ? 1 : 0;
        assert_int_equal(trace_rank_append(&ranks[index], &span), STATUS_OK);
    }
    trace_run_arrange(&run);
    assert_int_equal(trace_messages_find(&run, &messages, &count), STATUS_OK);
    assert_int_equal(count, 2);
    for (size_t index = 0; index < count; index++) {
        assert_int_equal(messages[index].receiver->rank - messages[index].sender->rank, 2);
    }
    free(messages);
    for (size_t index = 0; index < 4; index++) {
        free(ranks[index].spans);
    }
}

/* Ends of the same lane meet by their place in it, also where one of them is lost. */
static void messages_meet_by_their_sequence(void **state)
{
    struct trace_rank ranks[2] = {{.pipeline_rank = 0}, {.rank = 1, .pipeline_rank = 1}};
    struct trace_run run = {.ranks = ranks, .count = 2};
    struct trace_message *messages = NULL;
    size_t count = 0;

    (void)state;
    for (int32_t sequence = 0; sequence < 4; sequence++) {
        struct span span = {.kind = TRACE_SEND, .begin_ns = sequence, .end_ns = sequence + 1};

        span.args[TRACE_ARG_SEQUENCE] = sequence;
        span.args[TRACE_ARG_PEER] = 1;
        assert_int_equal(trace_rank_append(&ranks[0], &span), STATUS_OK);
        span.kind = TRACE_RECV;
        span.args[TRACE_ARG_PEER] = 0;
        if (sequence != 1) {
            assert_int_equal(trace_rank_append(&ranks[1], &span), STATUS_OK);
        }
    }
    trace_run_arrange(&run);
    assert_int_equal(trace_messages_find(&run, &messages, &count), STATUS_OK);
    assert_int_equal(count, 3);
    for (size_t index = 0; index < count; index++) {
        assert_int_equal(messages[index].send->args[TRACE_ARG_SEQUENCE],
                         messages[index].recv->args[TRACE_ARG_SEQUENCE]);
    }
    free(messages);
    free(ranks[0].spans);
    free(ranks[1].spans);
}

static void a_message_with_one_end_has_no_arrow(void **state)
{
    struct trace_run run;
    struct trace_message *messages = NULL;
    size_t count = 0;

    (void)state;
    demo_run_make(&demo, "run", &run);
    run.ranks[2].count = 0; /* as if its file were lost */
    assert_int_equal(trace_messages_find(&run, &messages, &count), STATUS_OK);
    /* What is left goes between stages 0 and 1. */
    assert_int_equal(count, 2 * 6 * 2);
    assert_true(count_kind(&run, TRACE_SEND) > count);
    free(messages);
    trace_run_release(&run);
}

static void a_place_that_cannot_be_written_is_an_error(void **state)
{
    struct trace_run run;

    (void)state;
    demo_run_make(&demo, "run", &run);
    assert_int_equal(trace_merge_write(&run, "/nonexistent/trace.json"), STATUS_ERR_IO);
    assert_int_equal(trace_merge_write(&run, "/dev/full"), STATUS_ERR_IO);
    trace_run_release(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_has_an_arrow_with_both_ends),
        cmocka_unit_test(ranks_come_in_the_order_of_time_with_their_names),
        cmocka_unit_test(slices_that_overlap_get_tracks_of_their_own),
        cmocka_unit_test(messages_stay_within_their_replica),
        cmocka_unit_test(messages_meet_by_their_sequence),
        cmocka_unit_test(a_message_with_one_end_has_no_arrow),
        cmocka_unit_test(a_place_that_cannot_be_written_is_an_error),
    };

    return cmocka_run_group_tests_name("trace_merge", tests, NULL, NULL);
}
