#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "plan_fixture.h"
#include "scheduler/depth.h"
#include "scheduler/plan_report.h"
#include "scheduler/prove.h"
#include "scheduler/simulate.h"

/* All times are sums of a few thousand small numbers; the oracle prints six decimals. */
#define TOLERANCE 1e-6

static void expect_close(double found, double expected)
{
    if (!(found - expected < TOLERANCE && expected - found < TOLERANCE)) {
        fail_msg("found %.9f, expected %.9f", found, expected);
    }
}

static struct simulation simulate(const struct plan *plan, const double *c, bool unbounded)
{
    struct plan_costs costs;
    struct simulation simulation;

    assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], c[3], &costs), STATUS_OK);
    costs.unbounded = unbounded;
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    plan_costs_release(&costs);
    return simulation;
}

static double makespan(const struct plan *plan, const double *c, bool unbounded)
{
    struct simulation simulation = simulate(plan, c, unbounded);
    double found = simulation.makespan;

    simulation_release(&simulation);
    return found;
}

static int read_costs(const char *key, double c[4])
{
    int count = 0;
    char *end = NULL;

    while (count < 4 && *key != '\0') {
        c[count++] = strtod(key, &end);
        assert_true(end != key);
        key = *end == ',' ? end + 1 : end;
    }
    assert_int_equal(*key, '\0');
    return count;
}

/* The makespan of the plan of this shape at another lane_depth. */
static double makespan_at(struct plan_shape shape, int32_t depth, const double *c)
{
    struct plan *plan = NULL;
    double found;

    shape.lane_depth = depth;
    assert_int_equal(plan_prove(&shape, NULL, &plan), STATUS_OK);
    found = makespan(plan, c, false);
    plan_destroy(&plan);
    return found;
}

/* At the depth that is called enough the plan loses nothing, at one less it does. */
static void check_depth(const struct plan *plan, const double *c, double shortest)
{
    struct plan_costs costs;
    int32_t depth = 0;

    assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], c[3], &costs), STATUS_OK);
    assert_int_equal(plan_perf_depth(plan, &costs, &depth), STATUS_OK);
    plan_costs_release(&costs);
    expect_close(makespan_at(plan->shape, depth, c), shortest);
    if (depth > 1) {
        assert_true(makespan_at(plan->shape, depth - 1, c) > shortest + TOLERANCE);
    }
    if (plan->shape.virtual_stages == 1) {
        assert_true(depth <= 2);
    }
}

/* Keys are "F,I,W" or "F,I,W,c". The oracle's buffers are unbounded. */
static void check_times(const struct plan *plan, json_t *times)
{
    const char *key;
    json_t *value;

    json_object_foreach(times, key, value)
    {
        double c[4] = {0.0, 0.0, 0.0, 0.0};
        int count = read_costs(key, c);

        assert_true(count == 3 || count == 4);
        expect_close(makespan(plan, c, true), json_number_value(value));
        check_depth(plan, c, json_number_value(value));
    }
}

static void check_peaks(const struct plan *plan, json_t *expected, bool w_holds)
{
    double peaks[64];
    size_t i;

    assert_int_equal(json_array_size(expected), plan->shape.ranks);
    assert_int_equal(plan_peaks(plan, w_holds, peaks), STATUS_OK);
    for (i = 0; i < json_array_size(expected); i++) {
        expect_close(peaks[i], json_number_value(json_array_get(expected, i)));
    }
}

static void check_row(json_t *row, enum schedule schedule)
{
    int32_t p = (int32_t)json_integer_value(json_object_get(row, "p"));
    int32_t m = (int32_t)json_integer_value(json_object_get(row, "m"));
    int32_t v = (int32_t)json_integer_value(json_object_get(row, "v"));
    int early;

    for (early = 0; early < 2; early++) {
        struct plan *plan = fixture_chunks(schedule, p, m, v, early == 1);
        struct plan_costs costs;
        struct plan_report report;

        check_times(plan, json_object_get(row, early == 1 ? "early" : "plain"));
        check_peaks(plan, json_object_get(row, "peak_w0"), false);
        /* The oracle's zb_h2 begins a forward before the W beside it, ours behind it and holds one
         * micro-batch less: test_schedules.c has our peaks. */
        if (schedule != SCHEDULE_ZB_H2) {
            check_peaks(plan, json_object_get(row, "peak_wall"), true);
        }
        assert_int_equal(plan_costs_uniform(plan, 1.0, 1.0, 1.0, 0.0, &costs), STATUS_OK);
        assert_int_equal(plan_report_make(plan, &costs, &report), STATUS_OK);
        assert_int_equal(report.messages, json_integer_value(json_object_get(row, "messages")));
        plan_report_release(&report);
        plan_costs_release(&costs);
        plan_destroy(&plan);
    }
}

static void times_peaks_and_messages_are_those_of_the_oracle(void **state)
{
    json_error_t error;
    json_t *rows = json_load_file(TEST_REFERENCE_DIR "/schedule_vectors.json", 0, &error);
    size_t i;
    int schedule;
    int checked = 0;

    (void)state;
    assert_true(json_is_array(rows));
    for (i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "schedule"));

        assert_non_null(name);
        for (schedule = 0; schedule < SCHEDULE_FILE; schedule++) {
            if (strcmp(name, schedule_text((enum schedule)schedule)) == 0) {
                check_row(row, (enum schedule)schedule);
                checked++;
            }
        }
    }
    assert_int_equal(checked, (int)json_array_size(rows));
    assert_true(checked >= 27);
    json_decref(rows);
}

static void expect_bubble(enum schedule schedule, int32_t p, int32_t m, bool early)
{
    static const double triples[3][4] = {
        {1.0, 1.0, 1.0, 0.0}, {10.0, 14.0, 7.0, 0.0}, {3.0, 2.0, 5.0, 0.0}};
    struct plan *plan = fixture_lowered(schedule, p, m, early);
    int i;

    for (i = 0; i < 3; i++) {
        const double *c = triples[i];
        struct simulation simulation = simulate(plan, c, false);
        double wait = c[0] + c[1] + (early ? 0.0 : c[2]);

        expect_close(simulation.ideal, m * (c[0] + c[1] + c[2]));
        expect_close(simulation.bubble, (p - 1) * wait);
        expect_close(simulation.makespan, simulation.ideal + simulation.bubble);
        simulation_release(&simulation);
    }
    plan_destroy(&plan);
}

/* The bubble of GPipe and 1F1B is p - 1 times what the last rank needs until it can answer:
 * F + I + W, or F + I with early send. */
static void bubbles_have_their_closed_forms(void **state)
{
    int32_t p;
    int32_t m;

    (void)state;
    for (p = 2; p <= 8; p++) {
        for (m = 1; m <= 4 * p + 2; m++) {
            expect_bubble(SCHEDULE_GPIPE, p, m, false);
            expect_bubble(SCHEDULE_GPIPE, p, m, true);
            expect_bubble(SCHEDULE_1F1B, p, m, false);
            expect_bubble(SCHEDULE_1F1B, p, m, true);
        }
    }
}

static void expect_time(const struct plan *plan, const struct simulation *simulation, int32_t rank,
                        const char *text, double begin, double end)
{
    int32_t i = fixture_find(plan, rank, text);

    assert_true(i >= 0);
    expect_close(simulation->begin[rank][i], begin);
    expect_close(simulation->end[rank][i], end);
}

/* F 2, I 3, W 5, latency 1: 0F0 0..2, message 2..3, 1F0 3..5, 1I0 5..8, message 8..9, 1W0 8..13,
 * 0B0 9..17. */
static void one_micro_batch_on_two_ranks_as_worked_out_by_hand(void **state)
{
    static const double c[4] = {2.0, 3.0, 5.0, 1.0};
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 2, 1, true);
    struct simulation simulation = simulate(plan, c, false);

    (void)state;
    expect_time(plan, &simulation, 0, "0F0", 0.0, 2.0);
    expect_time(plan, &simulation, 0, "0SEND_F0", 2.0, 2.0);
    expect_time(plan, &simulation, 1, "1RECV_F0", 2.0, 3.0);
    expect_time(plan, &simulation, 1, "1F0", 3.0, 5.0);
    expect_time(plan, &simulation, 1, "1I0", 5.0, 8.0);
    expect_time(plan, &simulation, 1, "1SEND_B0", 8.0, 8.0);
    expect_time(plan, &simulation, 1, "1W0", 8.0, 13.0);
    expect_time(plan, &simulation, 0, "0B0", 9.0, 17.0);
    expect_time(plan, &simulation, 0, "STEP", 17.0, 17.0);
    expect_close(simulation.makespan, 17.0);
    expect_close(simulation.ideal, 10.0);
    expect_close(simulation.bubble, 7.0);
    expect_close(simulation.span_bubble, 7.0);
    simulation_release(&simulation);
    plan_destroy(&plan);
}

/* Forward-only on two ranks with F 1 and 4, 1 slot and 2 more landing buffers: message 3 waits for
 * the release of message 0 at the end of 1F0, t = 5; then the out buffer is free and 0F4 runs. */
static void a_slow_receiver_holds_its_sender_back_unless_unbounded(void **state)
{
    static const double F[2] = {1.0, 4.0};
    static const double none[2] = {0.0, 0.0};
    struct plan_costs costs = {.F = F, .I = none, .W = none};
    struct plan *plan = fixture_lowered(SCHEDULE_FORWARD_ONLY, 2, 6, true);
    struct simulation simulation;

    (void)state;
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    expect_time(plan, &simulation, 0, "0F3", 3.0, 4.0);
    expect_time(plan, &simulation, 0, "0SEND_F3", 5.0, 5.0);
    expect_time(plan, &simulation, 0, "0F4", 5.0, 6.0);
    expect_time(plan, &simulation, 0, "0SEND_F4", 9.0, 9.0);
    expect_close(simulation.makespan, 25.0);
    simulation_release(&simulation);
    costs.unbounded = true;
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    expect_time(plan, &simulation, 0, "0F4", 4.0, 5.0);
    expect_time(plan, &simulation, 0, "0F5", 5.0, 6.0);
    expect_close(simulation.makespan, 25.0);
    simulation_release(&simulation);
    plan_destroy(&plan);
}

/* Two ranks, two micro-batches, B whole: F 1, I and W 1 each, a copy of 0.25 on the sender, messages
 * of 0.5 into virtual stage 1 and of 0.125 into 0, and 0.0625 before each compute action. By hand:
 * 0F0 0.0625-1.0625, copied at 1.3125, 0F1 from 1.375 (not 1.125) to 2.375, copied at 2.625.
 * 1F0 needs 1.3125+0.5 and begins 0.0625 later, 1.875-2.875; 1B0 2.9375-4.9375; copied at 5.1875;
 * 1F1 5.25-6.25, 1B1 6.3125-8.3125, copied at 8.5625.
 * 0B0 needs 5.1875+0.125 and begins at 5.375; 0B1 at 8.5625+0.125+0.0625 = 8.75, ends at 10.75. */
static void copies_links_and_overheads_as_worked_out_by_hand(void **state)
{
    static const double ones[2] = {1.0, 1.0};
    static const double into_f[2] = {99.0, 0.5};
    static const double into_b[2] = {0.125, 99.0};
    struct plan_costs costs = {.F = ones,
                               .I = ones,
                               .W = ones,
                               .message = 99.0,
                               .message_into = {into_f, into_b},
                               .send = 0.25,
                               .action = 0.0625};
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 2, 2, false);
    struct simulation simulation;
    int32_t depth = 0;

    (void)state;
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    expect_time(plan, &simulation, 0, "0F0", 0.0625, 1.0625);
    expect_time(plan, &simulation, 0, "0SEND_F0", 1.0625, 1.3125);
    expect_time(plan, &simulation, 0, "0F1", 1.375, 2.375);
    expect_time(plan, &simulation, 1, "1RECV_F0", 1.3125, 1.8125);
    expect_time(plan, &simulation, 1, "1F0", 1.875, 2.875);
    expect_time(plan, &simulation, 1, "1B0", 2.9375, 4.9375);
    expect_time(plan, &simulation, 1, "1F1", 5.25, 6.25);
    expect_time(plan, &simulation, 1, "1B1", 6.3125, 8.3125);
    expect_time(plan, &simulation, 0, "0B0", 5.375, 7.375);
    expect_time(plan, &simulation, 0, "0B1", 8.75, 10.75);
    expect_close(simulation.makespan, 10.75);
    expect_close(simulation.ideal, 6.0);
    simulation_release(&simulation);
    assert_int_equal(plan_perf_depth(plan, &costs, &depth), STATUS_OK);
    assert_int_equal(depth, 1);
    plan_destroy(&plan);
}

static void a_plan_that_deadlocks_is_refused(void **state)
{
    static const double ones[4] = {1.0, 1.0, 1.0, 1.0};
    struct plan_costs costs = {.F = ones, .I = ones, .W = ones};
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 4, 8, true);
    struct simulation simulation = {.times = NULL};
    int saved = fixture_mute();

    (void)state;
    plan->buffers[1].landing_f = 2;
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_ERR_REFUSED);
    assert_null(simulation.begin);
    fixture_unmute(saved);
    plan_destroy(&plan);
}

static void a_chunk_costs_its_share_of_a_rank(void **state)
{
    static const double c[4] = {4.0, 6.0, 8.0, 0.0};
    struct plan *plan = fixture_text("0F0 1F0 1B0 0B0\n");
    struct plan_costs costs;

    (void)state;
    assert_int_equal(plan_costs_uniform(plan, c[0], c[1], c[2], 3.0, &costs), STATUS_OK);
    expect_close(costs.F[0], 2.0);
    expect_close(costs.I[1], 3.0);
    expect_close(costs.W[1], 4.0);
    expect_close(costs.message, 3.0);
    plan_costs_release(&costs);
    plan_destroy(&plan);
}

/* 1F1B with early send, p 2, m 1, by hand: F0 F1 I1 W1 beside I0 W0: makespan F+F+I+max(W, I+W) = 5
 * units of which each rank works 3; p 2, m 4: 14 units, 12 worked. */
static void the_idle_share_is_what_the_ranks_do_not_work(void **state)
{
    static const int32_t microbatches[] = {1, 4};
    static const double shares[] = {1.0 - 3.0 / 5.0, 1.0 - 12.0 / 14.0};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct plan_shape shape = {.schedule = SCHEDULE_1F1B,
                                         .ranks = 2,
                                         .microbatches = microbatches[i],
                                         .virtual_stages = 1,
                                         .lane_depth = 2,
                                         .early_send = true};
        struct plan_costs costs;
        struct plan *plan = NULL;
        double share = 0.0;

        assert_int_equal(plan_prove(&shape, NULL, &plan), STATUS_OK);
        assert_int_equal(plan_costs_uniform(plan, 1.0, 1.0, 1.0, 0.0, &costs), STATUS_OK);
        assert_int_equal(plan_idle_share(plan, &costs, &share), STATUS_OK);
        expect_close(share, shares[i]);
        plan_costs_release(&costs);
        plan_destroy(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_peaks_and_messages_are_those_of_the_oracle),
        cmocka_unit_test(bubbles_have_their_closed_forms),
        cmocka_unit_test(one_micro_batch_on_two_ranks_as_worked_out_by_hand),
        cmocka_unit_test(a_slow_receiver_holds_its_sender_back_unless_unbounded),
        cmocka_unit_test(copies_links_and_overheads_as_worked_out_by_hand),
        cmocka_unit_test(a_plan_that_deadlocks_is_refused),
        cmocka_unit_test(a_chunk_costs_its_share_of_a_rank),
        cmocka_unit_test(the_idle_share_is_what_the_ranks_do_not_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
