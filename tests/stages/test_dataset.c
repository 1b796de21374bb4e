/* Text and its loader: which tokens stand where, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "stages/data/dataset.h"
#include "stages/data/loader.h"

#define T 4

static char path[64];

static int make_path(void **state)
{
    int descriptor = -1;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/weir-dataset-XXXXXX");
    descriptor = mkstemp(path);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static enum status open_text(double begin, double end, int64_t vocab, struct dataset **dataset)
{
    const struct dataset_config config = {.path = path,
                                          .format = DATASET_TEXT,
                                          .positions = T,
                                          .vocab = vocab,
                                          .begin = begin,
                                          .end = end};

    return dataset_open(&config, dataset);
}

static void test_sample_j_begins_at_token_j_times_t(void **state)
{
    struct dataset *dataset = NULL;
    int32_t tokens[T];
    int32_t targets[T];
    float mask[T];

    (void)state;
    write_text("abcdefghijklm"); /* 13 bytes: (13-1) div 4 = 3 samples */
    assert_int_equal(open_text(0.0, 1.0, 256, &dataset), STATUS_OK);
    assert_int_equal(dataset_samples(dataset), 3);
    for (int64_t j = 0; j < 3; j++) {
        dataset_read(dataset, j, tokens, targets, mask);
        for (int64_t t = 0; t < T; t++) {
            assert_int_equal(tokens[t], 'a' + j * T + t);
            assert_int_equal(targets[t], 'a' + j * T + t + 1);
            assert_true(mask[t] == 1.0F);
        }
        assert_int_equal(dataset_targets(dataset, j), T);
    }
    dataset_close(&dataset);
}

static void test_parts_of_a_text_do_not_overlap(void **state)
{
    struct dataset *first = NULL;
    struct dataset *second = NULL;
    int32_t tokens[T];

    (void)state;
    write_text("aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbb"); /* 20 + 20 */
    assert_int_equal(open_text(0.0, 0.5, 256, &first), STATUS_OK);
    assert_int_equal(open_text(0.5, 1.0, 256, &second), STATUS_OK);
    assert_int_equal(dataset_samples(first), 4);
    assert_int_equal(dataset_samples(second), 4);
    for (int64_t j = 0; j < 4; j++) {
        dataset_read(first, j, tokens, NULL, NULL);
        assert_true(tokens[0] == 'a' && tokens[T - 1] == 'a');
        dataset_read(second, j, tokens, NULL, NULL);
        assert_true(tokens[0] == 'b' && tokens[T - 1] == 'b');
    }
    dataset_close(&first);
    dataset_close(&second);
}

static void test_a_text_that_cannot_be_read_is_refused_by_name(void **state)
{
    const struct dataset_config none = {.path = "/tmp/weir-none/none.txt",
                                        .format = DATASET_TEXT,
                                        .positions = T,
                                        .vocab = 256,
                                        .end = 1.0};
    struct dataset *dataset = NULL;

    (void)state;
    assert_int_equal(dataset_open(&none, &dataset), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "/tmp/weir-none/none.txt"));
    write_text("");
    assert_int_equal(open_text(0.0, 1.0, 256, &dataset), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, path));
    write_text("abcd");
    assert_int_equal(open_text(0.0, 1.0, 256, &dataset), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, path));
    assert_null(dataset);
}

/* Batches against what the dataset itself gives for the sampler's numbers. */
static void test_the_loader_gives_each_step_its_rows_and_pads_past_the_limit(void **state)
{
    struct dataset *dataset = NULL;
    struct loader *loader = NULL;
    struct loader_batch batch;
    int64_t next = 0;
    struct loader_config config = {
        .sampler = {.samples = 3, .shuffle = false, .micro_batch_size = 2, .replicas = 1},
        .microbatches = 2,
        .positions = T,
        .wants_tokens = true,
        .wants_targets = true,
        .limit = 7,
    };
    int64_t deadline_ns = clock_deadline(10.0);

    (void)state;
    write_text("abcdefghijklm");
    assert_int_equal(open_text(0.0, 1.0, 256, &dataset), STATUS_OK);
    config.dataset = dataset;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    for (int64_t step = 0; step < 3; step++) {
        int64_t counted = 0;

        assert_int_equal(loader_peek_targets(loader, NULL, deadline_ns, &next), STATUS_OK);
        assert_int_equal(loader_take(loader, NULL, deadline_ns, &batch), STATUS_OK);
        assert_int_equal(batch.consumed, 4 * step);
        for (int64_t row = 0; row < 4; row++) {
            int64_t number = 4 * step + row;
            int real = number < 7;

            counted += real != 0 ? T : 0;
            assert_int_equal(batch.tokens[row * T], real != 0 ? 'a' + (number % 3) * T : 0);
            assert_true(batch.mask[row * T + T - 1] == (real != 0 ? 1.0F : 0.0F));
        }
        assert_int_equal(batch.target_count, counted);
        assert_int_equal(next, counted);
    }
    assert_int_equal(loader_rewind(loader, 0), STATUS_OK);
    assert_int_equal(loader_take(loader, NULL, deadline_ns, &batch), STATUS_OK);
    assert_int_equal(batch.tokens[0], 'a');
    loader_close(&loader);
    dataset_close(&dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample_j_begins_at_token_j_times_t),
        cmocka_unit_test(test_parts_of_a_text_do_not_overlap),
        cmocka_unit_test(test_a_text_that_cannot_be_read_is_refused_by_name),
        cmocka_unit_test(test_the_loader_gives_each_step_its_rows_and_pads_past_the_limit),
    };

    return cmocka_run_group_tests_name("dataset", tests, make_path, remove_path);
}
