/* Which contenders really run, and what measures costs: by hand, without a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config_rig.h"
#include "stages/tune/calibration.h"
#include "stages/tune/field.h"

static const char yaml[] =
    "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
    "parallel: {pp: 2}\n"
    "train: {steps: 1, micro_batch_size: 1, num_microbatches: 8, threads: 1}\n"
    "optimizer: {lr: 1.0e-3}\n"
    "data: {train: text.txt}\n";

static void load(struct tune_base *base)
{
    struct config *config = NULL;

    assert_int_equal(config_rig_load(yaml, NULL, NULL, &config), STATUS_OK);
    config_destroy(&config);
    assert_int_equal(tune_base_load(config_rig_path(), NULL, 0, NULL, base), STATUS_OK);
}

static void make_field(const struct tune_base *base, const char *keys, struct tune_field *field)
{
    struct tune_interrupt interrupt = {.descriptor = -1};
    struct tune_candidates candidates;
    unsigned bits = 0;

    assert_int_equal(tune_keys_parse(keys, &bits), STATUS_OK);
    assert_int_equal(tune_candidates_make(base, bits, &candidates), STATUS_OK);
    assert_int_equal(tune_field_make(base, &candidates, &interrupt, field), STATUS_OK);
    tune_candidates_release(&candidates);
}

/* By hand: of four sizes with one step each two are chosen; a twin and one that ran slowly are passed over. */
static void the_best_few_run_but_none_that_a_run_would_not_tell_apart(void **state)
{
    struct tune_base base;
    struct tune_field field;

    (void)state;
    load(&base);
    make_field(&base, "micro_batch_size", &field);
    assert_int_equal(field.count, 4);
    for (size_t i = 0; i < 4; i++) {
        field.all[i].quality = TUNE_MEASURED;
        field.all[i].step_s = 4.0 - 0.1 * (double)i;
    }
    tune_field_choose(&field, 2);
    for (size_t i = 0; i < 4; i++) {
        assert_true(field.all[i].chosen == (i >= 2 || field.all[i].candidate.configured));
    }

    /* The best one has run, and is the third of what is known. */
    field.all[3].measured_steps = 1;
    field.all[3].measured_median_s = 3.85;
    tune_field_choose(&field, 2);
    for (size_t i = 0; i < 4; i++) {
        assert_true(field.all[i].chosen == (i >= 2 || field.all[i].candidate.configured));
    }
    field.all[3].measured_median_s = 3.95;
    tune_field_choose(&field, 2);
    for (size_t i = 0; i < 4; i++) {
        assert_true(field.all[i].chosen == (i == 1 || i == 2 || field.all[i].candidate.configured));
    }

    /* What only guesses predict does not run. */
    field.all[2].quality = TUNE_GUESSED;
    field.all[1].quality = TUNE_INTERPOLATED;
    tune_field_choose(&field, 1);
    assert_true(field.all[1].chosen);
    assert_false(field.all[2].chosen);
    tune_field_release(&field);
    tune_base_release(&base);
}

/* At one point: orders whose steps differ by half a percent are one run. */
static void of_orders_that_are_as_good_as_the_same_one_runs(void **state)
{
    struct tune_base base;
    struct tune_field field;
    size_t chosen = 0;

    (void)state;
    load(&base);
    make_field(&base, "schedule", &field);
    assert_true(field.count >= 4);
    for (size_t i = 0; i < field.count; i++) {
        field.all[i].quality = TUNE_MEASURED;
        field.all[i].step_s = i == 0 ? 1.0 : i < 3 ? 1.005 : 1.02;
        field.all[i].candidate.configured = i == 1;
    }
    tune_field_choose(&field, 2);
    for (size_t i = 0; i < field.count; i++) {
        chosen += field.all[i].chosen ? 1 : 0;
    }
    assert_int_equal(chosen, 3);
    assert_true(field.all[0].chosen);
    assert_true(field.all[1].chosen);
    assert_false(field.all[2].chosen);
    assert_true(field.all[3].chosen);
    tune_field_release(&field);
    tune_base_release(&base);
}

/* The point's job: three virtual stages or more, and layers in those between the ends. */
static void the_job_of_a_point_tells_ends_and_layers_apart(void **state)
{
    static const struct tune_point points[] = {
        {.pp = 1, .tp = 2, .dp = 1, .micro_batch_size = 2},
        {.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 4},
        {.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1, .recompute = RECOMPUTE_FULL},
    };
    struct tune_base base;

    (void)state;
    load(&base);
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        struct tune_candidates list;
        struct config *config = NULL;

        assert_int_equal(tune_calibration_candidate(&base, &points[i], 2, &list), STATUS_OK);
        assert_int_equal(tune_candidate_load(&base, &list.all[0], &config), STATUS_OK);
        assert_int_equal(config->parallel.pp * config->parallel.virtual_stages,
                         points[i].pp == 1 ? 3 : 4);
        assert_true(config->parallel.layers_per_stage[1] > 0);
        assert_int_equal(config->train.micro_batch_size, points[i].micro_batch_size);
        assert_int_equal(config->train.recompute[1], points[i].recompute);
        config_destroy(&config);
        tune_candidates_release(&list);
    }
    tune_base_release(&base);
}

/* 8 sequences a step, or 64 at a configured size of 8: 32 sequences measure, and 4 micro-batches at least. */
static void small_microbatches_are_measured_by_as_many_sequences(void **state)
{
    struct tune_base base;
    struct tune_point point = {.pp = 2, .tp = 1, .dp = 1, .micro_batch_size = 1};

    (void)state;
    load(&base);
    base.config->train.micro_batch_size = 8;
    base.config->train.global_batch_size = 64;
    assert_int_equal(tune_calibration_microbatches(&base, &point), 32);
    point.micro_batch_size = 2;
    assert_int_equal(tune_calibration_microbatches(&base, &point), 16);
    point.micro_batch_size = 8;
    assert_int_equal(tune_calibration_microbatches(&base, &point), 4);
    point.micro_batch_size = 16;
    assert_int_equal(tune_calibration_microbatches(&base, &point), 4);
    point.micro_batch_size = 32;
    assert_int_equal(tune_calibration_microbatches(&base, &point), 2);
    point = (struct tune_point){.pp = 4, .tp = 1, .dp = 1, .micro_batch_size = 8};
    assert_int_equal(tune_calibration_microbatches(&base, &point), 8);
    point = (struct tune_point){.pp = 1, .tp = 1, .dp = 4, .micro_batch_size = 1};
    assert_int_equal(tune_calibration_microbatches(&base, &point), 16);
    tune_base_release(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_few_run_but_none_that_a_run_would_not_tell_apart),
        cmocka_unit_test(of_orders_that_are_as_good_as_the_same_one_runs),
        cmocka_unit_test(the_job_of_a_point_tells_ends_and_layers_apart),
        cmocka_unit_test(small_microbatches_are_measured_by_as_many_sequences),
    };

    return cmocka_run_group_tests_name("tune_choice", tests, config_rig_open, config_rig_close);
}
