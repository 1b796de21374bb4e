/*
 * Training in bf16 and fp16: close to the float64 oracle, the same bits in every pipeline, and
 * right where gradients overflow.
 *
 * Tolerances (relative, of the loss): what keeping weights and activations in 16 bits costs, with
 * all arithmetic in fp32. An implementation that accumulates in bf16 as well shows 4e-5 at step 1
 * and 1.6e-2 later.
 */
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

#include "tests/stages/base_run.h"
#include "tests/stages/oracle.h"
#include "tests/stages/random_text.h"

struct format {
    const char *name;
    double first_loss; /* tolerance at step 1 */
    double loss;       /* later */
};

static const struct format formats[] = {{"bf16", 2e-4, 2e-2}, {"fp16", 3e-5, 3e-3}};

enum {
    FORMATS = 2
};

static void check_oracle(const struct oracle *oracle, const struct format *format, int pp, int tp,
                         int micro_batch)
{
    static struct rig_result run;
    char text[4][64];
    const char *overrides[4] = {text[0], text[1], text[2], text[3]};
    char what[96];

    (void)snprintf(text[0], sizeof(text[0]), "precision.dtype=%s", format->name);
    (void)snprintf(text[1], sizeof(text[1]), "parallel.pp=%d", pp);
    (void)snprintf(text[2], sizeof(text[2]), "parallel.tp=%d", tp);
    (void)snprintf(text[3], sizeof(text[3]), "train.micro_batch_size=%d", micro_batch);
    (void)snprintf(what, sizeof(what), "%s, pp %d, tp %d, micro-batch %d", format->name, pp, tp,
                   micro_batch);
    rig_run(oracle->yaml, overrides, 4, &run);
    if (run.status < 0) {
        fail_msg("%s: %s", what, run.message);
    }
    assert_int_equal(run.ranks_disagree + run.copies_disagree + run.holes, 0);
    oracle_check_losses(oracle, &run, format->first_loss, format->loss, what);
    rig_release(&run);
}

static void check_oracles(const struct oracle *oracle)
{
    for (int f = 0; f < FORMATS; f++) {
        for (int micro_batch = 2; micro_batch <= 8; micro_batch *= 4) {
            check_oracle(oracle, &formats[f], 1, 1, micro_batch);
            check_oracle(oracle, &formats[f], 2, 1, micro_batch);
            check_oracle(oracle, &formats[f], 1, 2, micro_batch);
        }
    }
}

static void the_plain_case_follows_the_oracle(void **state)
{
    (void)state;
    check_oracles(&oracle_plain);
}

static void the_masked_case_follows_the_oracle(void **state)
{
    (void)state;
    check_oracles(&oracle_masked);
}

static const char *dtype_override(int format)
{
    static const char *const overrides[FORMATS] = {"precision.dtype=bf16", "precision.dtype=fp16"};

    return overrides[format];
}

/* DESIGN 5.2, in 16 bits: every pipeline has the bits of one stage. */
static void every_pipeline_has_the_bits_of_one_stage(void **state)
{
    static const struct base_run layouts[] = {
        {.pp = 2},
        {.pp = 4, .schedule = "gpipe"},
        {.pp = 3, .more = {NULL, "parallel.early_send=false"}},
        {.pp = 2, .virtual_stages = 2},
        {.pp = 2, .more = {NULL, "parallel.embedding_sync=data_plane"}},
        {.pp = 4, .more = {NULL, "parallel.layers_per_stage=[0, 2, 2, 0]"}},
    };
    static struct rig_result alone;
    static struct rig_result run;

    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        for (int tp = 1; tp <= 2; tp++) {
            struct base_run one = {.tp = tp, .steps = 4, .more = {dtype_override(f)}};

            base_train(&one, &alone);
            for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
                struct base_run layout = layouts[i];

                layout.tp = tp;
                layout.steps = 4;
                layout.more[0] = dtype_override(f);
                base_train(&layout, &run);
                base_assert_same(&layout, &run, &alone);
                base_assert_copy(&run);
                rig_release(&run);
            }
            rig_release(&alone);
        }
    }
}

/* Replicas share out the tied embedding, and its updated slices come back in 16 bits. */
static void replicas_have_the_bits_of_one_stage_with_replicas(void **state)
{
    static struct rig_result alone;
    static struct rig_result run;

    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        struct base_run one = {.dp = 2, .steps = 4, .more = {dtype_override(f)}};
        struct base_run layout = {.pp = 2, .dp = 2, .steps = 4, .more = {dtype_override(f)}};

        base_train(&one, &alone);
        base_train(&layout, &run);
        base_assert_same(&layout, &run, &alone);
        base_assert_copy(&run);
        rig_release(&run);
        rig_release(&alone);
    }
}

/* A text of one sample, at `path`, and the override that trains on it. */
static void make_sample(char *path, char *override, size_t override_bytes)
{
    int descriptor = mkstemp(path);

    assert_true(descriptor >= 0);
    assert_int_equal(close(descriptor), 0);
    assert_int_equal(random_text_write(path, 99, BASE_POSITIONS + 1), 0);
    (void)snprintf(override, override_bytes, "data.train=%s", path);
}

/* Gradients are added up in fp32: 512 micro-batches that are all the same give the gradient of one.
 * (In bf16 the sum would stop growing after some 256 of them.) */
static void many_micro_batches_lose_nothing(void **state)
{
    static struct rig_result one;
    static struct rig_result many;
    char text[64] = "/tmp/weir-sample-XXXXXX";
    char data[96];
    /* An epoch of one sample. */
    struct base_run few = {
        .steps = 1, .batch = 1, .more = {"precision.dtype=bf16", data, "data.split=[1, 0, 0]"}};
    struct base_run lots = few;
    double difference = 0.0;
    double size = 0.0;

    (void)state;
    make_sample(text, data, sizeof(data));
    lots.batch = 512;
    base_train(&few, &one);
    base_train(&lots, &many);
    assert_int_equal(unlink(text), 0);
    assert_int_equal(one.gradient_count, many.gradient_count);
    for (int32_t t = 0; t < one.gradient_count; t++) {
        const struct rig_tensor *a = &one.gradients[t];
        const struct rig_tensor *b = rig_find(many.gradients, many.gradient_count, a->name);

        assert_non_null(b);
        for (size_t e = 0; e < a->elems; e++) {
            double apart = (double)a->data[e] - (double)b->data[e];

            difference += apart * apart;
            size += (double)a->data[e] * a->data[e];
        }
    }
    assert_true(size > 0.0);
    assert_true(sqrt(difference) <= 0.01 * sqrt(size));
    rig_release(&one);
    rig_release(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_case_follows_the_oracle),
        cmocka_unit_test(the_masked_case_follows_the_oracle),
        cmocka_unit_test(every_pipeline_has_the_bits_of_one_stage),
        cmocka_unit_test(replicas_have_the_bits_of_one_stage_with_replicas),
        cmocka_unit_test(many_micro_batches_lose_nothing),
    };

    return cmocka_run_group_tests_name("precision", tests, base_make, base_remove);
}
