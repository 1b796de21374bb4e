#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/depth.h"
#include "scheduler/generate.h"
#include "scheduler/graph.h"
#include "scheduler/lower.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"

#define MOST_RANKS 8

static struct plan *compute_of(enum schedule schedule, int32_t p, int32_t m, int32_t v)
{
    struct plan_shape shape = fixture_shape(schedule, p, m, false);
    struct plan *plan = NULL;

    shape.virtual_stages = v;
    assert_int_equal(plan_generate(&shape, &plan), STATUS_OK);
    return plan;
}

static void expect_line(const struct plan *plan, int32_t rank, const char *expected)
{
    assert_string_equal(fixture_line(plan, rank), expected);
}

/* The published orders for two ranks: virtual stages 0 and 2 are rank 0's, 1 and 3 rank 1's. */
static void two_ranks_of_two_chunks_have_the_published_order(void **state)
{
    struct plan *plan = compute_of(SCHEDULE_INTERLEAVED_1F1B, 2, 4, 2);

    (void)state;
    expect_line(plan, 0, "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
    expect_line(plan, 1, "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
    plan_destroy(&plan);
}

/* One rank: a micro-batch goes through both chunks before the next begins; the first backward of
 * each waits for nothing but its own forwards. Worked out by hand: groups of 1, warm-up 1. */
static void one_rank_takes_chunks_in_turn(void **state)
{
    struct plan *plan = compute_of(SCHEDULE_INTERLEAVED_1F1B, 1, 2, 2);

    (void)state;
    expect_line(plan, 0, "0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1");
    plan_destroy(&plan);
}

/* m = 7, p = 3: two groups, of 4 and 3. By hand. */
static void groups_differ_by_one_at_most_and_the_larger_come_first(void **state)
{
    struct plan *plan = compute_of(SCHEDULE_FORWARD_ONLY, 3, 7, 2);

    (void)state;
    expect_line(plan, 0, "0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3 0F4 0F5 0F6 3F4 3F5 3F6");
    plan_destroy(&plan);
}

static void one_chunk_is_1f1b(void **state)
{
    int32_t p;
    int32_t m;
    int32_t rank;

    (void)state;
    for (p = 1; p <= 6; p++) {
        for (m = 1; m <= 13; m++) {
            struct plan *one = fixture_lowered(SCHEDULE_1F1B, p, m, true);
            struct plan *interleaved = fixture_lowered(SCHEDULE_INTERLEAVED_1F1B, p, m, true);

            for (rank = 0; rank < p; rank++) {
                assert_true(plan_line_hash(one, rank) == plan_line_hash(interleaved, rank));
            }
            plan_destroy(&one);
            plan_destroy(&interleaved);
        }
    }
}

static void expect_proved(enum schedule schedule, int32_t p, int32_t m, int32_t v, bool early)
{
    struct plan *plan = fixture_chunks(schedule, p, m, v, early);

    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
}

static void every_plan_of_several_chunks_is_proved(void **state)
{
    int32_t p;
    int32_t v;
    int32_t m;

    (void)state;
    for (p = 1; p <= MOST_RANKS; p++) {
        for (v = 1; v <= 4; v++) {
            for (m = 1; m <= 4 * p + 2; m++) {
                expect_proved(SCHEDULE_INTERLEAVED_1F1B, p, m, v, false);
                expect_proved(SCHEDULE_INTERLEAVED_1F1B, p, m, v, true);
                expect_proved(SCHEDULE_FORWARD_ONLY, p, m, v, false);
            }
        }
    }
}

static void expect_close(double found, double expected)
{
    if (!(found - expected < 1e-9 * (1.0 + expected) &&
          expected - found < 1e-9 * (1.0 + expected))) {
        fail_msg("found %.12f, expected %.12f", found, expected);
    }
}

/* Bubble without bounds, and with lanes of `depth` where that is not 0. */
static void expect_bubble(const struct plan *plan, const double *c, int32_t depth, double bubble)
{
    struct plan_costs costs;
    struct simulation simulation;

    assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], c[3], &costs), STATUS_OK);
    costs.unbounded = true;
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    expect_close(simulation.bubble, bubble);
    simulation_release(&simulation);
    if (depth > 0) {
        int32_t enough = 0;

        assert_int_equal(plan_perf_depth(plan, &costs, &enough), STATUS_OK);
        assert_true(enough <= depth);
    }
    plan_costs_release(&costs);
}

/* A rank waits for p - 1 others, each of which works on a chunk; where a group is smaller than the
 * ranks, every round but the first waits for the micro-batches that it lacks, too. */
static double rounds(int32_t p, int32_t m, int32_t v)
{
    return (p - 1 + (m < p ? (v - 1) * (p - m) : 0)) / (double)v;
}

/* With early send a rank hides its W behind the way of the gradient, as long as W is no longer than
 * F; with several chunks and a longer one there is a little more to wait. */
static void check_bubbles(int32_t p, int32_t m, int32_t v)
{
    static const double triples[3][4] = {
        {1.0, 1.0, 1.0, 0.0}, {10.0, 14.0, 7.0, 0.0}, {3.0, 2.0, 5.0, 0.0}};
    struct plan *whole = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, p, m, v, false);
    struct plan *early = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, p, m, v, true);
    struct plan *forward = fixture_chunks(SCHEDULE_FORWARD_ONLY, p, m, v, false);
    int i;

    for (i = 0; i < 3; i++) {
        const double *c = triples[i];
        const double forwards[4] = {c[0], 0.0, 0.0, 0.0};

        expect_bubble(whole, c, 2, rounds(p, m, v) * (c[0] + c[1] + c[2]));
        if (m >= p) {
            const double hidden[4] = {c[0], c[1], c[2] < c[0] ? c[2] : c[0], 0.0};

            expect_bubble(early, hidden, 0, rounds(p, m, v) * (c[0] + c[1]));
        }
        expect_bubble(forward, forwards, 2, rounds(p, m, v) * c[0]);
    }
    plan_destroy(&whole);
    plan_destroy(&early);
    plan_destroy(&forward);
}

static void bubbles_have_their_closed_forms_for_every_number_of_micro_batches(void **state)
{
    int32_t p;
    int32_t v;
    int32_t m;

    (void)state;
    for (p = 2; p <= MOST_RANKS; p++) {
        for (v = 1; v <= 4; v++) {
            for (m = 1; m <= 4 * p + 2; m++) {
                check_bubbles(p, m, v);
            }
        }
    }
}

/* Rank r begins 2(p-1-r) + (v-1)·g + 1 chunk forwards before its first backward ends, or all. */
static void check_peaks(int32_t p, int32_t m, int32_t v)
{
    struct plan *plan = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, p, m, v, true);
    int32_t groups = m < p ? 1 : m / p;
    int32_t largest = (m + groups - 1) / groups;
    double peaks[MOST_RANKS];
    int32_t r;

    assert_int_equal(plan_peaks(plan, true, peaks), STATUS_OK);
    for (r = 0; r < p; r++) {
        int32_t begun = 2 * (p - 1 - r) + (v - 1) * largest + 1;

        expect_close(peaks[r], (begun < m * v ? begun : m * v) / (double)v);
    }
    plan_destroy(&plan);
}

static void peaks_have_their_closed_form(void **state)
{
    int32_t p;
    int32_t v;
    int32_t m;

    (void)state;
    for (p = 1; p <= MOST_RANKS; p++) {
        for (v = 2; v <= 4; v++) {
            for (m = 1; m <= 4 * p + 2; m++) {
                check_peaks(p, m, v);
            }
        }
    }
}

/* Groups of p micro-batches and a rest, as others have it: with a rest smaller than p, the order
 * waits for itself. Builds the text of that order. */
static void print_groups_of_p(int32_t p, int32_t v, int32_t m, int32_t rank, char *text,
                              size_t text_bytes)
{
    int32_t table[64][2];
    int32_t all = m * v;
    int32_t warmup = 2 * (p - 1 - rank) + (v - 1) * p;
    int32_t n = 0;
    size_t at = strlen(text);

    for (int32_t first = 0; first < m; first += p) {
        for (int32_t chunk = 0; chunk < v; chunk++) {
            for (int32_t k = first; k < m && k < first + p; k++) {
                table[n][0] = k;
                table[n++][1] = chunk;
            }
        }
    }
    assert_int_equal(n, all);
    warmup = warmup < all ? warmup : all;
    for (int32_t k = 0; k < all + warmup; k++) {
        if (k < all) {
            at += (size_t)snprintf(text + at, text_bytes - at, "%dF%d ", table[k][1] * p + rank,
                                   table[k][0]);
        }
        if (k >= warmup) {
            at += (size_t)snprintf(text + at, text_bytes - at, "%dB%d ",
                                   (v - 1 - table[k - warmup][1]) * p + rank, table[k - warmup][0]);
        }
    }
    (void)snprintf(text + at, text_bytes - at, "\n");
}

static struct plan *groups_of_p(int32_t p, int32_t v, int32_t m)
{
    char text[4096] = "";
    struct plan *compute;
    struct plan *lowered = NULL;

    for (int32_t rank = 0; rank < p; rank++) {
        print_groups_of_p(p, v, m, rank, text, sizeof(text));
    }
    compute = fixture_text(text);
    compute->shape.early_send = false;
    assert_int_equal(plan_lower(compute, &lowered), STATUS_OK);
    plan_destroy(&compute);
    return lowered;
}

static bool is_cyclic(const struct plan *plan, struct graph_rules rules)
{
    struct plan_index index;
    struct graph graph = {.plan = plan, .index = &index, .rules = rules};
    struct graph_walk walk;
    bool cyclic;

    assert_int_equal(plan_index_init(&index, plan), STATUS_OK);
    assert_int_equal(graph_walk_run(&graph, NULL, NULL, &walk), STATUS_OK);
    cyclic = walk.cyclic;
    graph_walk_release(&walk);
    plan_index_release(&index);
    return cyclic;
}

static void groups_with_a_small_rest_deadlock_and_balanced_ones_do_not(void **state)
{
    static const struct graph_rules in_line = {.in_line = true, .depth = 1000};
    static const struct graph_rules unbounded = {.unbounded = true};
    struct plan *plan = groups_of_p(4, 3, 5);
    int saved = fixture_mute();

    (void)state;
    assert_true(is_cyclic(plan, in_line));
    assert_true(is_cyclic(plan, unbounded));
    assert_int_equal(plan_validate(plan), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "deadlock at any lane_depth, cycle of"));
    fixture_unmute(saved);
    plan_destroy(&plan);
    plan = groups_of_p(4, 3, 8); /* no rest: the same order as ours */
    assert_false(is_cyclic(plan, in_line));
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
    plan = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, 4, 5, 3, false);
    assert_false(is_cyclic(plan, in_line));
    plan_destroy(&plan);
    plan = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, 4, 9, 3, false);
    assert_int_equal(plan_validate(plan), STATUS_OK);
    plan_destroy(&plan);
}

/* RECV before, SEND behind each compute action, one blocking line a rank: a buffer a lane is
 * enough, none is not. */
static void one_buffer_a_lane_is_enough_and_none_is_not(void **state)
{
    static const struct graph_rules rendezvous = {.in_line = true, .depth = 0};
    int32_t v;

    (void)state;
    for (v = 2; v <= 4; v += 2) {
        struct plan *plan = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, 4, 8, v, false);
        int32_t depth = 0;

        assert_true(is_cyclic(plan, rendezvous));
        assert_int_equal(plan_min_depth(plan, &depth), STATUS_OK);
        assert_int_equal(depth, 1);
        plan_destroy(&plan);
    }
}

static void schedules_of_one_chunk_refuse_more_and_name_the_others(void **state)
{
    static const enum schedule schedules[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_ZB_H1,
                                              SCHEDULE_ZB_H2};
    int saved = fixture_mute();
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(schedules) / sizeof(schedules[0]); i++) {
        struct plan_shape shape = fixture_shape(schedules[i], 2, 4, true);
        struct plan *plan = NULL;

        shape.virtual_stages = 2;
        assert_int_equal(plan_generate(&shape, &plan), STATUS_ERR_REFUSED);
        assert_non_null(strstr(status_last()->message, "virtual_stages 2"));
        assert_non_null(strstr(status_last()->message,
                               "legal with 2: interleaved_1f1b, bfs, izb, zb_v, v_half, v_min or "
                               "file:PATH"));
    }
    fixture_unmute(saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_of_two_chunks_have_the_published_order),
        cmocka_unit_test(one_rank_takes_chunks_in_turn),
        cmocka_unit_test(groups_differ_by_one_at_most_and_the_larger_come_first),
        cmocka_unit_test(one_chunk_is_1f1b),
        cmocka_unit_test(every_plan_of_several_chunks_is_proved),
        cmocka_unit_test(bubbles_have_their_closed_forms_for_every_number_of_micro_batches),
        cmocka_unit_test(peaks_have_their_closed_form),
        cmocka_unit_test(groups_with_a_small_rest_deadlock_and_balanced_ones_do_not),
        cmocka_unit_test(one_buffer_a_lane_is_enough_and_none_is_not),
        cmocka_unit_test(schedules_of_one_chunk_refuse_more_and_name_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
