#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/checkpoint/safetensors.h"
#include "tests/stages/oracle.h"

const struct oracle oracle_plain = {
    .file = TEST_REFERENCE_DIR "/gpt2_a.safetensors",
    .yaml =
        "model: {num_layers: 4, hidden_size: 64, num_heads: 4, seq_len: 32, vocab_size: 256}\n"
        "train: {steps: 10, micro_batch_size: 8, global_batch_size: 8, run_dir: unused}\n"
        "optimizer: {lr: 0.006, min_lr: 0.0006, warmup_steps: 3, decay_steps: 10,\n"
        "            weight_decay: 0.1, beta1: 0.9, beta2: 0.95, eps: 1.0e-8, grad_clip: 1.0}\n"
        "data: {train: " TEST_REFERENCE_DIR "/gpt2_a.safetensors, shuffle: false}\n"
        "checkpoint: {import: " TEST_REFERENCE_DIR "/gpt2_a.safetensors, import_prefix: init.}\n"};

const struct oracle oracle_masked = {
    .file = TEST_REFERENCE_DIR "/gpt2_b_masked.safetensors",
    .yaml =
        "model: {num_layers: 3, hidden_size: 48, num_heads: 6, seq_len: 20, vocab_size: 131}\n"
        "train: {steps: 12, micro_batch_size: 8, global_batch_size: 8, run_dir: unused}\n"
        "optimizer: {lr: 0.006, min_lr: 0.0006, warmup_steps: 3, decay_steps: 12,\n"
        "            weight_decay: 0.1, beta1: 0.9, beta2: 0.95, eps: 1.0e-8, grad_clip: 0.25}\n"
        "data: {train: " TEST_REFERENCE_DIR "/gpt2_b_masked.safetensors, shuffle: false}\n"
        "checkpoint: {import: " TEST_REFERENCE_DIR
        "/gpt2_b_masked.safetensors, import_prefix: init.}\n"};

double oracle_relative(double got, double expected)
{
    return fabs(got - expected) / fabs(expected);
}

static void read_expected(const struct safetensors *file, const char *name, int64_t steps,
                          double *out)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);

    assert_non_null(entry);
    assert_true(entry->bytes >= (size_t)steps * sizeof(double));
    memcpy(out, entry->data, (size_t)steps * sizeof(double));
}

static void check_steps(const struct safetensors *file, const struct rig_result *run,
                        const char *what)
{
    double loss[RIG_STEPS_MOST];
    double norm[RIG_STEPS_MOST];
    double lr[RIG_STEPS_MOST];

    read_expected(file, "expected.loss", run->steps, loss);
    read_expected(file, "expected.grad_norm", run->steps, norm);
    read_expected(file, "expected.lr", run->steps, lr);
    for (int64_t step = 0; step < run->steps; step++) {
        double allowed = step == 0 ? ORACLE_FIRST_NORM_TOLERANCE : ORACLE_NORM_TOLERANCE;

        if (!(oracle_relative(run->loss[step], loss[step]) <= ORACLE_LOSS_TOLERANCE)) {
            fail_msg("%s: loss of step %d: got %.12g, the oracle has %.12g", what, (int)step + 1,
                     run->loss[step], loss[step]);
        }
        if (!(oracle_relative(run->norm[step], norm[step]) <= allowed)) {
            fail_msg("%s: norm of step %d: got %.12g, the oracle has %.12g", what, (int)step + 1,
                     run->norm[step], norm[step]);
        }
        if (!(oracle_relative(run->lr[step], lr[step]) <= 1e-12)) {
            fail_msg("%s: lr of step %d: got %.17g, the oracle has %.17g", what, (int)step + 1,
                     run->lr[step], lr[step]);
        }
    }
}

static void check_gradients(const struct safetensors *file, const struct rig_result *run,
                            const char *what)
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
        if (!(sqrt(difference) <= ORACLE_GRADIENT_TOLERANCE * sqrt(size))) {
            fail_msg("%s: gradient of %s: relative error %.3g", what, got->name,
                     sqrt(difference / size));
        }
        compared++;
    }
    assert_int_equal(compared, run->tensors);
}

void oracle_check_losses(const struct oracle *oracle, const struct rig_result *run, double first,
                         double later, const char *what)
{
    struct safetensors *file = NULL;
    double loss[RIG_STEPS_MOST];
    double lr[RIG_STEPS_MOST];

    assert_int_equal(safetensors_open(oracle->file, &file), STATUS_OK);
    read_expected(file, "expected.loss", run->steps, loss);
    read_expected(file, "expected.lr", run->steps, lr);
    safetensors_close(&file);
    for (int64_t step = 0; step < run->steps; step++) {
        double apart = oracle_relative(run->loss[step], loss[step]);

        if (!(apart < (step == 0 ? first : later))) {
            fail_msg("%s: loss of step %d: got %.12g, the oracle has %.12g: %.2g apart", what,
                     (int)step + 1, run->loss[step], loss[step], apart);
        }
        assert_true(oracle_relative(run->lr[step], lr[step]) <= 1e-12);
    }
}

void oracle_check(const struct oracle *oracle, const struct rig_result *run, const char *what)
{
    struct safetensors *file = NULL;

    assert_int_equal(safetensors_open(oracle->file, &file), STATUS_OK);
    check_steps(file, run, what);
    check_gradients(file, run, what);
    safetensors_close(&file);
}
