/* Samples files: rows of the oracle's files, and what is refused. */
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

#include "stages/checkpoint/safetensors.h"
#include "stages/data/dataset.h"

#define T    3
#define ROWS 4

static char path[64];

static int make_path(void **state)
{
    int descriptor = -1;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/weir-samples-XXXXXX");
    descriptor = mkstemp(path);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static enum status open_typed(const char *file, int64_t positions, int64_t vocab, int64_t types,
                              struct dataset **dataset)
{
    const struct dataset_config config = {.path = file,
                                          .format = DATASET_SAMPLES,
                                          .positions = positions,
                                          .vocab = vocab,
                                          .types = types,
                                          .end = 1.0};

    *dataset = NULL;
    return dataset_open(&config, dataset);
}

static enum status open_samples(const char *file, int64_t positions, int64_t vocab,
                                struct dataset **dataset)
{
    return open_typed(file, positions, vocab, 0, dataset);
}

static struct safetensors_entry tokens_entry(const int32_t *tokens)
{
    const struct safetensors_entry entry = {.name = "tokens",
                                            .dtype = SAFETENSORS_I32,
                                            .dims = 3,
                                            .shape = {2, 2, T + 1},
                                            .bytes = sizeof(int32_t) * ROWS * (T + 1),
                                            .data = tokens};

    return entry;
}

static struct safetensors_entry mask_entry(const float *mask)
{
    const struct safetensors_entry entry = {.name = "loss_mask",
                                            .dtype = SAFETENSORS_F32,
                                            .dims = 2,
                                            .shape = {ROWS, T},
                                            .bytes = sizeof(float) * ROWS * T,
                                            .data = mask};

    return entry;
}

static struct safetensors_entry types_entry(const int32_t *types)
{
    const struct safetensors_entry entry = {.name = "tokentypes",
                                            .dtype = SAFETENSORS_I32,
                                            .dims = 3,
                                            .shape = {1, ROWS, T},
                                            .bytes = sizeof(int32_t) * ROWS * T,
                                            .data = types};

    return entry;
}

static const int32_t tokens_good[ROWS * (T + 1)] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                    8, 9, 10, 11, 12, 13, 14, 15};

/* Numbers read from the file by another reader. */
static void the_masked_oracle_reads_as_it_is(void **state)
{
    static const int32_t first[6] = {6, 45, 0, 3, 17, 122};
    static const int32_t last[5] = {95, 13, 24, 40, 0};
    static const int64_t counts[8] = {1, 0, 15, 14, 10, 12, 16, 8};
    struct dataset *dataset = NULL;
    int32_t tokens[20];
    int32_t targets[20];
    float mask[20];

    (void)state;
    assert_int_equal(
        open_samples(TEST_REFERENCE_DIR "/gpt2_b_masked.safetensors", 20, 131, &dataset),
        STATUS_OK);
    assert_int_equal(dataset_samples(dataset), 96);
    dataset_read(dataset, 0, tokens, targets, mask);
    assert_memory_equal(tokens, first, sizeof(first));
    assert_memory_equal(targets, first + 1, sizeof(first) - sizeof(first[0]));
    dataset_read(dataset, 95, tokens, NULL, NULL);
    assert_memory_equal(tokens, last, sizeof(last));
    for (int64_t i = 0; i < 8; i++) {
        float sum = 0.0F;

        dataset_read(dataset, i, NULL, NULL, mask);
        for (int t = 0; t < 20; t++) {
            sum += mask[t];
        }
        assert_int_equal(dataset_targets(dataset, i), counts[i]);
        assert_true(sum == (float)counts[i]);
    }
    dataset_close(&dataset);
    assert_null(dataset);
}

static void leading_dimensions_are_flattened_and_no_mask_is_all_ones(void **state)
{
    const struct safetensors_entry entry = tokens_entry(tokens_good);
    struct dataset *dataset = NULL;
    int32_t tokens[T];
    int32_t targets[T];
    float mask[T];

    (void)state;
    assert_int_equal(safetensors_write(path, &entry, 1, NULL, 0), STATUS_OK);
    assert_int_equal(open_samples(path, T, 16, &dataset), STATUS_OK);
    assert_int_equal(dataset_samples(dataset), ROWS);
    for (int64_t row = 0; row < ROWS; row++) {
        dataset_read(dataset, row, tokens, targets, mask);
        for (int t = 0; t < T; t++) {
            assert_int_equal(tokens[t], row * (T + 1) + t);
            assert_int_equal(targets[t], row * (T + 1) + t + 1);
            assert_true(mask[t] == 1.0F);
        }
        assert_int_equal(dataset_targets(dataset, row), T);
    }
    dataset_close(&dataset);
}

/* Writes both tensors and expects a refusal with the three words. */
static void assert_refused(const struct safetensors_entry *entries, size_t count, int64_t positions,
                           int64_t vocab, const char *first, const char *second)
{
    struct dataset *dataset = NULL;

    assert_int_equal(safetensors_write(path, entries, count, NULL, 0), STATUS_OK);
    assert_int_equal(open_samples(path, positions, vocab, &dataset), STATUS_ERR_REFUSED);
    assert_null(dataset);
    assert_non_null(strstr(status_last()->message, path));
    assert_non_null(strstr(status_last()->message, first));
    assert_non_null(strstr(status_last()->message, second));
}

static void a_token_out_of_range_is_refused_with_its_place(void **state)
{
    int32_t tokens[ROWS * (T + 1)] = {0};
    struct safetensors_entry entry = tokens_entry(tokens);

    (void)state;
    memcpy(tokens, tokens_good, sizeof(tokens));
    assert_refused(&entry, 1, T, 15, "sample 3, position 3", "found 15");
    tokens[6] = -1;
    assert_refused(&entry, 1, T, 16, "sample 1, position 2", "found -1");
    tokens[6] = 70000;
    assert_refused(&entry, 1, T, 65536, "sample 1, position 2", "found 70000");
}

static void a_mask_other_than_0_and_1_is_refused_with_its_place(void **state)
{
    float mask[ROWS * T] = {0.0F, 1.0F, 1.0F, 0.0F};
    const struct safetensors_entry entries[2] = {tokens_entry(tokens_good), mask_entry(mask)};

    (void)state;
    mask[7] = 0.5F;
    assert_refused(entries, 2, T, 16, "sample 2, position 1", "found 0.5");
    mask[7] = NAN;
    assert_refused(entries, 2, T, 16, "sample 2, position 1", "nan");
}

static void shapes_that_do_not_fit_seq_len_are_refused_with_the_shape(void **state)
{
    const float mask[ROWS * T] = {0.0F};
    struct safetensors_entry entries[2] = {tokens_entry(tokens_good), mask_entry(mask)};

    (void)state;
    assert_refused(entries, 1, T + 1, 16, "last dimension of 5", "(2, 2, 4)");
    entries[1].shape[0] = ROWS - 1;
    entries[1].bytes = (size_t)(ROWS - 1) * T * sizeof(float);
    assert_refused(entries, 2, T, 16, "loss_mask", "expected 4 rows");
    entries[1] = mask_entry(mask);
    entries[1].dtype = SAFETENSORS_I32;
    assert_refused(entries, 2, T, 16, "loss_mask", "another dtype");
    entries[0].dims = 0;
    entries[0].bytes = sizeof(int32_t);
    assert_refused(entries, 1, T, 16, "tokens", "()");
}

static void a_file_without_samples_is_refused(void **state)
{
    const float mask[ROWS * T] = {0.0F};
    struct safetensors_entry entries[2] = {mask_entry(mask), tokens_entry(tokens_good)};

    (void)state;
    assert_refused(entries, 1, T, 16, "tensor named tokens", "found none of 1");
    entries[1].shape[0] = 0;
    entries[1].bytes = 0;
    assert_refused(&entries[1], 1, T, 16, "at least one sample", "tokens");
}

static const int32_t types_good[ROWS * T] = {0, 0, 1, 0, 1, 1, 2, 2, 2, 0, 0, 0};

static void token_types_are_read_beside_the_tokens(void **state)
{
    const struct safetensors_entry entries[2] = {types_entry(types_good),
                                                 tokens_entry(tokens_good)};
    struct dataset *dataset = NULL;
    int32_t tokens[T];
    int32_t types[T];

    (void)state;
    assert_int_equal(safetensors_write(path, entries, 2, NULL, 0), STATUS_OK);
    assert_int_equal(open_typed(path, T, 16, 3, &dataset), STATUS_OK);
    for (int64_t row = 0; row < ROWS; row++) {
        dataset_read(dataset, row, tokens, NULL, NULL);
        dataset_read_types(dataset, row, types);
        assert_int_equal(tokens[0], row * (T + 1));
        assert_memory_equal(types, types_good + row * T, sizeof(types));
    }
    dataset_close(&dataset);
}

static void assert_types_refused(const struct safetensors_entry *types, const char *first,
                                 const char *second)
{
    const struct safetensors_entry entries[2] = {
        tokens_entry(tokens_good), types != NULL ? *types : tokens_entry(tokens_good)};
    struct dataset *dataset = NULL;

    assert_int_equal(safetensors_write(path, entries, types != NULL ? 2 : 1, NULL, 0), STATUS_OK);
    assert_int_equal(open_typed(path, T, 16, 3, &dataset), STATUS_ERR_REFUSED);
    assert_null(dataset);
    assert_non_null(strstr(status_last()->message, path));
    assert_non_null(strstr(status_last()->message, "tokentypes"));
    assert_non_null(strstr(status_last()->message, first));
    assert_non_null(strstr(status_last()->message, second));
    /* A model without token types does not look. */
    assert_int_equal(open_samples(path, T, 16, &dataset), STATUS_OK);
    dataset_close(&dataset);
}

static void token_types_that_are_missing_or_wrong_are_refused(void **state)
{
    int32_t values[ROWS * T] = {0};
    struct safetensors_entry types = types_entry(values);

    (void)state;
    assert_types_refused(NULL, "model.num_tokentypes 3", "found none");
    values[7] = 3;
    assert_types_refused(&types, "sample 2, position 1", "found 3");
    values[7] = -1;
    assert_types_refused(&types, "[0, 3) (model.num_tokentypes)", "found -1");
    values[7] = 0;
    types.shape[1] = ROWS - 1;
    types.bytes = (size_t)(ROWS - 1) * T * sizeof(int32_t);
    assert_types_refused(&types, "expected 4 rows", "found 3");
    types = types_entry(values);
    types.shape[1] = T;
    types.shape[2] = ROWS;
    assert_types_refused(&types, "last dimension of 3", "(1, 3, 4)");
    types = types_entry(values);
    types.dtype = SAFETENSORS_F32;
    assert_types_refused(&types, "expected I32", "another dtype");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_masked_oracle_reads_as_it_is),
        cmocka_unit_test(leading_dimensions_are_flattened_and_no_mask_is_all_ones),
        cmocka_unit_test(a_token_out_of_range_is_refused_with_its_place),
        cmocka_unit_test(a_mask_other_than_0_and_1_is_refused_with_its_place),
        cmocka_unit_test(shapes_that_do_not_fit_seq_len_are_refused_with_the_shape),
        cmocka_unit_test(a_file_without_samples_is_refused),
        cmocka_unit_test(token_types_are_read_beside_the_tokens),
        cmocka_unit_test(token_types_that_are_missing_or_wrong_are_refused),
    };

    return cmocka_run_group_tests_name("dataset_samples", tests, make_path, remove_path);
}
