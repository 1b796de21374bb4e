/* Contenders from given costs, without a job: what fits, what it is predicted to take, how it is ranked, and
 * the file that the winner becomes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_rig.h"
#include "scheduler/prove.h"
#include "stages/tune/field.h"
#include "stages/tune/order.h"
#include "stages/tune/ranking.h"
#include "stages/tune/split.h"
#include "stages/tune/winner.h"
#include "tests/scheduler/scratch.h"

static const char yaml[] =
    "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "parallel: {pp: 2}\n"
    "train: {steps: 1, micro_batch_size: 1, num_microbatches: 8, threads: 1}\n"
    "optimizer: {lr: 1.0e-3}\n"
    "data: {train: text.txt}\n";

/* Of a layer F 1, I 2, W 0.5 s; the optimizer 3 s for 1000 parameters, 4 s outside. */
static const struct tune_layer_costs plain = {
    .layer = {1.0, 2.0, 0.5}, .optimizer_s = 3.0, .parameters = 1000.0, .outside_s = 4.0};

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 + 1e-9 * fabs(expected))) {
        fail_msg("found %.17g, expected %.17g", found, expected);
    }
}

static void load(const char *limit, struct tune_base *base)
{
    struct config *config = NULL;

    assert_int_equal(config_rig_load(yaml, NULL, NULL, &config), STATUS_OK);
    config_destroy(&config);
    assert_int_equal(tune_base_load(config_rig_path(), NULL, 0, limit, base), STATUS_OK);
}

static enum status make_field(const struct tune_base *base, const char *keys,
                              struct tune_field *field)
{
    struct tune_interrupt interrupt = {.descriptor = -1};
    struct tune_candidates candidates;
    unsigned bits = 0;
    enum status status = STATUS_OK;

    assert_int_equal(tune_keys_parse(keys, &bits), STATUS_OK);
    assert_int_equal(tune_candidates_make(base, bits, &candidates), STATUS_OK);
    status = tune_field_make(base, &candidates, &interrupt, field);
    tune_candidates_release(&candidates);
    return status;
}

static void put(struct tune_cost_table *table, struct tune_point point,
                const struct tune_layer_costs *costs)
{
    assert_int_equal(tune_cost_table_put(table, &point, costs), STATUS_OK);
}

/* 1F1B with early send: m(F + I + W) + (p - 1)(F + I) of a rank's two layers. */
static void a_prediction_is_the_simulated_plan_and_what_a_step_has_beside_it(void **state)
{
    struct tune_base base;
    struct tune_field field;
    struct tune_cost_table table = {.entries = NULL};
    struct tune_layer_costs between = plain;
    const struct tune_contender *own = NULL;

    (void)state;
    load(NULL, &base);
    assert_int_equal(make_field(&base, "recompute", &field), STATUS_OK);
    assert_int_equal(field.count, 1);
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1}, &plain);
    assert_int_equal(tune_field_predict(&field, &table), STATUS_OK);
    own = &field.all[0];
    assert_int_equal(own->quality, TUNE_MEASURED);
    assert_near(own->span_s, 8.0 * 7.0 + 6.0);
    assert_near(own->step_s, 62.0 + 3.0 * (double)own->parameters / 1000.0 + 4.0);
    assert_near(own->bubble, 6.0 / 62.0);
    /* The last rank waits for one F, and has 56 s of work. */
    assert_near(own->bound_s, 58.0);
    /* Embedding, positions, and two layers of 12·64² + 13·64. */
    assert_int_equal(own->parameters, 256 * 64 + 32 * 64 + 2 * (12 * 64 * 64 + 13 * 64));
    /* Half a second before each action: F of rank 0 takes 2.5, then rank 1 has 8 times 2.5 + 4.5 + 1.5 up to
     * its last W, and the last B of rank 0, one action, 0.5 + 5. */
    between.action_s = 0.5;
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1}, &between);
    assert_int_equal(tune_field_predict(&field, &table), STATUS_OK);
    assert_near(own->span_s, 2.5 + 8.0 * 8.5 - 1.5 + 5.5);
    assert_near(own->bound_s, 58.0);
    assert_near(own->bare_s, 62.0);
    /* Rank 0 has two actions a micro-batch, rank 1 three. */
    assert_near(own->bubble, 1.0 - (2.0 * 56.0 + 0.5 * 8.0 * 5.0) / (2.0 * 74.5));
    tune_cost_table_release(&table);
    tune_field_release(&field);
    tune_base_release(&base);
}

static void
what_does_not_fit_is_dropped_without_a_job_and_recompute_is_the_least_that_does(void **state)
{
    struct tune_base base;
    struct tune_field field;
    char limit[32];
    size_t need = 0;

    (void)state;
    load(NULL, &base);
    assert_int_equal(make_field(&base, "micro_batch_size", &field), STATUS_OK);
    assert_int_equal(field.count, 4);
    assert_false(field.limit_given);
    for (size_t i = 1; i < 4; i++) {
        assert_true(field.all[i].need_bytes > field.all[i - 1].need_bytes);
    }
    need = field.all[2].need_bytes;
    tune_field_release(&field);
    tune_base_release(&base);

    /* A byte less than four sequences take. */
    (void)snprintf(limit, sizeof(limit), "%zu", need - 1);
    load(limit, &base);
    assert_int_equal(make_field(&base, "micro_batch_size", &field), STATUS_OK);
    assert_int_equal(field.count, 2);
    assert_int_equal(field.too_large, 2);
    assert_true(field.limit_given);
    tune_field_release(&field);

    /* With recompute they do after all: of two micro-batches in flight one is all that is computed again. */
    assert_int_equal(make_field(&base, "micro_batch_size,recompute", &field), STATUS_OK);
    assert_int_equal(field.count, 3);
    for (size_t i = 0; i < field.count; i++) {
        assert_true(field.all[i].need_bytes < need);
        assert_true((field.all[i].config->train.recompute[0] == RECOMPUTE_NONE) ==
                    (field.all[i].candidate.micro_batch_size < 4));
    }
    tune_field_release(&field);
    tune_base_release(&base);
}

static void where_nothing_fits_the_smallest_need_and_the_limit_are_named(void **state)
{
    struct tune_base base;
    struct tune_field field;
    char smallest[64];

    (void)state;
    load(NULL, &base);
    assert_int_equal(make_field(&base, "micro_batch_size", &field), STATUS_OK);
    (void)snprintf(smallest, sizeof(smallest), "needs %.1f KiB (pp 2, tp 1, dp 1, 1f1b, 8 x 1)",
                   (double)field.all[0].need_bytes / 1024.0);
    tune_field_release(&field);
    tune_base_release(&base);
    load("100K", &base);
    assert_int_equal(make_field(&base, "micro_batch_size", &field), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "none of 4 candidates fits"));
    assert_non_null(strstr(status_last()->message, "100.0 KiB (train.memory_limit)"));
    assert_non_null(strstr(status_last()->message, smallest));
    tune_field_release(&field);
    tune_base_release(&base);
}

/* A head as long as three layers, on two ranks with four layers: 3 + 1 is 10.5 beside 14. */
static void layers_are_divided_by_what_they_and_the_ends_cost(void **state)
{
    struct tune_layer_costs costs = plain;
    struct tune_base base;
    struct tune_field field;
    struct tune_cost_table table = {.entries = NULL};
    int32_t counts[CONFIG_STAGES_MOST];
    bool better = false;

    (void)state;
    load(NULL, &base);
    assert_int_equal(make_field(&base, "recompute", &field), STATUS_OK);
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1}, &costs);
    assert_int_equal(tune_field_predict(&field, &table), STATUS_OK);
    assert_int_equal(tune_split_find(&field.all[0], &table, counts, &better), STATUS_OK);
    assert_false(better);
    costs.last[0] = 7.0;
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1}, &costs);
    assert_int_equal(tune_field_predict(&field, &table), STATUS_OK);
    assert_int_equal(tune_split_find(&field.all[0], &table, counts, &better), STATUS_OK);
    assert_true(better);
    assert_int_equal(counts[0], 3);
    assert_int_equal(counts[1], 1);
    tune_cost_table_release(&table);
    tune_field_release(&field);
    tune_base_release(&base);
}

static void measure(struct tune_contender *contender, double step_s)
{
    double steps[] = {step_s, step_s * 3.0, step_s};
    const struct tune_measure measured = {.step_s = steps, .steps = 3};

    assert_int_equal(tune_contender_measured(contender, &measured), STATUS_OK);
}

/* The field of four sizes with costs at 1 and 4 only; size 8 is beyond them. */
static void rank(struct tune_base *base, struct tune_field *field)
{
    struct tune_layer_costs larger = plain;
    struct tune_cost_table table = {.entries = NULL};

    for (int c = 0; c < TUNE_COSTS; c++) {
        larger.layer[c] *= 2.0; /* four sequences for two */
    }
    load(NULL, base);
    assert_int_equal(make_field(base, "micro_batch_size", field), STATUS_OK);
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1}, &plain);
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 4}, &larger);
    assert_int_equal(tune_field_predict(field, &table), STATUS_OK);
    tune_field_sort(field);
    tune_cost_table_release(&table);
}

static void guesses_are_not_ranked_and_what_ran_comes_first(void **state)
{
    struct tune_base base;
    struct tune_field field;

    (void)state;
    rank(&base, &field);
    /* Spans: 62 at 1; 4/3 · (4·7 + 6) at 2; 2 · (2·7 + 6) at 4. */
    assert_int_equal(field.ranked, 3);
    assert_int_equal(field.all[0].candidate.micro_batch_size, 4);
    assert_near(field.all[0].span_s, 40.0);
    assert_int_equal(field.all[1].candidate.micro_batch_size, 2);
    assert_near(field.all[1].span_s, 4.0 / 3.0 * 34.0);
    assert_int_equal(field.all[1].quality, TUNE_INTERPOLATED);
    assert_int_equal(field.all[2].candidate.micro_batch_size, 1);
    assert_true(field.all[2].candidate.configured);
    assert_int_equal(field.all[3].candidate.micro_batch_size, 8);
    assert_int_equal(field.all[3].quality, TUNE_GUESSED);
    assert_int_equal(tune_field_configured(&field), 2);
    measure(&field.all[1], 90.0);
    measure(&field.all[2], 100.0);
    tune_field_sort(&field);
    assert_int_equal(field.all[0].candidate.micro_batch_size, 2);
    assert_near(field.all[0].measured_median_s, 90.0);
    assert_int_equal(field.all[1].candidate.micro_batch_size, 1);
    assert_int_equal(field.all[2].candidate.micro_batch_size, 4);
    tune_field_release(&field);
    tune_base_release(&base);
}

static void the_table_has_measured_beside_predicted(void **state)
{
    struct tune_base base;
    struct tune_result result = {.jobs = 7, .seconds = 12.0};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    char gain[TUNE_RANKING_GAIN_BYTES];

    (void)state;
    rank(&base, &result.field);
    measure(&result.field.all[1], 0.090);
    measure(&result.field.all[2], 0.100);
    tune_field_sort(&result.field);
    assert_int_equal(tune_ranking_print(&result, out), STATUS_OK);
    (void)fclose(out);
    assert_non_null(strstr(text, "   1      90.0"));
    assert_non_null(strstr(text, "   2     100.0"));
    assert_non_null(strstr(text, "8 x 1  (as configured)\n"));
    assert_non_null(strstr(text, "4 candidates"));
    assert_non_null(strstr(text, "1 without costs that were measured; 7 jobs, 12 s"));
    assert_null(strstr(text, "1 x 8")); /* a guess */
    tune_ranking_gain(&result.field, &result.field.all[0], gain);
    assert_string_equal(gain, "10.0 % less than as configured, 100.0 ms");
    free(text);
    tune_result_release(&result);
    tune_base_release(&base);
}

static void the_file_of_the_winner_is_its_configuration_in_another_run_directory(void **state)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    struct tune_base base;
    struct tune_result result = {.jobs = 7};
    struct config *config = NULL;
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "winner.yaml", path);
    rank(&base, &result.field);
    measure(&result.field.all[1], 0.090);
    tune_field_sort(&result.field);
    assert_int_equal(tune_winner_write(&base, &result, path), STATUS_OK);
    assert_int_equal(config_load(path, NULL, 0, &config), STATUS_OK);
    assert_string_equal(base.config->train.run_dir, "runs/rig");
    assert_string_equal(config->train.run_dir, "runs/rig-tuned");
    assert_string_equal(config->checkpoint.dir, "runs/rig-tuned/checkpoints");
    assert_int_equal(config->train.micro_batch_size, 2);
    assert_int_equal(config->train.num_microbatches, 4);
    /* But for where it runs, it is the candidate's configuration. */
    (void)snprintf(config->train.run_dir, sizeof(config->train.run_dir), "%s",
                   base.config->train.run_dir);
    (void)snprintf(config->checkpoint.dir, sizeof(config->checkpoint.dir), "%s",
                   base.config->checkpoint.dir);
    assert_true(config_hash(config) == config_hash(result.field.all[0].config));
    text = scratch_read(path, &bytes);
    assert_non_null(strstr(text, "#   train.micro_batch_size: 1 -> 2\n"));
    assert_non_null(strstr(text, "#   train.num_microbatches: 8 -> 4\n"));
    assert_non_null(strstr(text, "# 90.0 ms a step measured over 3 steps"));
    assert_null(strstr(text, "#   optimizer."));
    free(text);
    config_destroy(&config);
    tune_result_release(&result);
    tune_base_release(&base);
    scratch_remove(&scratch);
}

/* The configuration's plan is that one, line by line. */
static void assert_same_plan(const struct config *config, const struct plan *plan)
{
    struct plan_shape shape;
    struct plan *again = NULL;

    config_plan_shape(config, &shape);
    assert_int_equal(plan_prove(&shape, config->parallel.schedule_file, &again), STATUS_OK);
    for (int32_t rank = 0; rank < shape.ranks; rank++) {
        assert_true(plan_line_hash(again, rank) == plan_line_hash(plan, rank));
    }
    plan_destroy(&again);
}

/* Two ranks whose halves differ much: a first stage without layers beside a last one with all. */
static const struct tune_layer_costs uneven = {
    .layer = {1.0, 1.0, 3.0}, .first = {0.5, 0.0, 6.0}, .last = {4.0, 0.0, 0.0}};

static void an_order_that_has_no_name_is_found_fits_and_becomes_a_file(void **state)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    char yaml_path[SCRATCH_PATH_BYTES];
    struct tune_base base;
    struct tune_result result = {.jobs = 0};
    struct tune_cost_table table = {.entries = NULL};
    struct tune_contender found;
    struct tune_contender *own = NULL;
    struct config *config = NULL;
    bool better = false;

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "plan", path);
    scratch_path(&scratch, "winner.yaml", yaml_path);
    load(NULL, &base);
    assert_int_equal(make_field(&base, "recompute", &result.field), STATUS_OK);
    own = &result.field.all[0];
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1}, &uneven);
    assert_int_equal(tune_field_predict(&result.field, &table), STATUS_OK);
    const struct tune_order_search search = {
        .base = &base, .table = &table, .path = path, .limit_bytes = 0, .seed = 1};
    assert_int_equal(tune_order_find(&search, own, &found, &better), STATUS_OK);
    assert_true(better);
    assert_int_equal(found.candidate.schedule, SCHEDULE_FILE);
    assert_int_equal(found.quality, TUNE_MEASURED);
    assert_true(found.span_s < own->span_s);
    assert_true(found.bare_s >= found.bound_s);
    assert_int_equal(tune_field_add(&result.field, &found), STATUS_OK);

    /* Its file trains without the folder of jobs: the plan lies beside it. */
    tune_field_sort(&result.field);
    assert_non_null(result.field.all[0].candidate.plan_path);
    assert_int_equal(tune_winner_write(&base, &result, yaml_path), STATUS_OK);
    assert_int_equal(tune_contender_take_plan(&result.field.all[0]), STATUS_OK);
    assert_int_equal(unlink(result.field.all[0].candidate.plan_path), 0);
    assert_int_equal(config_load(yaml_path, NULL, 0, &config), STATUS_OK);
    assert_int_equal(config->parallel.schedule, SCHEDULE_FILE);
    assert_non_null(strstr(config->parallel.schedule_file, "winner.yaml.plan.csv"));
    assert_same_plan(config, result.field.all[0].plan);
    config_destroy(&config);
    tune_cost_table_release(&table);
    tune_result_release(&result);
    tune_base_release(&base);
    scratch_remove(&scratch);
}

/* A byte less than what the best order of all holds: there is another, within the limit. */
static void an_order_keeps_the_memory_limit(void **state)
{
    struct scratch scratch;
    char path[SCRATCH_PATH_BYTES];
    struct tune_base base;
    struct tune_field field;
    struct tune_cost_table table = {.entries = NULL};
    struct tune_contender found = {.need_bytes = 0};
    bool better = false;

    (void)state;
    scratch_make(&scratch);
    scratch_path(&scratch, "plan", path);
    load(NULL, &base);
    assert_int_equal(make_field(&base, "recompute", &field), STATUS_OK);
    put(&table, (struct tune_point){.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1}, &uneven);
    assert_int_equal(tune_field_predict(&field, &table), STATUS_OK);
    struct tune_order_search search = {
        .base = &base, .table = &table, .path = path, .limit_bytes = 0, .seed = 1};
    assert_int_equal(tune_order_find(&search, &field.all[0], &found, &better), STATUS_OK);
    assert_true(better);
    search.limit_bytes = (int64_t)found.need_bytes - 1;
    tune_contender_release(&found);
    assert_int_equal(tune_order_find(&search, &field.all[0], &found, &better), STATUS_OK);
    assert_true(better);
    assert_true(found.need_bytes <= (size_t)search.limit_bytes);
    assert_true(found.span_s < field.all[0].span_s);
    tune_contender_release(&found);
    tune_cost_table_release(&table);
    tune_field_release(&field);
    tune_base_release(&base);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prediction_is_the_simulated_plan_and_what_a_step_has_beside_it),
        cmocka_unit_test(
            what_does_not_fit_is_dropped_without_a_job_and_recompute_is_the_least_that_does),
        cmocka_unit_test(where_nothing_fits_the_smallest_need_and_the_limit_are_named),
        cmocka_unit_test(layers_are_divided_by_what_they_and_the_ends_cost),
        cmocka_unit_test(guesses_are_not_ranked_and_what_ran_comes_first),
        cmocka_unit_test(the_table_has_measured_beside_predicted),
        cmocka_unit_test(an_order_that_has_no_name_is_found_fits_and_becomes_a_file),
        cmocka_unit_test(an_order_keeps_the_memory_limit),
        cmocka_unit_test(the_file_of_the_winner_is_its_configuration_in_another_run_directory),
    };

    return cmocka_run_group_tests_name("tune_field", tests, config_rig_open, config_rig_close);
}
