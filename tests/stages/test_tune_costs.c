/* From a run directory to what a layer costs: traces and costs made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/tune/cost_table.h"
#include "stages/tune/measure.h"
#include "tests/scheduler/demo_run.h"
#include "tests/scheduler/scratch.h"

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 + 1e-6 * fabs(expected))) {
        fail_msg("found %.17g, expected %.17g", found, expected);
    }
}

/* Steps of 100, 100, 20, 10, 12, 11, 40 ms: the first two do not count. */
static const char metrics[] = "{\"model\": {\"num_layers\": 4}}\n"
                              "{\"step\":1,\"step_ms\":100.0}\n"
                              "{\"step\":2,\"step_ms\":100.0}\n"
                              "{\"step\":3,\"step_ms\":20.0}\n"
                              "{\"step\":4,\"step_ms\":10}\n"
                              "{\"step\":5,\"step_ms\":12.0}\n"
                              "{\"step\":6,\"step_ms\":11.0}\n"
                              "{\"step\":7,\"step_ms\":40.0}\n";

static void put_config(const struct scratch *scratch)
{
    static const char text[] =
        "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
        "parallel: {pp: 2, virtual_stages: 2, schedule: interleaved_1f1b}\n"
        "train: {steps: 4, micro_batch_size: 1, num_microbatches: 4, threads: 1}\n"
        "optimizer: {lr: 1.0e-3}\n"
        "data: {train: text.txt}\n";
    char path[SCRATCH_PATH_BYTES];

    scratch_path(scratch, "config.yaml", path);
    scratch_write(path, text, strlen(text));
}

static void put_metrics(const struct scratch *scratch, const char *text)
{
    char path[SCRATCH_PATH_BYTES];

    scratch_path(scratch, "metrics.jsonl", path);
    scratch_write(path, text, strlen(text));
}

static void steps_count_after_the_first_two_and_their_median_is_taken(void **state)
{
    struct scratch scratch;
    struct tune_measure measure;

    (void)state;
    scratch_make(&scratch);
    put_metrics(&scratch, metrics);
    assert_int_equal(tune_measure_read(scratch.path, false, &measure), STATUS_OK);
    assert_int_equal(measure.steps, 5);
    assert_near(measure.median_s, 0.012);
    /* Of 10, 11, 12, 20, 40 the 0.9th lies 0.6 of the way from 20 to 40. */
    assert_near(measure.spread, (0.032 - 0.012) / 0.012);
    assert_int_equal(measure.stages, 0);
    tune_measure_release(&measure);
    scratch_remove(&scratch);
}

static void a_run_without_such_steps_is_refused(void **state)
{
    struct scratch scratch;
    struct tune_measure measure;

    (void)state;
    scratch_make(&scratch);
    put_metrics(&scratch, "{\"model\": {}}\n{\"step\":1,\"step_ms\":100.0}\nnot JSON\n");
    assert_int_equal(tune_measure_read(scratch.path, false, &measure), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "no step after the first 2"));
    tune_measure_release(&measure);
    scratch_remove(&scratch);
}

/* A worker's B is an I and a W behind it, here 3 and 1 of 4 parts. */
static void divide_backwards(struct trace_run *run)
{
    for (size_t r = 0; r < run->count; r++) {
        struct trace_rank *rank = &run->ranks[r];
        size_t count = rank->count;

        for (size_t i = 0; i < count; i++) {
            struct span weight = rank->spans[i];

            if (weight.kind == TRACE_B) {
                weight.kind = TRACE_W;
                weight.begin_ns = weight.end_ns - (weight.end_ns - weight.begin_ns) / 4;
                rank->spans[i].kind = TRACE_I;
                rank->spans[i].end_ns = weight.begin_ns;
                assert_int_equal(trace_rank_append(rank, &weight), STATUS_OK);
            }
        }
    }
    trace_run_arrange(run);
}

/* A simulated run of two ranks with two chunks each: virtual stage s costs 1 + s times F 2 ms, I 3 ms and
 * W 1 ms; update 4 ms, its round trip 4 ms before. */
static void a_trace_tells_each_virtual_stage_and_what_is_outside(void **state)
{
    const struct demo_config demo = {.shape = {.schedule = SCHEDULE_INTERLEAVED_1F1B,
                                               .ranks = 2,
                                               .microbatches = 4,
                                               .virtual_stages = 2,
                                               .lane_depth = 2,
                                               .early_send = true},
                                     .first_step = 1,
                                     .steps = 4,
                                     .forward_ms = 2.0,
                                     .input_ms = 3.0,
                                     .weight_ms = 1.0,
                                     .slope = 1.0,
                                     .update_ms = 4.0};
    struct scratch scratch;
    struct trace_run run;
    struct tune_measure measure;
    double span_s = 0.0;

    (void)state;
    scratch_make(&scratch);
    scratch_folder(&scratch, "trace");
    demo_run_make(&demo, "demo", &run);
    divide_backwards(&run);
    for (size_t r = 0; r < run.count; r++) {
        /* Every step is as long as the first, which begins at 0 with the first F. */
        for (size_t i = 0; i < run.ranks[r].count; i++) {
            const struct span *span = &run.ranks[r].spans[i];
            double end = 0.0;

            if (span->args[TRACE_ARG_STEP] == 1 && span->kind <= TRACE_B) {
                end = (double)span->end_ns * 1e-9;
                span_s = end > span_s ? end : span_s;
            }
        }
    }
    demo_run_write(&run, scratch.path);
    trace_run_release(&run);
    put_config(&scratch);
    put_metrics(&scratch, "{}\n{\"step\":1,\"step_ms\":1}\n{\"step\":2,\"step_ms\":1}\n"
                          "{\"step\":3,\"step_ms\":200}\n{\"step\":4,\"step_ms\":200}\n");
    assert_int_equal(tune_measure_read(scratch.path, true, &measure), STATUS_OK);
    assert_int_equal(measure.stages, 4);
    for (int32_t s = 0; s < 4; s++) {
        assert_near(measure.typical[0][s], 0.002 * (1.0 + s));
        assert_near(measure.typical[1][s], 0.003 * (1.0 + s));
        assert_near(measure.typical[2][s], 0.001 * (1.0 + s));
        assert_near(measure.p90[2][s], 0.001 * (1.0 + s));
    }
    assert_near(measure.optimizer_s, 0.004);
    assert_near(measure.outside_s, 0.2 - span_s - 0.004);
    tune_measure_release(&measure);
    scratch_remove(&scratch);
}

/* Chunks of known costs: layer 5, 7, 3; embedding 2, 0, 4; head 30, 0, 0. */
static const double layer[TUNE_COSTS] = {5.0, 7.0, 3.0};
static const double first[TUNE_COSTS] = {2.0, 0.0, 4.0};
static const double last[TUNE_COSTS] = {30.0, 0.0, 0.0};

static void solve(const int64_t *layers, int32_t stages, struct tune_layer_costs *costs)
{
    double chunks[TUNE_COSTS][8];
    struct tune_measure measure = {
        .stages = stages, .optimizer_s = 0.5, .outside_s = 0.25, .send_s = 0.125};

    for (int c = 0; c < TUNE_COSTS; c++) {
        for (int32_t s = 0; s < stages; s++) {
            chunks[c][s] = (double)layers[s] * layer[c] + (s == 0 ? first[c] : 0.0) +
                           (s == stages - 1 ? last[c] : 0.0);
        }
        measure.typical[c] = chunks[c];
        measure.p90[c] = chunks[c];
    }
    assert_int_equal(tune_layer_costs_solve(&measure, layers, costs), STATUS_OK);
}

static void layer_embedding_and_head_follow_from_chunks_of_known_costs(void **state)
{
    static const int64_t splits[][4] = {{1, 1, 1, 1}, {3, 1, 2, 1}, {0, 2, 1, 0}, {0, 1, 0, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
        for (int32_t stages = 3; stages <= 4; stages++) {
            struct tune_layer_costs costs;

            solve(splits[i], stages, &costs);
            for (int c = 0; c < TUNE_COSTS; c++) {
                assert_near(costs.layer[c], layer[c]);
                assert_near(costs.first[c], first[c]);
                assert_near(costs.last[c], last[c]);
            }
            assert_near(costs.optimizer_s, 0.5);
            assert_near(costs.outside_s, 0.25);
            assert_near(costs.send_s, 0.125);
            assert_near(costs.spread, 0.0);
        }
    }
}

/* Middle chunks of 1 and 3 layers that took 8 and 12: the least squares are (8 + 3·12) / (1 + 9). */
static void chunks_that_disagree_are_fitted_by_least_squares(void **state)
{
    double chunks[] = {9.0, 8.0, 12.0, 4.0};
    const int64_t layers[] = {1, 1, 3, 1};
    const struct tune_measure measure = {
        .stages = 4, .typical = {chunks, chunks, chunks}, .p90 = {chunks, chunks, chunks}};
    struct tune_layer_costs costs;

    (void)state;
    assert_int_equal(tune_layer_costs_solve(&measure, layers, &costs), STATUS_OK);
    assert_near(costs.layer[0], 4.4);
    assert_near(costs.first[0], 4.6);
    assert_near(costs.last[0], 0.0); /* 4 - 4.4: nothing costs less than nothing */
}

static void two_virtual_stages_cannot_be_told_apart(void **state)
{
    double chunks[] = {1.0, 2.0, 3.0};
    const int64_t layers[] = {1, 0, 1};
    struct tune_measure measure = {
        .stages = 2, .typical = {chunks, chunks, chunks}, .p90 = {chunks, chunks, chunks}};
    struct tune_layer_costs costs;

    (void)state;
    assert_int_equal(tune_layer_costs_solve(&measure, layers, &costs), STATUS_ERR_REFUSED);
    measure.stages = 3;
    assert_int_equal(tune_layer_costs_solve(&measure, layers, &costs), STATUS_ERR_REFUSED);
}

static struct tune_layer_costs costs_of(double f)
{
    return (struct tune_layer_costs){.layer = {f, 2.0 * f, f},
                                     .first = {1.0, 0.0, 1.0},
                                     .last = {f, 0.0, 0.0},
                                     .send_s = 0.5,
                                     .optimizer_s = 3.0,
                                     .parameters = 10.0,
                                     .outside_s = 4.0};
}

/* Measured at 2 and 8 sequences: F = 10 + 3·b. */
static void costs_between_measured_sizes_are_on_the_line_and_beyond_them_a_guess(void **state)
{
    struct tune_point point = {.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 2};
    struct tune_layer_costs costs = costs_of(16.0);
    struct tune_cost_table table = {.entries = NULL};

    (void)state;
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_UNKNOWN);
    assert_int_equal(tune_cost_table_put(&table, &point, &costs), STATUS_OK);
    /* One size alone: as much a sequence. */
    point.micro_batch_size = 4;
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_GUESSED);
    assert_near(costs.layer[0], 32.0);
    point.micro_batch_size = 8;
    costs = costs_of(34.0);
    assert_int_equal(tune_cost_table_put(&table, &point, &costs), STATUS_OK);
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_MEASURED);
    assert_near(costs.layer[0], 34.0);
    point.micro_batch_size = 4;
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_INTERPOLATED);
    assert_near(costs.layer[0], 22.0);
    assert_near(costs.layer[1], 44.0);
    assert_near(costs.last[0], 22.0);
    assert_near(costs.outside_s, 4.0);
    point.micro_batch_size = 16;
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_GUESSED);
    assert_near(costs.layer[0], 58.0);
    point.micro_batch_size = 1;
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_GUESSED);
    assert_near(costs.layer[0], 13.0);
    tune_cost_table_release(&table);
}

static void other_grids_and_other_recompute_are_guessed_from_the_nearest(void **state)
{
    struct tune_point point = {.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 2};
    struct tune_layer_costs costs = costs_of(16.0);
    struct tune_cost_table table = {.entries = NULL};

    (void)state;
    assert_int_equal(tune_cost_table_put(&table, &point, &costs), STATUS_OK);
    point.recompute = RECOMPUTE_FULL;
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_GUESSED);
    assert_near(costs.layer[0], 16.0);
    assert_near(costs.layer[1], 48.0); /* I, and F once more */
    point = (struct tune_point){.pp = 1, .tp = 2, .dp = 1, .micro_batch_size = 2};
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_GUESSED);
    assert_near(costs.layer[0], 8.0);
    assert_near(costs.send_s, 0.5);
    costs = costs_of(11.0);
    assert_int_equal(tune_cost_table_put(&table, &point, &costs), STATUS_OK);
    point.micro_batch_size = 4;
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_GUESSED);
    assert_near(costs.layer[0], 22.0);
    /* A point that is measured again is what it was last. */
    point.micro_batch_size = 2;
    costs = costs_of(12.0);
    assert_int_equal(tune_cost_table_put(&table, &point, &costs), STATUS_OK);
    assert_int_equal(table.count, 2);
    assert_int_equal(tune_cost_table_find(&table, &point, &costs), TUNE_MEASURED);
    assert_near(costs.layer[0], 12.0);
    tune_cost_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_count_after_the_first_two_and_their_median_is_taken),
        cmocka_unit_test(a_run_without_such_steps_is_refused),
        cmocka_unit_test(a_trace_tells_each_virtual_stage_and_what_is_outside),
        cmocka_unit_test(layer_embedding_and_head_follow_from_chunks_of_known_costs),
        cmocka_unit_test(chunks_that_disagree_are_fitted_by_least_squares),
        cmocka_unit_test(two_virtual_stages_cannot_be_told_apart),
        cmocka_unit_test(costs_between_measured_sizes_are_on_the_line_and_beyond_them_a_guess),
        cmocka_unit_test(other_grids_and_other_recompute_are_guessed_from_the_nearest),
    };

    return cmocka_run_group_tests_name("tune_costs", tests, NULL, NULL);
}
