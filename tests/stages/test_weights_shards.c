/* Weights whose tensors lie in parts on several shards: one file of whole tensors, whoever writes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "stages/checkpoint/safetensors.h"
#include "stages/checkpoint/weights.h"
#include "tests/stages/sharded_weights.h"
#include "tests/stages/weights_folder.h"

#define SHARDS_MOST 4
#define FILE_MOST   (1 << 20)

static int files(void)
{
    DIR *stream = opendir(weights_folder());
    const struct dirent *entry = NULL;
    int count = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        count += entry->d_name[0] != '.' ? 1 : 0;
    }
    (void)closedir(stream);
    return count;
}

static struct weights_file file_of(int32_t shard)
{
    return (struct weights_file){.directory = weights_folder(), .stages = 1, .shard = shard};
}

/* The last shard first: they may come in any order. */
static void export_by(int32_t shards)
{
    struct params params[SHARDS_MOST] = {{.table = NULL}};
    struct weights_file first = file_of(0);

    for (int32_t s = 0; s < shards; s++) {
        sharded_weights_make(&params[s], s, shards, true);
    }
    assert_int_equal(weights_export_begin(&first, &params[0]), STATUS_OK);
    for (int32_t s = shards - 1; s >= 0; s--) {
        struct weights_file file = file_of(s);

        assert_int_not_equal(access(weights_inside("model.safetensors"), F_OK), 0);
        assert_int_equal(weights_export_write(&file, &params[s]), STATUS_OK);
    }
    assert_int_equal(weights_export_end(&first), STATUS_OK);
    assert_int_equal(files(), 1);
    for (int32_t s = 0; s < shards; s++) {
        sharded_weights_drop(&params[s]);
    }
}

static void every_number_of_shards_writes_the_same_bytes(void **state)
{
    char *whole = NULL;
    size_t whole_bytes = 0;

    (void)state;
    export_by(1);
    assert_int_equal(
        file_read(weights_inside("model.safetensors"), FILE_MOST, &whole, &whole_bytes), STATUS_OK);
    for (int32_t shards = 2; shards <= SHARDS_MOST; shards *= 2) {
        char *bytes = NULL;
        size_t count = 0;

        assert_int_equal(unlink(weights_inside("model.safetensors")), 0);
        export_by(shards);
        assert_int_equal(file_read(weights_inside("model.safetensors"), FILE_MOST, &bytes, &count),
                         STATUS_OK);
        assert_int_equal(count, whole_bytes);
        assert_memory_equal(bytes, whole, count);
        free(bytes);
    }
    free(whole);
}

static void the_file_holds_each_whole_tensor(void **state)
{
    struct safetensors *file = NULL;

    (void)state;
    export_by(4);
    assert_int_equal(safetensors_open(weights_inside("model.safetensors"), &file), STATUS_OK);
    assert_int_equal(safetensors_count(file), SHARDED_WEIGHTS);
    for (int32_t i = 0; i < SHARDED_WEIGHTS; i++) {
        const struct safetensors_entry *entry = safetensors_find(file, sharded_weights[i].name);

        assert_non_null(entry);
        assert_int_equal(entry->dims, sharded_weights[i].rows > 1 ? 2 : 1);
        assert_int_equal(entry->shape[0], sharded_weights[i].rows > 1 ? sharded_weights[i].rows
                                                                      : sharded_weights[i].cols);
        assert_int_equal(entry->bytes, 4 * sharded_weights[i].rows * sharded_weights[i].cols);
        for (int64_t e = 0; e < sharded_weights[i].rows * sharded_weights[i].cols; e++) {
            float found = 0.0F;

            memcpy(&found, (const char *)entry->data + 4 * e, sizeof(found));
            assert_true(found == sharded_weights_value(i, e / sharded_weights[i].cols,
                                                       e % sharded_weights[i].cols));
        }
    }
    safetensors_close(&file);
}

/* What `written` shards wrote, `read` shards read. */
static void check_import(int32_t written, int32_t shards)
{
    const struct head_memory head = {.copy = NULL};
    const struct model_shape shape = {.V = 257};

    (void)unlink(weights_inside("model.safetensors"));
    export_by(written);
    for (int32_t s = 0; s < shards; s++) {
        struct params found;
        struct params expected;

        sharded_weights_make(&found, s, shards, false);
        sharded_weights_make(&expected, s, shards, true);
        assert_int_equal(
            weights_import(weights_inside("model.safetensors"), "", &found, &head, &shape, NULL),
            STATUS_OK);
        for (int32_t i = 0; i < SHARDED_WEIGHTS; i++) {
            assert_memory_equal(found.table[i].weight, expected.table[i].weight,
                                found.table[i].elems * sizeof(float));
        }
        sharded_weights_drop(&found);
        sharded_weights_drop(&expected);
    }
}

static void every_number_of_shards_reads_what_any_other_wrote(void **state)
{
    (void)state;
    for (int32_t written = 1; written <= SHARDS_MOST; written *= 2) {
        for (int32_t shards = 1; shards <= SHARDS_MOST; shards *= 2) {
            check_import(written, shards);
        }
    }
}

/* 5 words on 4 shards: 2, 2, 1 and none. 257: 65, 65, 65, 62. */
static void parts_of_a_vocabulary_may_be_short_or_empty(void **state)
{
    static const int64_t words[] = {65, 65, 65, 62};
    static const int64_t few[] = {2, 2, 1, 0};

    (void)state;
    for (int32_t s = 0; s < 4; s++) {
        assert_int_equal(sharded_weights_part(0, s, 4).rows, words[s]);
        assert_int_equal(sharded_weights_part(SHARDED_WEIGHTS - 1, s, 4).rows, few[s]);
    }
    assert_int_equal(sharded_weights_part(0, 0, 2).rows, 129);
    assert_int_equal(sharded_weights_part(0, 1, 2).rows, 128);
    check_import(4, 4);
}

static void a_shard_is_checked_against_the_whole_tensor(void **state)
{
    const struct head_memory head = {.copy = NULL};
    const struct model_shape shape = {.V = 257};
    struct params params;
    const char *message = status_last()->message;

    (void)state;
    export_by(2);
    sharded_weights_make(&params, 1, 2, false);
    params.table[3].shard.whole_cols = 48;
    assert_int_equal(
        weights_import(weights_inside("model.safetensors"), "", &params, &head, &shape, NULL),
        STATUS_ERR_REFUSED);
    assert_non_null(strstr(message, "h.0.attn.c_attn.weight"));
    assert_non_null(strstr(message, "expected F32 8 \303\227 48, found F32 [8, 24]"));
    sharded_weights_drop(&params);
}

static void the_old_file_stands_until_the_end(void **state)
{
    struct weights_file file = file_of(0);
    struct params params;
    char *before = NULL;
    char *after = NULL;
    size_t bytes = 0;

    (void)state;
    export_by(1);
    assert_int_equal(file_read(weights_inside("model.safetensors"), FILE_MOST, &before, &bytes),
                     STATUS_OK);
    sharded_weights_make(&params, 0, 1, false);
    assert_int_equal(weights_export_begin(&file, &params), STATUS_OK);
    assert_int_equal(weights_export_write(&file, &params), STATUS_OK);
    assert_int_equal(file_read(weights_inside("model.safetensors"), FILE_MOST, &after, &bytes),
                     STATUS_OK);
    assert_memory_equal(before, after, bytes);
    weights_export_discard(&file);
    weights_export_discard(&file);
    assert_int_equal(files(), 1);
    /* What a killed process left is replaced. */
    assert_int_equal(weights_export_begin(&file, &params), STATUS_OK);
    assert_int_equal(weights_export_begin(&file, &params), STATUS_OK);
    assert_int_equal(weights_export_write(&file, &params), STATUS_OK);
    assert_int_equal(weights_export_end(&file), STATUS_OK);
    assert_int_equal(files(), 1);
    free(before);
    free(after);
    sharded_weights_drop(&params);
}

static void a_shard_of_another_model_is_refused_and_nothing_is_left(void **state)
{
    struct weights_file first = file_of(0);
    struct weights_file second = file_of(1);
    struct params params;
    struct params other;

    (void)state;
    sharded_weights_make(&params, 0, 2, true);
    sharded_weights_make(&other, 1, 2, true);
    /* Nobody began. */
    assert_true(weights_export_write(&second, &other) < 0);
    assert_non_null(strstr(status_last()->message, "model.safetensors.tmp"));
    (void)snprintf(other.table[1].name, sizeof(other.table[1].name), "wpf.weight");
    assert_int_equal(weights_export_begin(&first, &params), STATUS_OK);
    assert_int_equal(weights_export_write(&second, &other), STATUS_ERR_INVALID);
    weights_export_discard(&second);
    assert_int_equal(files(), 0);
    assert_true(weights_export_end(&first) < 0);
    assert_int_equal(files(), 0);
    sharded_weights_drop(&params);
    sharded_weights_drop(&other);
}

/* A limit on the size of files stands for a full disk. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_disk_that_is_full_leaves_nothing(void **state)
{
    struct weights_file file = file_of(0);
    struct params params;
    struct rlimit limit;
    enum status began = STATUS_OK;
    enum status wrote = STATUS_OK;

    (void)state;
    sharded_weights_make(&params, 0, 1, true);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    limit_files(4096);
    began = weights_export_begin(&file, &params);
    limit_files(limit.rlim_cur);
    assert_int_equal(began, STATUS_ERR_IO);
    assert_int_equal(files(), 0);
    assert_int_equal(weights_export_begin(&file, &params), STATUS_OK);
    limit_files(4096);
    wrote = weights_export_write(&file, &params);
    limit_files(limit.rlim_cur);
    assert_int_equal(wrote, STATUS_ERR_IO);
    weights_export_discard(&file);
    assert_int_equal(files(), 0);
    sharded_weights_drop(&params);
}

#define CLEAN(test) \
    cmocka_unit_test_setup_teardown(test, weights_folder_make, weights_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLEAN(every_number_of_shards_writes_the_same_bytes),
        CLEAN(the_file_holds_each_whole_tensor),
        CLEAN(every_number_of_shards_reads_what_any_other_wrote),
        CLEAN(parts_of_a_vocabulary_may_be_short_or_empty),
        CLEAN(a_shard_is_checked_against_the_whole_tensor),
        CLEAN(the_old_file_stands_until_the_end),
        CLEAN(a_shard_of_another_model_is_refused_and_nothing_is_left),
        CLEAN(a_disk_that_is_full_leaves_nothing),
    };

    return cmocka_run_group_tests_name("weights_shards", tests, NULL, NULL);
}
