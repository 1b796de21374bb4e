/*
 * The oracle: trajectories of an independent float64 implementation (tests/reference/README.md).
 * Loss, norm and learning rate of every step, and the gradients of the first one, within the
 * tolerances that its README states, for every pipeline depth, micro-batch size and schedule.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/checkpoint/safetensors.h"
#include "tests/stages/engine_rig.h"

#define LOSS_TOLERANCE       2e-6
#define FIRST_NORM_TOLERANCE 1e-6
#define NORM_TOLERANCE       2e-4
#define GRADIENT_TOLERANCE   2e-6

struct oracle {
    const char *file;
    const char *yaml;
};

static const struct oracle plain = {
    .file = TEST_REFERENCE_DIR "/gpt2_a.safetensors",
    .yaml =
        "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
        "train: {steps: 10, micro_batch_size: 8, global_batch_size: 8, run_dir: unused}\n"
        "optimizer: {lr: 0.006, min_lr: 0.0006, warmup_steps: 3, decay_steps: 10,\n"
        "            weight_decay: 0.1, beta1: 0.9, beta2: 0.95, eps: 1.0e-8, grad_clip: 1.0}\n"
        "data: {train: " TEST_REFERENCE_DIR "/gpt2_a.safetensors, shuffle: false}\n"
        "checkpoint: {import: " TEST_REFERENCE_DIR "/gpt2_a.safetensors, import_prefix: init.}\n"};

static const struct oracle masked = {
    .file = TEST_REFERENCE_DIR "/gpt2_b_masked.safetensors",
    .yaml =
        "model: {num_layers: 3, hidden_size: 48, num_heads: 6, seq_len: 20, vocab_size: 131}\n"
        "train: {steps: 12, micro_batch_size: 8, global_batch_size: 8, run_dir: unused}\n"
        "optimizer: {lr: 0.006, min_lr: 0.0006, warmup_steps: 3, decay_steps: 12,\n"
        "            weight_decay: 0.1, beta1: 0.9, beta2: 0.95, eps: 1.0e-8, grad_clip: 0.25}\n"
        "data: {train: " TEST_REFERENCE_DIR "/gpt2_b_masked.safetensors, shuffle: false}\n"
        "checkpoint: {import: " TEST_REFERENCE_DIR
        "/gpt2_b_masked.safetensors, import_prefix: init.}\n"};

static double relative(double got, double expected)
{
    return fabs(got - expected) / fabs(expected);
}

static void read_expected(const struct safetensors *file, const char *name, int64_t steps,
                          double *out)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);

    assert_non_null(entry);
    assert_int_equal(entry->bytes, (size_t)steps * sizeof(double));
    memcpy(out, entry->data, entry->bytes);
}

static void check_steps(const struct safetensors *file, const struct rig_result *run)
{
    double loss[RIG_STEPS_MOST];
    double norm[RIG_STEPS_MOST];
    double lr[RIG_STEPS_MOST];

    read_expected(file, "expected.loss", run->steps, loss);
    read_expected(file, "expected.grad_norm", run->steps, norm);
    read_expected(file, "expected.lr", run->steps, lr);
    for (int64_t step = 0; step < run->steps; step++) {
        double allowed = step == 0 ? FIRST_NORM_TOLERANCE : NORM_TOLERANCE;

        if (!(relative(run->loss[step], loss[step]) <= LOSS_TOLERANCE)) {
            fail_msg("loss of step %d: got %.12g, the oracle has %.12g", (int)step + 1,
                     run->loss[step], loss[step]);
        }
        if (!(relative(run->norm[step], norm[step]) <= allowed)) {
            fail_msg("norm of step %d: got %.12g, the oracle has %.12g", (int)step + 1,
                     run->norm[step], norm[step]);
        }
        if (!(relative(run->lr[step], lr[step]) <= 1e-12)) {
            fail_msg("lr of step %d: got %.17g, the oracle has %.17g", (int)step + 1, run->lr[step],
                     lr[step]);
        }
    }
}

static void check_gradients(const struct safetensors *file, const struct rig_result *run)
{
    int compared = 0;

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        const struct rig_tensor *got = NULL;
        double difference = 0.0;
        double size = 0.0;

        if (strncmp(entry->name, "grad_step1.", 11) != 0) {
            continue;
        }
        got = rig_find(run->gradients, RIG_TENSORS_MOST, entry->name + 11);
        assert_non_null(got);
        assert_int_equal(got->elems * sizeof(float), entry->bytes);
        for (size_t e = 0; e < got->elems; e++) {
            float expected = 0.0F;

            memcpy(&expected, (const char *)entry->data + e * sizeof(float), sizeof(float));
            difference += ((double)got->data[e] - expected) * ((double)got->data[e] - expected);
            size += (double)expected * expected;
        }
        if (!(sqrt(difference) <= GRADIENT_TOLERANCE * sqrt(size))) {
            fail_msg("gradient of %s: relative error %.3g", got->name, sqrt(difference / size));
        }
        compared++;
    }
    assert_int_equal(compared, run->tensors);
}

static void check_case(const struct oracle *oracle, int pp, int micro_batch, const char *schedule)
{
    struct safetensors *file = NULL;
    static struct rig_result run;
    char stages[48];
    char size[48];
    char order[48];
    const char *overrides[] = {stages, size, order};

    (void)snprintf(stages, sizeof(stages), "parallel.pp=%d", pp);
    (void)snprintf(size, sizeof(size), "train.micro_batch_size=%d", micro_batch);
    (void)snprintf(order, sizeof(order), "parallel.schedule=%s", schedule);
    assert_int_equal(safetensors_open(oracle->file, &file), STATUS_OK);
    rig_run(oracle->yaml, overrides, 3, &run);
    if (run.status < 0) {
        fail_msg("pp %d, micro-batch %d, %s: %s", pp, micro_batch, schedule, run.message);
    }
    assert_int_equal(run.ranks_disagree, 0);
    check_steps(file, &run);
    check_gradients(file, &run);
    rig_release(&run);
    safetensors_close(&file);
}

static void check_schedule(const struct oracle *oracle, const char *schedule)
{
    for (int pp = 1; pp <= 3; pp++) {
        for (int micro_batch = 1; micro_batch <= 4; micro_batch *= 2) {
            check_case(oracle, pp, micro_batch, schedule);
        }
    }
}

static void test_plain_case_follows_the_oracle_under_1f1b(void **state)
{
    (void)state;
    check_schedule(&plain, "1f1b");
}

static void test_plain_case_follows_the_oracle_under_gpipe(void **state)
{
    (void)state;
    check_schedule(&plain, "gpipe");
}

static void test_masked_case_follows_the_oracle_under_1f1b(void **state)
{
    (void)state;
    check_schedule(&masked, "1f1b");
}

static void test_masked_case_follows_the_oracle_under_gpipe(void **state)
{
    (void)state;
    check_schedule(&masked, "gpipe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_case_follows_the_oracle_under_1f1b),
        cmocka_unit_test(test_plain_case_follows_the_oracle_under_gpipe),
        cmocka_unit_test(test_masked_case_follows_the_oracle_under_1f1b),
        cmocka_unit_test(test_masked_case_follows_the_oracle_under_gpipe),
    };

    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
