/* The orders that are published, and the shapes that have none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/generate.h"
#include "scheduler/lower.h"
#include "scheduler/validate.h"

#define LINE_BYTES 2048

static struct plan *compute_of(enum schedule schedule, int32_t p, int32_t m, int32_t v)
{
    struct plan_shape shape = fixture_shape(schedule, p, m, false);
    struct plan *plan = NULL;

    shape.virtual_stages = v;
    assert_int_equal(plan_generate(&shape, &plan), STATUS_OK);
    return plan;
}

/* "F0a I1b" as they are published, a and b for the chunks of a rank, in our words: "0F0 3I1". */
static void translate(const struct plan *plan, int32_t rank, const char *text, char *line)
{
    size_t at = 0;

    while (*text != '\0') {
        int32_t microbatch = 0;
        int32_t chunk = 0;
        int32_t stage = 0;
        char kind = *text++;

        while (*text >= '0' && *text <= '9') {
            microbatch = microbatch * 10 + (*text++ - '0');
        }
        if (*text == 'a' || *text == 'b') {
            chunk = *text++ - 'a';
        }
        while (plan->rank_of[stage] != rank || plan->chunk_of[stage] != chunk) {
            stage++;
        }
        at += (size_t)snprintf(line + at, LINE_BYTES - at, "%s%d%c%d", at > 0 ? " " : "", stage,
                               kind, microbatch);
        assert_true(at < LINE_BYTES);
        text += *text == ' ' ? 1 : 0;
    }
}

static void expect_line(enum schedule schedule, int32_t p, int32_t m, int32_t v, int32_t rank,
                        const char *published)
{
    struct plan *plan = compute_of(schedule, p, m, v);
    char expected[LINE_BYTES];

    translate(plan, rank, published, expected);
    assert_string_equal(fixture_line(plan, rank), expected);
    plan_destroy(&plan);
}

static void two_ranks_have_the_published_orders(void **state)
{
    static const struct {
        enum schedule schedule;
        int32_t v;
        const char *lines[2];
    } cases[] = {
        {SCHEDULE_1F1B, 1, {"F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}},
        {SCHEDULE_INTERLEAVED_1F1B,
         2,
         {"F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a",
          "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"}},
        {SCHEDULE_ZB_H1,
         1,
         {"F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3", "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3"}},
        {SCHEDULE_ZB_H2,
         1,
         {"F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3", "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"}},
        {SCHEDULE_IZB,
         2,
         {"F0a F1a F0b F1b I0b W0b F2a I1b W1b F3a I0a W0a F2b I1a W1a F3b I2b W2b I3b W3b I2a W2a "
          "I3a W3a",
          "F0a F1a F0b I0b F1b I1b W0b F2a I0a W1b F3a I1a W0a F2b I2b W1a F3b I3b W2b I2a W3b I3a "
          "W2a W3a"}},
        {SCHEDULE_ZB_V,
         2,
         {"F0a F1a F2a F0b I0b W0b F1b I1b W1b F3a I0a W0a F2b I2b W2b I1a W1a F3b I3b W3b I2a W2a "
          "I3a W3a",
          "F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b F3a I1a W1a F3b I2b W2b I2a I3b I3a W2a "
          "W3b W3a"}},
    };
    size_t i;
    int32_t rank;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (rank = 0; rank < 2; rank++) {
            expect_line(cases[i].schedule, 2, 4, cases[i].v, rank, cases[i].lines[rank]);
        }
    }
}

static void four_ranks_have_the_published_orders(void **state)
{
    (void)state;
    expect_line(SCHEDULE_1F1B, 4, 8, 1, 1, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
    expect_line(SCHEDULE_ZB_H1, 4, 8, 1, 3,
                "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7");
    expect_line(SCHEDULE_ZB_H2, 4, 8, 1, 3,
                "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7");
}

/* Chunk after chunk forwards, then back from the last; micro-batches ascend both ways. */
static void bfs_takes_all_micro_batches_through_a_chunk(void **state)
{
    (void)state;
    expect_line(SCHEDULE_BFS, 2, 3, 2, 0, "F0a F1a F2a F0b F1b F2b B0b B1b B2b B0a B1a B2a");
    expect_line(SCHEDULE_BFS, 2, 3, 2, 1, "F0a F1a F2a F0b F1b F2b B0b B1b B2b B0a B1a B2a");
}

/* By hand from the published form for p = 2, whose micro-batches 1 and 2 are left out: a step of
 * one micro-batch. */
static void one_micro_batch_goes_down_and_up_a_v(void **state)
{
    (void)state;
    expect_line(SCHEDULE_ZB_V, 2, 1, 2, 0, "F0a F0b I0b W0b I0a W0a");
    expect_line(SCHEDULE_ZB_V, 2, 1, 2, 1, "F0a F0b I0b W0b I0a W0a");
    expect_line(SCHEDULE_V_HALF, 2, 1, 2, 0, "F0a F0b I0b W0b I0a W0a");
    expect_line(SCHEDULE_V_MIN, 1, 1, 2, 0, "F0a F0b I0b I0a W0b W0a");
}

/* Warm-up 2(p-1-r) for e = p-1-r and more; e = 0 is 1f1b. By hand for p = 3, m = 5. */
static void extra_micro_batches_in_flight_lengthen_the_warm_up(void **state)
{
    static const struct {
        int32_t extra;
        int32_t rank;
        const char *line;
    } cases[] = {
        {1, 0, "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4"},
        {2, 0, "0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3 0B4"},
        {9, 1, "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1B3 1B4"},
        {9, 2, "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_shape shape = fixture_shape(SCHEDULE_1F1B, 3, 5, false);
        struct plan *plan = NULL;

        shape.extra_in_flight = cases[i].extra;
        assert_int_equal(plan_generate(&shape, &plan), STATUS_OK);
        assert_string_equal(fixture_line(plan, cases[i].rank), cases[i].line);
        plan_destroy(&plan);
    }
}

/* A plan of this shape must not be made; the message holds `expected`. */
static void expect_refused(const struct plan_shape *shape, const char *expected)
{
    struct plan *plan = NULL;
    int saved = fixture_mute();
    enum status status = plan_generate(shape, &plan);

    fixture_unmute(saved);
    assert_int_equal(status, STATUS_ERR_REFUSED);
    assert_null(plan);
    if (strstr(status_last()->message, expected) == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", expected, status_last()->message);
    }
}

static void shapes_without_an_order_are_refused_by_name(void **state)
{
    static const enum schedule vs[] = {SCHEDULE_ZB_V, SCHEDULE_V_HALF, SCHEDULE_V_MIN};
    int schedule;
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        struct plan_shape shape = fixture_shape(vs[i], 2, 4, true);

        expect_refused(&shape, "has two chunks a rank, found virtual_stages 1");
        shape.virtual_stages = 3;
        expect_refused(&shape, "found virtual_stages 3; legal with 3: interleaved_1f1b, bfs, izb "
                               "or file:PATH");
        shape.virtual_stages = 2;
        shape.placement = PLACEMENT_LOOP;
        expect_refused(&shape, "has no order on a loop");
    }
    for (schedule = 0; schedule < SCHEDULE_FILE; schedule++) {
        struct plan_shape shape = fixture_shape((enum schedule)schedule, 2, 4, true);

        shape.virtual_stages = schedule_takes_chunks((enum schedule)schedule, 2) ? 2 : 1;
        shape.extra_in_flight = 1;
        if (schedule != SCHEDULE_1F1B) {
            expect_refused(&shape, "extra_in_flight is 1, but schedule");
        }
        shape.extra_in_flight = -1;
        expect_refused(&shape, "extra_in_flight is -1, expected 0 to");
    }
}

/* bfs, forward_only: any placement; those that count on a loop say so. */
static void placements_other_than_the_schedule_s_are_taken_or_refused(void **state)
{
    struct plan_shape shape = fixture_shape(SCHEDULE_BFS, 3, 4, true);
    static const int32_t zigzag[] = {0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0};
    static const enum schedule takers[] = {SCHEDULE_BFS, SCHEDULE_FORWARD_ONLY};
    static const enum schedule others[] = {SCHEDULE_INTERLEAVED_1F1B, SCHEDULE_IZB};
    size_t i;

    (void)state;
    shape.virtual_stages = 4;
    shape.placement = PLACEMENT_ZIGZAG;
    for (i = 0; i < 2; i++) {
        struct plan *compute = NULL;
        struct plan *lowered = NULL;

        shape.schedule = takers[i];
        assert_int_equal(plan_generate(&shape, &compute), STATUS_OK);
        assert_memory_equal(compute->rank_of, zigzag, sizeof(zigzag));
        assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
        assert_int_equal(plan_validate(lowered), STATUS_OK);
        plan_destroy(&compute);
        plan_destroy(&lowered);
        shape.schedule = others[i];
        expect_refused(&shape, "has no order on a zigzag");
    }
    shape.schedule = SCHEDULE_BFS;
    shape.virtual_stages = 3;
    expect_refused(&shape, "virtual_stages is 3, expected an even number on a zigzag");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_have_the_published_orders),
        cmocka_unit_test(four_ranks_have_the_published_orders),
        cmocka_unit_test(bfs_takes_all_micro_batches_through_a_chunk),
        cmocka_unit_test(one_micro_batch_goes_down_and_up_a_v),
        cmocka_unit_test(extra_micro_batches_in_flight_lengthen_the_warm_up),
        cmocka_unit_test(shapes_without_an_order_are_refused_by_name),
        cmocka_unit_test(placements_other_than_the_schedule_s_are_taken_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
