/* Costs of a run whose actions have known lengths, the file that keeps them, and what-ifs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_fixture.h"
#include "scheduler/costs.h"
#include "scheduler/costs_file.h"
#include "scheduler/what_if.h"
#include "scratch.h"
#include "tests/scheduler/demo_run.h"

#define TOLERANCE 1e-4 /* of milliseconds: times of a trace are whole nanoseconds */

static void expect_close(double found, double expected)
{
    if (!(found - expected < TOLERANCE && expected - found < TOLERANCE)) {
        fail_msg("found %.9f, expected %.9f", found, expected);
    }
}

static const struct costs_plan two_ranks = {
    .schedule = "zb_h1", .ranks = 2, .microbatches = 4, .virtual_stages = 1};

/* Three steps of zb_h1, whose I and W stand apart, on two ranks, F 4, I 5, W 6 ms, virtual stage 1 a quarter more, messages of
 * 0.5 ms, an update of twice 2 ms: the numbers that demo_run lays the spans out by. */
static struct trace_run demo(void)
{
    struct demo_config config = {
        .shape = fixture_shape(SCHEDULE_ZB_H1, 2, 4, true),
        .first_step = 1,
        .steps = 3,
        .forward_ms = 4.0,
        .input_ms = 5.0,
        .weight_ms = 6.0,
        .message_ms = 0.5,
        .slope = 0.25,
        .update_ms = 2.0,
    };
    struct trace_run run;

    config.shape.embedding_sync = false;
    demo_run_make(&config, "demo", &run);
    return run;
}

static struct costs measured(void)
{
    static const struct costs_step steps[] = {{1, 100.0}, {2, 110.0}, {3, 90.0}};
    struct trace_run run = demo();
    struct costs costs;

    assert_int_equal(costs_measure(&run, &two_ranks, steps, 3, &costs), STATUS_OK);
    trace_run_release(&run);
    return costs;
}

static void a_table_has_what_the_spans_took(void **state)
{
    struct costs costs = measured();

    (void)state;
    assert_int_equal(costs.stages, 2);
    for (int stage = 0; stage < 2; stage++) {
        double factor = stage == 0 ? 1.0 : 1.25;

        assert_int_equal(costs.compute[COST_F][stage].count, 12);
        expect_close(costs.compute[COST_F][stage].median, 4.0 * factor);
        expect_close(costs.compute[COST_I][stage].mean, 5.0 * factor);
        expect_close(costs.compute[COST_W][stage].p90, 6.0 * factor);
        expect_close(costs.busy[stage], 4.0 * 15.0 * factor);
    }
    /* SENDs of the demo take no time, and a message is there 0.5 ms later. */
    expect_close(costs.send.typical, 0.0);
    assert_int_equal(costs.send.count, 24);
    expect_close(costs.message_bytes, 3145728.0);
    expect_close(costs.latency[LANE_F][1].typical, 0.5);
    expect_close(costs.action.typical, 0.0);
    assert_int_equal(costs.optimizer.count, 6);
    expect_close(costs.optimizer.mean, 2.0);
    assert_int_equal(costs.step.count, 3);
    expect_close(costs.step.median, 100.0);
    expect_close(costs.step.mean, 100.0);
    /* All steps are the same, so the rest is what each took more than its span. */
    expect_close(costs.rest.median, 100.0 - costs.span.median);
    costs_release(&costs);
}

/* A step of the demo lasts its makespan and two updates. */
static void without_a_clock_the_rest_reaches_to_the_next_step(void **state)
{
    struct trace_run run = demo();
    struct costs costs;

    (void)state;
    assert_int_equal(costs_measure(&run, &two_ranks, NULL, 0, &costs), STATUS_OK);
    assert_int_equal(costs.rest.count, 2);
    expect_close(costs.rest.median, 4.0);
    assert_int_equal(costs.step.count, 0);
    costs_release(&costs);
    trace_run_release(&run);
}

/* Simulated with what was measured, the plan takes what the trace took. */
static void the_model_of_a_run_gives_its_span(void **state)
{
    struct costs costs = measured();
    struct plan *plan = fixture_lowered(SCHEDULE_ZB_H1, 2, 4, true);
    struct plan_costs model;
    struct simulation simulation;
    int saved;

    (void)state;
    assert_true(costs_are_of(&costs, plan));
    assert_int_equal(costs_model(&costs, plan, &model), STATUS_OK);
    assert_int_equal(plan_simulate(plan, &model, &simulation), STATUS_OK);
    expect_close(simulation.makespan, costs.span.median);
    simulation_release(&simulation);
    plan_costs_release(&model);
    plan_destroy(&plan);
    plan = fixture_lowered(SCHEDULE_GPIPE, 2, 4, true);
    assert_false(costs_are_of(&costs, plan));
    plan_destroy(&plan);
    plan = fixture_lowered(SCHEDULE_1F1B, 3, 4, true);
    saved = fixture_mute();
    assert_int_equal(costs_model(&costs, plan, &model), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "measured on 2 virtual stages"));
    fixture_unmute(saved);
    plan_destroy(&plan);
    costs_release(&costs);
}

/* 1 … 9 and one of 100, by hand: median 5.5, p90 9 + 0.1 · 91, mean 14.5; up to 11: mean 5. */
static void statistics_as_worked_out_by_hand(void **state)
{
    double samples[] = {100.0, 3.0, 1.0, 2.0, 9.0, 4.0, 8.0, 5.0, 7.0, 6.0};
    struct cost_stat stat = cost_stat_of(samples, 10);
    struct cost_stat none = cost_stat_of(samples, 0);

    (void)state;
    assert_int_equal(stat.count, 10);
    expect_close(stat.median, 5.5);
    expect_close(stat.p90, 18.1);
    expect_close(stat.mean, 14.5);
    expect_close(stat.typical, 5.0);
    assert_int_equal(none.count, 0);
    expect_close(none.typical, 0.0);
}

static void a_missing_action_is_refused(void **state)
{
    static const struct costs_plan larger = {
        .schedule = "zb_h1", .ranks = 3, .microbatches = 4, .virtual_stages = 1};
    struct trace_run run = demo();
    struct costs costs;
    int saved = fixture_mute();

    (void)state;
    assert_int_equal(costs_measure(&run, &larger, NULL, 0, &costs), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "no F of virtual stage 2"));
    fixture_unmute(saved);
    trace_run_release(&run);
}

static void expect_stat(const struct cost_stat *found, const struct cost_stat *expected)
{
    assert_int_equal(found->count, expected->count);
    expect_close(found->median, expected->median);
    expect_close(found->p90, expected->p90);
    expect_close(found->mean, expected->mean);
    expect_close(found->typical, expected->typical);
}

static void a_file_reads_back(void **state)
{
    struct costs costs = measured();
    struct costs again;
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "costs.json", path);
    assert_int_equal(costs_file_write(&costs, path), STATUS_OK);
    assert_int_equal(costs_file_read(path, &again), STATUS_OK);
    assert_string_equal(again.plan.schedule, "zb_h1");
    assert_int_equal(again.plan.microbatches, 4);
    assert_int_equal(again.stages, 2);
    for (int stage = 0; stage < 2; stage++) {
        for (int kind = 0; kind < COST_KINDS; kind++) {
            expect_stat(&again.compute[kind][stage], &costs.compute[kind][stage]);
        }
        expect_stat(&again.latency[LANE_F][stage], &costs.latency[LANE_F][stage]);
        expect_stat(&again.latency[LANE_B][stage], &costs.latency[LANE_B][stage]);
        expect_close(again.busy[stage], costs.busy[stage]);
    }
    expect_stat(&again.rest, &costs.rest);
    expect_stat(&again.step, &costs.step);
    expect_stat(&again.round, &costs.round);
    costs_release(&again);
    costs_release(&costs);
    scratch_remove(&scratch);
}

/* Writes the file with the first `from` as `to`, and expects the refusal to say so. */
static void expect_file_refused(const char *text, const char *from, const char *to,
                                const char *expected)
{
    const char *at = strstr(text, from);
    size_t bytes = strlen(text) + strlen(to) + 1;
    char *changed = malloc(bytes);
    struct costs costs;
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    int saved;

    assert_non_null(at);
    assert_non_null(changed);
    (void)snprintf(changed, bytes, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    scratch_make(&scratch);
    scratch_path(&scratch, "costs.json", path);
    scratch_write(path, changed, strlen(changed));
    saved = fixture_mute();
    assert_int_equal(costs_file_read(path, &costs), STATUS_ERR_REFUSED);
    fixture_unmute(saved);
    if (strstr(status_last()->message, expected) == NULL ||
        strstr(status_last()->message, "costs.json") == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", expected, status_last()->message);
    }
    scratch_remove(&scratch);
    free(changed);
}

static void a_file_that_is_wrong_is_refused_with_key_and_value(void **state)
{
    struct costs costs = measured();
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char *text;
    size_t bytes = 0;

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "costs.json", path);
    assert_int_equal(costs_file_write(&costs, path), STATUS_OK);
    text = scratch_read(path, &bytes);
    scratch_remove(&scratch);
    costs_release(&costs);
    expect_file_refused(text, "\"median\": ", "\"median\": -", "stages[0].F.median is -4");
    expect_file_refused(text, "\"median\": ", "\"median\": \"x\", \"y\": ",
                        "stages[0].F.median is \"x\", expected a number of at least 0");
    expect_file_refused(text,
                        "\"median\": ", "\"median\": NaN, \"y\": ", "expected an object of JSON");
    expect_file_refused(text,
                        "\"median\": ", "\"median\": 1e999, \"y\": ", "expected an object of JSON");
    expect_file_refused(text, "\"median\"", "\"middle\"", "stages[0].F.median is nothing");
    expect_file_refused(text, "\"W\"", "\"V\"", "stages[0].W is nothing, expected an object");
    expect_file_refused(text, "\"count\": 12", "\"count\": 1.5", "stages[0].F.count is 1.5");
    expect_file_refused(text, "\"pp\": 2", "\"pp\": 3", "stages has 2 entries, expected 3");
    expect_file_refused(text, "\"pp\": 2", "\"pp\": 0", "plan.pp is 0");
    expect_file_refused(text, "\"pp\": 2", "\"pp\": 99999999999", "plan.pp is 99999999999");
    expect_file_refused(text, "\"ms\"", "\"s\"", "unit is \"s\", expected \"ms\"");
    expect_file_refused(text, "\"version\": 1", "\"version\": 2", "version is 2");
    expect_file_refused(text, "\"busy\": [", "\"busy\": [1, ", "busy has 3 entries, expected 2");
    expect_file_refused(text, "\"rest\"", "\"sleep\"", "rest is nothing");
    expect_file_refused(text, "{", "[", "line");
    free(text);
}

static struct what_if parse(const char *text)
{
    struct what_if what_if;
    char again[64];

    assert_int_equal(what_if_parse(text, &what_if), STATUS_OK);
    what_if_print(&what_if, again, sizeof(again));
    assert_string_equal(again, text);
    return what_if;
}

/* Four virtual stages on two ranks: 0 and 2 on rank 0, 1 and 3 on rank 1. */
static void a_what_if_changes_what_it_names(void **state)
{
    static const double cost[4] = {1.0, 2.0, 3.0, 4.0};
    const struct plan_costs costs = {
        .F = cost, .I = cost, .W = cost, .message = 0.5, .send = 0.25, .action = 0.125};
    struct plan *plan = fixture_chunks(SCHEDULE_INTERLEAVED_1F1B, 2, 4, 2, true);
    const char *const texts[] = {
        "stage 1 x 0.5", "virtual stage 2 x 2", "F x 3",      "latency x 4",
        "copy x 2",      "overhead x 0",        "rest x 0.25"};
    struct plan_costs changed;
    double rest = 8.0;

    (void)state;
    assert_int_equal(plan_costs_copy(&costs, 4, &changed), STATUS_OK);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct what_if what_if = parse(texts[i]);

        assert_int_equal(what_if_apply(&what_if, plan, &changed, &rest), STATUS_OK);
    }
    expect_close(changed.F[0], 3.0);
    expect_close(changed.F[1], 3.0);
    expect_close(changed.F[2], 18.0);
    expect_close(changed.F[3], 6.0);
    expect_close(changed.I[0], 1.0);
    expect_close(changed.I[1], 1.0);
    expect_close(changed.W[2], 6.0);
    expect_close(changed.W[3], 2.0);
    expect_close(changed.message_into[LANE_F][1], 2.0);
    expect_close(changed.message_into[LANE_B][0], 2.0);
    expect_close(changed.send, 0.5);
    expect_close(changed.action, 0.0);
    expect_close(rest, 2.0);
    expect_close(cost[0], 1.0);
    plan_costs_release(&changed);
    plan_destroy(&plan);
}

static void a_what_if_that_is_none_is_refused(void **state)
{
    static const char *const texts[] = {
        "",          "stage",        "stage 1",      "stage x 2", "stage 1 x",
        "F x -1",    "F x nan",      "F x inf",      "F",         "G x 2",
        "F x 2 x 3", "stage -1 x 2", "stages 1 x 2", "latency 2", "F x 1e999"};
    static const double ones[2] = {1.0, 1.0};
    const struct plan_costs costs = {.F = ones, .I = ones, .W = ones};
    struct plan *plan = fixture_lowered(SCHEDULE_1F1B, 2, 4, true);
    struct what_if what_if;
    double rest = 0.0;
    int saved = fixture_mute();

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (what_if_parse(texts[i], &what_if) != STATUS_ERR_REFUSED) {
            fail_msg("\"%s\" was taken", texts[i]);
        }
    }
    assert_int_equal(what_if_parse("stage 2 * 1.5", &what_if), STATUS_OK);
    assert_int_equal(what_if_apply(&what_if, plan, (struct plan_costs *)&costs, &rest),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "stages 0 to 1"));
    fixture_unmute(saved);
    plan_destroy(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_has_what_the_spans_took),
        cmocka_unit_test(without_a_clock_the_rest_reaches_to_the_next_step),
        cmocka_unit_test(the_model_of_a_run_gives_its_span),
        cmocka_unit_test(statistics_as_worked_out_by_hand),
        cmocka_unit_test(a_missing_action_is_refused),
        cmocka_unit_test(a_file_reads_back),
        cmocka_unit_test(a_file_that_is_wrong_is_refused_with_key_and_value),
        cmocka_unit_test(a_what_if_changes_what_it_names),
        cmocka_unit_test(a_what_if_that_is_none_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
