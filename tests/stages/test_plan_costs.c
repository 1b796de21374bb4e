/* Costs of a run directory, and what `weir plan` says with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/costs_file.h"
#include "stages/calibrate.h"
#include "stages/commands/plan_costs.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/plan_fixture.h"
#include "tests/scheduler/scratch.h"

#define TOLERANCE 1e-4 /* of milliseconds: times of a trace are whole nanoseconds */

static void expect_close(double found, double expected)
{
    if (!(found - expected < TOLERANCE && expected - found < TOLERANCE)) {
        fail_msg("found %.9f, expected %.9f", found, expected);
    }
}

/* What a run of zb_h1, pp 2, m 4 with F 4, I 5, W 6 ms leaves; step 1 took five times as long. */
static void make_run(struct scratch *scratch)
{
    static const char yaml[] = "model: {num_layers: 2, hidden_size: 32, num_heads: 2, seq_len: 8}\n"
                               "parallel: {pp: 2, schedule: zb_h1}\n"
                               "train: {steps: 4, micro_batch_size: 1, num_microbatches: 4}\n"
                               "optimizer: {lr: 1.0e-3}\n"
                               "data: {train: text.txt}\n";
    static const char metrics[] = "{\"config\": {}}\n"
                                  "{\"step\": 1, \"step_ms\": 500.0}\n"
                                  "{\"step\": 2, \"step_ms\": 100.0}\n"
                                  "{\"step\": 3, \"step_ms\": 80.0}\n"
                                  "{\"step\": 4, \"step_ms\": 82.0}\n"
                                  "{\"step\": 5, \"step_";
    struct demo_config config = {
        .shape = fixture_shape(SCHEDULE_ZB_H1, 2, 4, true),
        .first_step = 1,
        .steps = 4,
        .forward_ms = 4.0,
        .input_ms = 5.0,
        .weight_ms = 6.0,
        .update_ms = 2.0,
    };
    struct trace_run run;
    char path[SCRATCH_PATH_BYTES];

    config.shape.embedding_sync = false;
    scratch_make(scratch);
    scratch_folder(scratch, "trace");
    scratch_path(scratch, "config.yaml", path);
    scratch_write(path, yaml, strlen(yaml));
    scratch_path(scratch, "metrics.jsonl", path);
    scratch_write(path, metrics, strlen(metrics));
    demo_run_make(&config, "demo", &run);
    demo_run_write(&run, scratch->path);
    trace_run_release(&run);
}

static void a_run_is_measured_without_its_first_steps(void **state)
{
    struct scratch scratch;
    struct costs costs;

    (void)state;
    make_run(&scratch);
    assert_int_equal(calibrate_run(scratch.path, &costs), STATUS_OK);
    assert_string_equal(costs.plan.schedule, "zb_h1");
    assert_int_equal(costs.plan.ranks, 2);
    assert_int_equal(costs.plan.microbatches, 4);
    assert_int_equal(costs.compute[COST_F][0].count, 8); /* of steps 3 and 4 */
    expect_close(costs.compute[COST_W][1].typical, 6.0);
    assert_int_equal(costs.step.count, 2);
    expect_close(costs.step.median, 81.0);
    /* zb_h1 at p 2, m 4: the last rank begins F later and computes 4 (F + I + W), the first ends a
     * little later still: 69 ms, by hand. */
    expect_close(costs.span.median + costs.rest.median, 81.0);
    costs_release(&costs);
    scratch_remove(&scratch);
}

/* A file of costs in the run directory is taken as it is, its trace is not read again. */
static void kept_costs_are_taken_before_the_trace(void **state)
{
    struct scratch scratch;
    struct costs costs;
    char path[SCRATCH_PATH_BYTES];

    (void)state;
    make_run(&scratch);
    assert_int_equal(calibrate_load(scratch.path, &costs), STATUS_OK);
    expect_close(costs.compute[COST_F][0].typical, 4.0);
    costs.compute[COST_F][0].typical = 40.0;
    scratch_path(&scratch, "costs.json", path);
    assert_int_equal(costs_file_write(&costs, path), STATUS_OK);
    costs_release(&costs);
    assert_int_equal(calibrate_load(scratch.path, &costs), STATUS_OK);
    expect_close(costs.compute[COST_F][0].typical, 40.0);
    costs_release(&costs);
    assert_int_equal(calibrate_load(path, &costs), STATUS_OK);
    expect_close(costs.compute[COST_F][0].typical, 40.0);
    costs_release(&costs);
    scratch_remove(&scratch);
}

static void a_directory_without_a_run_is_refused(void **state)
{
    struct scratch scratch;
    struct costs costs;
    int saved = fixture_mute();

    (void)state;
    scratch_make(&scratch);
    assert_true(calibrate_load(scratch.path, &costs) < 0);
    assert_non_null(strstr(status_last()->message, "config.yaml"));
    fixture_unmute(saved);
    scratch_remove(&scratch);
}

/* What is printed for a plan of this schedule; the caller frees it. */
static char *say(struct plan_costs_request *request, enum schedule schedule)
{
    struct plan *plan = fixture_lowered(schedule, 2, 4, true);
    struct plan_costs costs;
    struct simulation simulation;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_int_equal(plan_costs_make(request, plan, &costs), STATUS_OK);
    assert_int_equal(plan_simulate(plan, &costs, &simulation), STATUS_OK);
    assert_int_equal(plan_costs_print(request, plan, &simulation, "# ", out), STATUS_OK);
    assert_int_equal(fclose(out), 0);
    simulation_release(&simulation);
    plan_costs_release(&costs);
    plan_destroy(&plan);
    return text;
}

static void expect_says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", words, text);
    }
}

static void prediction_and_measurement_stand_side_by_side(void **state)
{
    struct plan_costs_request request = {.path = NULL};
    struct scratch scratch;
    char *text;

    (void)state;
    make_run(&scratch);
    assert_int_equal(plan_costs_parse(&request, scratch.path), STATUS_OK);
    text = say(&request, SCHEDULE_ZB_H1);
    expect_says(text, "# predicted   81.0 ms a step: the plan ");
    expect_says(text, "# measured    81.0 ms a step, median of 2; predicted is +0.0 % of that\n");
    expect_says(text, "ms a step: 60.0 (60.0, +0.0 %) 60.0 (60.0, +0.0 %)\n");
    free(text);
    /* gpipe: (4 + 1) F + 4 (I + W) + I = 20 + 44 + 5 = 69 with early send, and what lies beside it. */
    text = say(&request, SCHEDULE_GPIPE);
    expect_says(text, "the plan 69.0, beside it ");
    expect_says(text, "of that run, which was zb_h1, pp 2, 4 micro-batches, 1 chunk a rank\n");
    free(text);
    plan_costs_request_release(&request);
    scratch_remove(&scratch);
}

/* gpipe with early send, F = I = W = 1, p 2, m 4: 14; with F 2: 19; and latency 1 twice more: the
 * message before the first F of rank 1 and the one before the last I of rank 0 are waited for. */
static void what_ifs_are_told_one_after_the_other(void **state)
{
    struct plan_costs_request request = {.uniform = {1.0, 1.0, 1.0, 1.0}};
    char *text;

    (void)state;
    text = say(&request, SCHEDULE_GPIPE);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(plan_costs_add_what_if(&request, "latency x 0;F x 2"), STATUS_OK);
    assert_int_equal(plan_costs_add_what_if(&request, "stage 0 x 1"), STATUS_OK);
    text = say(&request, SCHEDULE_GPIPE);
    expect_says(text, "# what if     latency x 0: 16 -> 14 a step, -12.5 %\n");
    expect_says(text, "# what if     F x 2: 14 -> 19 a step, +35.7 %\n");
    expect_says(text, "# what if     stage 0 x 1: 19 -> 19 a step, +0.0 %\n");
    free(text);
}

static void too_many_or_wrong_what_ifs_are_refused(void **state)
{
    struct plan_costs_request request = {.uniform = {1.0, 1.0, 1.0, 0.0}};
    int saved = fixture_mute();

    (void)state;
    for (int i = 0; i < PLAN_COSTS_MOST_WHAT_IFS; i++) {
        assert_int_equal(plan_costs_add_what_if(&request, "F x 1"), STATUS_OK);
    }
    assert_int_equal(plan_costs_add_what_if(&request, "F x 1"), STATUS_ERR_REFUSED);
    request.what_if_count = 0;
    assert_int_equal(plan_costs_add_what_if(&request, "F x 1;"), STATUS_ERR_REFUSED);
    assert_int_equal(plan_costs_add_what_if(&request, ""), STATUS_ERR_REFUSED);
    assert_int_equal(plan_costs_parse(&request, "/nowhere/costs.json"), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "/nowhere/costs.json"));
    fixture_unmute(saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_measured_without_its_first_steps),
        cmocka_unit_test(kept_costs_are_taken_before_the_trace),
        cmocka_unit_test(a_directory_without_a_run_is_refused),
        cmocka_unit_test(prediction_and_measurement_stand_side_by_side),
        cmocka_unit_test(what_ifs_are_told_one_after_the_other),
        cmocka_unit_test(too_many_or_wrong_what_ifs_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
