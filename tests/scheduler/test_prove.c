/* From a shape or a file to the plan that may run, and the evaluation plan on the same placement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/plan_text.h"
#include "scheduler/prove.h"
#include "scheduler/prove_parts.h"
#include "scratch.h"

#define STAGES_MOST 24

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 8;
}

/* Each rank gets `chunks` virtual stages, in any order. */
static void draw_placement(int32_t ranks, int32_t chunks, uint32_t *seed, int32_t *rank_of)
{
    int32_t stages = ranks * chunks;

    for (int32_t stage = 0; stage < stages; stage++) {
        rank_of[stage] = stage % ranks;
    }
    for (int32_t stage = stages - 1; stage > 0; stage--) {
        int32_t other = (int32_t)(next_random(seed) % (uint32_t)(stage + 1));
        int32_t rank = rank_of[stage];

        rank_of[stage] = rank_of[other];
        rank_of[other] = rank;
    }
}

/* The line of `rank`: one micro-batch after the other through all stages and back. */
static void print_serial_line(const int32_t *rank_of, int32_t rank, int32_t stages,
                              int32_t microbatches, FILE *out)
{
    for (int32_t m = 0; m < microbatches; m++) {
        for (int32_t at = 0; at < 2 * stages; at++) {
            int32_t stage = at < stages ? at : 2 * stages - 1 - at;

            if (rank_of[stage] == rank) {
                (void)fprintf(out, "%d%c%d,", stage, at < stages ? 'F' : 'B', m);
            }
        }
    }
    (void)fputc('\n', out);
}

/* Legal on every placement; lowered. */
static struct plan *serial_plan(const int32_t *rank_of, int32_t ranks, int32_t chunks,
                                int32_t microbatches, int32_t lane_depth)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, ranks, microbatches, true);
    struct plan *compute = NULL;
    struct plan *lowered = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    shape.virtual_stages = chunks;
    shape.lane_depth = lane_depth;
    assert_non_null(out);
    for (int32_t rank = 0; rank < ranks; rank++) {
        print_serial_line(rank_of, rank, ranks * chunks, microbatches, out);
    }
    assert_int_equal(fclose(out), 0);
    assert_int_equal(plan_text_parse("serial.csv", text, bytes, &shape, &compute), STATUS_OK);
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    free(text);
    return lowered;
}

static void check_evaluation(const struct plan *training)
{
    const struct plan_shape *shape = &training->shape;
    size_t table_bytes = (size_t)plan_stages(training) * sizeof(int32_t);
    struct plan *evaluation = NULL;

    assert_int_equal(plan_prove_evaluation(training, &evaluation), STATUS_OK);
    assert_false(plan_trains(evaluation));
    assert_memory_equal(evaluation->rank_of, training->rank_of, table_bytes);
    assert_memory_equal(evaluation->chunk_of, training->chunk_of, table_bytes);
    for (int32_t rank = 0; rank < shape->ranks; rank++) {
        int32_t forwards = 0;

        for (int32_t i = 0; i < evaluation->lines[rank].count; i++) {
            forwards += evaluation->lines[rank].actions[i].kind == ACTION_F;
        }
        assert_int_equal(forwards, shape->microbatches * shape->virtual_stages);
    }
    plan_destroy(&evaluation);
}

/* plan_prove_evaluation() proves it: complete, free of deadlock, no buffer written while it is read. */
static void any_placement_can_be_evaluated_on_without_a_deadlock(void **state)
{
    static const int32_t extents[][2] = {{1, 3}, {2, 1}, {2, 2}, {3, 2}, {2, 5}, {4, 3}, {3, 8}};
    static const int32_t microbatches[] = {1, 2, 5, 16};
    uint32_t seed = 7;

    (void)state;
    for (size_t e = 0; e < sizeof(extents) / sizeof(extents[0]); e++) {
        for (int32_t round = 0; round < 12; round++) {
            int32_t rank_of[STAGES_MOST];

            draw_placement(extents[e][0], extents[e][1], &seed, rank_of);
            struct plan *training = serial_plan(rank_of, extents[e][0], extents[e][1],
                                                microbatches[round % 4], 1 + round / 4);

            check_evaluation(training);
            plan_destroy(&training);
        }
    }
}

/* V: rank 0 has the first and the last stage. Groups of lane_depth + 1 = 3, of sizes 3 and 2. */
static void on_a_v_groups_have_as_many_micro_batches_as_a_lane_has_buffers(void **state)
{
    const int32_t rank_of[] = {0, 1, 1, 0};
    struct plan *training = serial_plan(rank_of, 2, 2, 5, 2);
    struct plan *evaluation = NULL;

    (void)state;
    assert_int_equal(plan_generate_evaluation(training, &evaluation), STATUS_OK);
    assert_string_equal(fixture_line(evaluation, 0), "0F0 0F1 0F2 3F0 3F1 3F2 0F3 0F4 3F3 3F4");
    assert_string_equal(fixture_line(evaluation, 1), "1F0 1F1 1F2 2F0 2F1 2F2 1F3 1F4 2F3 2F4");
    plan_destroy(&evaluation);
    plan_destroy(&training);
}

/* What a generated plan is evaluated with, action by action. */
static void a_loop_from_a_file_is_evaluated_as_a_generated_plan_is(void **state)
{
    struct plan *generated = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, 3, 7, 2, true);
    const int32_t rank_of[] = {0, 1, 2, 0, 1, 2};
    struct plan *read = serial_plan(rank_of, 3, 2, 7, 2);
    struct plan_shape forward = generated->shape;
    struct plan *plans[3] = {NULL};

    (void)state;
    forward.schedule = SCHEDULE_FORWARD_ONLY;
    assert_int_equal(plan_prove(&forward, NULL, &plans[0]), STATUS_OK);
    assert_int_equal(plan_prove_evaluation(generated, &plans[1]), STATUS_OK);
    assert_int_equal(plan_prove_evaluation(read, &plans[2]), STATUS_OK);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_true(plan_line_hash(plans[0], rank) == plan_line_hash(plans[1], rank));
        assert_true(plan_line_hash(plans[0], rank) == plan_line_hash(plans[2], rank));
    }
    for (int i = 0; i < 3; i++) {
        plan_destroy(&plans[i]);
    }
    plan_destroy(&read);
    plan_destroy(&generated);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_file_makes_the_plan_that_its_generator_makes(void **state)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_1F1B, 2, 3, true);
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    struct plan *generated = NULL;
    struct plan *read = NULL;

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "plan.csv", path);
    write_text(path, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
    assert_int_equal(plan_prove(&shape, NULL, &generated), STATUS_OK);
    shape.schedule = SCHEDULE_FILE;
    assert_int_equal(plan_prove(&shape, path, &read), STATUS_OK);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_true(plan_line_hash(generated, rank) == plan_line_hash(read, rank));
    }
    assert_string_equal(read->source, path);
    assert_null(generated->source);
    plan_destroy(&generated);
    plan_destroy(&read);
    scratch_remove(&scratch);
}

/* The line is the one of the file, comments and blank lines counted. */
static void what_is_refused_of_a_file_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text;
        const char *place;
        const char *what;
    } cases[] = {
        {"# by hand\n\n0F0,0F1,0B0,0B1\n1F0,1B0,1B0,1F1,1B1\n", "plan.csv, line 4: rank 1, action",
         "1B0"},
        {"0F0,0F1,0B0,0B1\n\n1F0,1F1,1B0\n", "plan.csv, line 3: rank 1 has no",
         "micro-batch 1 on virtual stage 1"},
        {"# order\n0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n", "plan.csv, line 2: rank 0, action", "0"},
        {"0B0,0F0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "plan.csv, line 1: rank 0, action 0 (0B0)", "F"},
    };
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 2, 2, false);
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    int saved = fixture_mute();

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "plan.csv", path);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan *plan = NULL;
        const char *message = status_last()->message;

        write_text(path, cases[i].text);
        assert_int_equal(plan_prove(&shape, path, &plan), STATUS_ERR_REFUSED);
        assert_null(plan);
        if (strstr(message, cases[i].place) == NULL || strstr(message, cases[i].what) == NULL) {
            fail_msg("expected \"%s\" and \"%s\" in: %s", cases[i].place, cases[i].what, message);
        }
    }
    scratch_remove(&scratch);
    fixture_unmute(saved);
}

/* Rank 1 takes the gradient of micro-batch 1 first, rank 0 sends and awaits them the other way. */
static void a_deadlock_of_a_file_is_named_with_its_line(void **state)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_FILE, 2, 2, false);
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    struct plan *plan = NULL;
    int saved = fixture_mute();

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "plan.csv", path);
    write_text(path, "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    assert_int_equal(plan_prove(&shape, path, &plan), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "plan.csv, line "));
    assert_non_null(strstr(status_last()->message, "deadlock at any lane_depth, cycle of"));
    scratch_remove(&scratch);
    fixture_unmute(saved);
}

/* One line of a plan as it stands in the whole, and what its rank has to know of its neighbours. */
static void assert_line_of(const struct plan *whole, const struct plan *one, int32_t rank)
{
    assert_int_equal(one->lines[rank].count, whole->lines[rank].count);
    assert_true(plan_line_hash(one, rank) == plan_line_hash(whole, rank));
    for (int32_t stage = 0; stage < plan_stages(whole); stage++) {
        bool own = whole->rank_of[stage] == rank;
        bool before = stage > 0 && whole->rank_of[stage - 1] == rank;
        bool behind = stage + 1 < plan_stages(whole) && whole->rank_of[stage + 1] == rank;

        if (own || before || behind) {
            assert_memory_equal(
                plan_buffers_of(one, whole->rank_of[stage], whole->chunk_of[stage]),
                plan_buffers_of(whole, whole->rank_of[stage], whole->chunk_of[stage]),
                sizeof(struct plan_buffers));
        }
    }
    for (int32_t other = 0; other < whole->shape.ranks; other++) {
        assert_true(other == rank || one->lines[other].count == 0);
    }
}

static void a_line_made_alone_is_that_of_the_whole_plan(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < SCHEDULE_FORWARD_ONLY; schedule++) {
        struct plan_shape shape = fixture_shape((enum schedule)schedule, 5, 10, true);
        struct plan *whole = NULL;
        struct plan *forward = NULL;

        shape.virtual_stages = schedule_takes_chunks(shape.schedule, 2) ? 2 : 1;
        shape.sequence_slices = schedule_takes_slices(shape.schedule) ? 2 : 1;
        assert_int_equal(plan_prove(&shape, NULL, &whole), STATUS_OK);
        assert_int_equal(plan_prove_evaluation(whole, &forward), STATUS_OK);
        for (int32_t rank = 0; rank < 5; rank++) {
            struct plan *one = NULL;
            struct plan *kept = NULL;
            struct plan *ones_forward = NULL;

            assert_int_equal(plan_make_line(&shape, NULL, rank, &one), STATUS_OK);
            assert_line_of(whole, one, rank);
            assert_int_equal(plan_make_evaluation_line(one, rank, &ones_forward), STATUS_OK);
            assert_line_of(forward, ones_forward, rank);
            assert_int_equal(plan_prove_keeping(&shape, NULL, rank, &kept), STATUS_OK);
            assert_line_of(whole, kept, rank);
            assert_memory_equal(kept->buffers, whole->buffers,
                                (size_t)plan_stages(whole) * sizeof(*whole->buffers));
            plan_destroy(&one);
            plan_destroy(&kept);
            plan_destroy(&ones_forward);
        }
        plan_destroy(&whole);
        plan_destroy(&forward);
    }
}

/* Whether the schedule gives lines one by one, which are then made by `parts` threads. */
static bool prove_in_parts(const struct plan_shape *shape, int32_t parts, int32_t keep,
                           struct plan **kept_out)
{
    struct line_source lines;
    struct plan *empty = NULL;
    bool proved = false;
    bool one_by_one = false;

    assert_int_equal(plan_create(shape, &empty), STATUS_OK);
    one_by_one = plan_generates_lines(empty);
    lines = line_source_made(empty);
    if (one_by_one) {
        assert_int_equal(prove_parts(&lines, parts, keep, kept_out, &proved), STATUS_OK);
        assert_true(proved);
    }
    line_source_release(&lines);
    return one_by_one;
}

static void parts_make_the_plan_of_one(void **state)
{
    int schedules = 0;

    (void)state;
    for (int schedule = 0; schedule < SCHEDULE_FORWARD_ONLY; schedule++) {
        struct plan_shape shape = fixture_shape((enum schedule)schedule, 7, 10, true);
        struct plan *whole = NULL;
        struct plan *kept = NULL;

        shape.virtual_stages = schedule_takes_chunks(shape.schedule, 2) ? 2 : 1;
        shape.sequence_slices = schedule_takes_slices(shape.schedule) ? 2 : 1;
        assert_int_equal(plan_prove(&shape, NULL, &whole), STATUS_OK);
        for (int32_t run = 0; run < PROVE_PARTS_MOST * 7; run++) {
            int32_t keep = run % 7;

            if (!prove_in_parts(&shape, run / 7 + 1, keep, &kept)) {
                break;
            }
            schedules += run == 0 ? 1 : 0;
            assert_line_of(whole, kept, keep);
            assert_memory_equal(kept->buffers, whole->buffers,
                                (size_t)plan_stages(whole) * sizeof(*whole->buffers));
            plan_destroy(&kept);
        }
        plan_destroy(&whole);
    }
    assert_true(schedules >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_placement_can_be_evaluated_on_without_a_deadlock),
        cmocka_unit_test(on_a_v_groups_have_as_many_micro_batches_as_a_lane_has_buffers),
        cmocka_unit_test(a_loop_from_a_file_is_evaluated_as_a_generated_plan_is),
        cmocka_unit_test(a_file_makes_the_plan_that_its_generator_makes),
        cmocka_unit_test(what_is_refused_of_a_file_is_named_with_its_line),
        cmocka_unit_test(a_deadlock_of_a_file_is_named_with_its_line),
        cmocka_unit_test(a_line_made_alone_is_that_of_the_whole_plan),
        cmocka_unit_test(parts_make_the_plan_of_one),
    };

    return cmocka_run_group_tests_name("prove", tests, NULL, NULL);
}
