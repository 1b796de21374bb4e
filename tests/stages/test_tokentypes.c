/* Token types from the file to the gradient, in several layouts. */
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

#include "base/clock.h"
#include "stages/data/loader.h"
#include "tests/stages/engine_rig.h"
#include "tests/stages/samples_file.h"

#define POSITIONS 8
#define SAMPLES   16
#define HIDDEN    16
#define TYPES     3

static char samples_path[64];
static int32_t types[SAMPLES * POSITIONS];
static const struct samples_file samples = {
    .samples = SAMPLES, .positions = POSITIONS, .vocab = 61, .more = "tokentypes", .values = types};

/* Weights that get no gradient stay as they are. */
static const char base_yaml[] =
    "model: {num_layers: 3, hidden_size: 16, num_heads: 2, seq_len: 8, vocab_size: 61,\n"
    "  num_tokentypes: 3}\n"
    "train: {steps: 4, micro_batch_size: 2, global_batch_size: 4, run_dir: unused}\n"
    "optimizer: {lr: 0.01, weight_decay: 0}\n";

/* Type 0 and 2 occur, type 1 never. */
static int make_samples(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES * POSITIONS; i++) {
        types[i] = i * 5 / 3 % 2 * 2;
    }
    return samples_file_write(&samples, samples_path, sizeof(samples_path));
}

static int remove_samples(void **state)
{
    (void)state;
    return unlink(samples_path);
}

static void train(const char *first, const char *second, struct rig_result *run)
{
    char data[96];
    const char *overrides[] = {data, "data.shuffle=false", first, second};
    int count = 2 + (first != NULL ? 1 : 0) + (second != NULL ? 1 : 0);

    (void)snprintf(data, sizeof(data), "data.train=%s", samples_path);
    rig_run(base_yaml, overrides, count, run);
    assert_int_equal(run->status, STATUS_OK);
    assert_int_equal(run->ranks_disagree, 0);
    assert_int_equal(run->copies_disagree, 0);
    assert_int_equal(run->holes, 0);
}

static const float *weights_of(const struct rig_result *run, const char *name)
{
    const struct rig_tensor *tensor = rig_find(run->weights, run->tensors, name);

    assert_non_null(tensor);
    return tensor->data;
}

static void the_loader_hands_them_out_beside_the_tokens(void **state)
{
    const struct dataset_config file = {.path = samples_path,
                                        .format = DATASET_SAMPLES,
                                        .positions = POSITIONS,
                                        .vocab = 61,
                                        .types = TYPES,
                                        .end = 1.0};
    struct loader_config config = {
        .sampler = {.samples = SAMPLES, .micro_batch_size = 3, .replicas = 1},
        .microbatches = 2,
        .positions = POSITIONS,
        .wants_tokens = true,
        .wants_types = true,
        .limit = SAMPLES,
    };
    struct dataset *dataset = NULL;
    struct loader *loader = NULL;
    struct loader_batch batch;

    (void)state;
    assert_int_equal(dataset_open(&file, &dataset), STATUS_OK);
    config.dataset = dataset;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    /* Six rows a step; the third one ends with two rows of padding. */
    for (int64_t row = 0; row < 18; row++) {
        if (row % 6 == 0) {
            assert_int_equal(loader_take(loader, NULL, clock_deadline(30.0), &batch), STATUS_OK);
        }
        for (int64_t t = 0; t < POSITIONS; t++) {
            int64_t at = row % 6 * POSITIONS + t;
            bool padding = row >= SAMPLES;

            assert_int_equal(batch.types[at], padding ? 0 : types[row * POSITIONS + t]);
            assert_int_equal(batch.tokens[at],
                             padding ? 0 : samples_file_token(&samples, row * (POSITIONS + 1) + t));
        }
    }
    loader_close(&loader);
    config.wants_types = false;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    assert_int_equal(loader_take(loader, NULL, clock_deadline(30.0), &batch), STATUS_OK);
    assert_null(batch.types);
    loader_close(&loader);
    dataset_close(&dataset);
}

static void rows_of_types_that_occur_learn_and_others_stay(void **state)
{
    static struct rig_result before;
    static struct rig_result after;
    const float *was;
    const float *is;

    (void)state;
    train("optimizer.lr=0", NULL, &before);
    train(NULL, NULL, &after);
    was = weights_of(&before, "wtt.weight");
    is = weights_of(&after, "wtt.weight");
    for (int c = 0; c < HIDDEN; c++) {
        assert_true(is[0 * HIDDEN + c] != was[0 * HIDDEN + c]);
        assert_true(is[1 * HIDDEN + c] == was[1 * HIDDEN + c]);
        assert_true(is[2 * HIDDEN + c] != was[2 * HIDDEN + c]);
    }
    rig_release(&before);
    rig_release(&after);
}

/* Each row of the embedding's output has one type and one position, so that the gradients of both
 * tables add up to the same. */
static void the_gradients_of_types_and_of_positions_have_the_same_sum(void **state)
{
    static struct rig_result run;
    const struct rig_tensor *wtt;
    const struct rig_tensor *wpe;

    (void)state;
    train(NULL, NULL, &run);
    wtt = rig_find(run.gradients, run.gradient_count, "wtt.weight");
    wpe = rig_find(run.gradients, run.gradient_count, "wpe.weight");
    assert_non_null(wtt);
    assert_int_equal(wtt->elems, TYPES * HIDDEN);
    for (int c = 0; c < HIDDEN; c++) {
        double by_type = 0.0;
        double by_position = 0.0;
        double size = 0.0;

        for (int t = 0; t < TYPES; t++) {
            by_type += (double)wtt->data[t * HIDDEN + c];
        }
        for (int t = 0; t < POSITIONS; t++) {
            by_position += (double)wpe->data[t * HIDDEN + c];
            size += fabs((double)wpe->data[t * HIDDEN + c]);
        }
        assert_true(fabs(by_type) > 0.0);
        /* 32 rows a step: rounding of as many additions in each sum. */
        assert_true(fabs(by_type - by_position) <= 64.0 * 0x1p-24 * size);
        assert_true(wtt->data[1 * HIDDEN + c] == 0.0F);
    }
    rig_release(&run);
}

static void every_depth_of_the_pipeline_gives_the_same_bits(void **state)
{
    static struct rig_result one;
    static struct rig_result other;
    static const char *const depths[] = {"parallel.pp=2", "parallel.pp=3"};
    char text[256];

    (void)state;
    train(NULL, NULL, &one);
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        train(depths[i], NULL, &other);
        if (!rig_same(&one, &other, text, sizeof(text))) {
            fail_msg("%s: %s", depths[i], text);
        }
        rig_release(&other);
    }
    rig_release(&one);
}

static void shards_and_replicas_give_close_numbers(void **state)
{
    static struct rig_result one;
    static struct rig_result other;
    static const char *const layouts[][2] = {
        {"parallel.tp=2", NULL}, {"parallel.dp=2", NULL}, {"parallel.tp=2", "parallel.dp=2"}};

    (void)state;
    train(NULL, NULL, &one);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        train(layouts[i][0], layouts[i][1], &other);
        for (int64_t step = 0; step < one.steps; step++) {
            assert_true(fabs(other.loss[step] - one.loss[step]) <= 2e-6 * one.loss[step]);
        }
        assert_true(fabs(other.norm[0] - one.norm[0]) <= 1e-6 * one.norm[0]);
        assert_memory_equal(weights_of(&other, "wtt.weight") + HIDDEN,
                            weights_of(&one, "wtt.weight") + HIDDEN, HIDDEN * sizeof(float));
        rig_release(&other);
    }
    rig_release(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loader_hands_them_out_beside_the_tokens),
        cmocka_unit_test(rows_of_types_that_occur_learn_and_others_stay),
        cmocka_unit_test(the_gradients_of_types_and_of_positions_have_the_same_sum),
        cmocka_unit_test(every_depth_of_the_pipeline_gives_the_same_bits),
        cmocka_unit_test(shards_and_replicas_give_close_numbers),
    };

    return cmocka_run_group_tests_name("tokentypes", tests, make_samples, remove_samples);
}
