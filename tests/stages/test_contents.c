/* What the files of a checkpoint are together: whole tensors, or what is wrong with one, by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "stages/checkpoint/contents.h"
#include "stages/checkpoint/safetensors.h"
#include "tests/stages/checkpoint_folder.h"

#define VALUES 64

/* A part of one tensor, "t", as the file of a rank has it. */
struct part {
    int32_t file;
    int64_t shape[2];
    int64_t rows;
    int64_t cols;
    int64_t first_row;
    int64_t first_col;
    int64_t first;
    int64_t elems;
};

/* A bit for each file whose part has a moment too. */
static unsigned moments;

static void write_file(const struct grid_shape *layout, int32_t rank, const struct part *part)
{
    static const float values[VALUES];
    char name[SHARD_NAME_BYTES];
    char place[256];
    const struct safetensors_note note = {.key = "t", .value = place};
    struct safetensors_entry entries[2] = {{.name = "t.main", .dims = 1, .data = values},
                                           {.name = "t.moment1", .dims = 1, .data = values}};
    int count = part == NULL ? 0 : 1 + (int)(moments >> rank & 1U);

    manifest_shard_name(layout, rank, name);
    if (part != NULL) {
        assert_true(part->elems <= VALUES);
        for (int i = 0; i < count; i++) {
            entries[i].shape[0] = part->elems;
            entries[i].bytes = (size_t)part->elems * sizeof(float);
        }
        (void)snprintf(
            place, sizeof(place),
            "{\"shape\": [%lld, %lld], \"rows\": %lld, \"cols\": %lld, \"blocks\": 1, "
            "\"first_row\": %lld, \"first_col\": %lld, \"first\": %lld, \"elems\": %lld}",
            (long long)part->shape[0], (long long)part->shape[1], (long long)part->rows,
            (long long)part->cols, (long long)part->first_row, (long long)part->first_col,
            (long long)part->first, (long long)part->elems);
    }
    assert_int_equal(safetensors_write(checkpoint_folder_path(name), entries, (size_t)count, &note,
                                       part != NULL ? 1 : 0),
                     STATUS_OK);
}

/* Writes the files of all ranks, at most one part in each, and joins them. */
static enum status join(const struct grid_shape *layout, const struct part *parts, size_t count,
                        struct contents *contents)
{
    const struct manifest manifest = {.layout = *layout};

    for (int32_t rank = 0; rank < manifest_files(&manifest); rank++) {
        const struct part *own = NULL;

        for (size_t i = 0; i < count; i++) {
            own = parts[i].file == rank ? &parts[i] : own;
        }
        write_file(layout, rank, own);
    }
    return contents_read(checkpoint_folder(), &manifest, false, contents);
}

#define COUNT(parts) (sizeof(parts) / sizeof((parts)[0]))

static void assert_refused(const struct grid_shape *layout, const struct part *parts, size_t count,
                           const char *words)
{
    struct contents contents;

    assert_int_equal(join(layout, parts, count, &contents), STATUS_ERR_REFUSED);
    assert_null(contents.tensors);
    if (strstr(status_last()->message, words) == NULL ||
        strstr(status_last()->message, "tensor t") == NULL) {
        fail_msg("expected \"%s\" in: %s", words, status_last()->message);
    }
}

static void assert_whole(const struct grid_shape *layout, const struct part *parts, size_t count,
                         int32_t different)
{
    struct contents contents;

    if (join(layout, parts, count, &contents) != STATUS_OK) {
        fail_msg("%s", status_last()->message);
    }
    assert_int_equal(contents.count, 1);
    assert_string_equal(contents.tensors[0].name, "t");
    assert_int_equal(contents.tensors[0].rows, parts[0].shape[0]);
    assert_int_equal(contents.tensors[0].cols, parts[0].shape[1]);
    assert_int_equal(contents.tensors[0].parts, different);
    contents_release(&contents);
}

static const struct grid_shape replicas = {.pp = 1, .tp = 1, .dp = 2};
static const struct grid_shape shards = {.pp = 1, .tp = 2, .dp = 1};

static void slices_of_replicas_follow_one_another(void **state)
{
    const struct part parts[] = {{0, {1, 12}, 1, 12, 0, 0, 0, 7}, {1, {1, 12}, 1, 12, 0, 0, 7, 5}};
    const struct part one[] = {{1, {1, 12}, 1, 12, 0, 0, 0, 12}};

    (void)state;
    assert_whole(&replicas, parts, COUNT(parts), 2);
    assert_whole(&replicas, one, COUNT(one), 1);
}

static void shards_lie_beside_one_another(void **state)
{
    const struct part columns[] = {{0, {3, 8}, 3, 4, 0, 0, 0, 12}, {1, {3, 8}, 3, 4, 0, 4, 0, 12}};
    const struct part rows[] = {{0, {4, 3}, 2, 3, 0, 0, 0, 6}, {1, {4, 3}, 2, 3, 2, 0, 0, 6}};

    (void)state;
    assert_whole(&shards, columns, COUNT(columns), 2);
    assert_whole(&shards, rows, COUNT(rows), 2);
}

/* Each shard needs it, and it counts once. */
static void what_shards_have_in_common_is_in_the_files_of_each(void **state)
{
    const struct part parts[] = {{0, {1, 6}, 1, 6, 0, 0, 0, 6}, {1, {1, 6}, 1, 6, 0, 0, 0, 6}};

    (void)state;
    assert_whole(&shards, parts, COUNT(parts), 1);
    assert_refused(&shards, parts, 1, "it is not in the files of every shard");
}

/* Whoever loads reads the files of one stage, and moments of all that it has. */
static void parts_of_one_tensor_are_alike_and_of_one_stage(void **state)
{
    static const struct grid_shape stages = {.pp = 2, .tp = 1, .dp = 1};
    const struct part parts[] = {{0, {1, 12}, 1, 12, 0, 0, 0, 6}, {1, {1, 12}, 1, 12, 0, 0, 6, 6}};
    const struct part rows[] = {{0, {4, 3}, 2, 3, 0, 0, 0, 6}, {1, {4, 3}, 2, 3, 2, 0, 0, 6}};

    (void)state;
    moments = 3;
    assert_whole(&replicas, parts, COUNT(parts), 2);
    assert_whole(&shards, rows, COUNT(rows), 2);
    assert_refused(&stages, parts, COUNT(parts), "in the files of several stages");
    assert_refused(&stages, rows, COUNT(rows), "in the files of several stages");
    moments = 1;
    assert_refused(&replicas, parts, COUNT(parts), "different shapes or moments");
    assert_refused(&shards, rows, COUNT(rows), "different shapes or moments");
    moments = 0;
}

/* The sizes of the parts add up to the whole, in each. */
static void holes_beside_overlaps_are_found(void **state)
{
    const struct part slices[] = {{0, {1, 12}, 1, 12, 0, 0, 0, 6}, {1, {1, 12}, 1, 12, 0, 0, 4, 6}};
    const struct part columns[] = {{0, {3, 8}, 3, 4, 0, 0, 0, 12}, {1, {3, 8}, 3, 4, 0, 2, 0, 12}};
    const struct part rows[] = {{0, {4, 3}, 2, 3, 0, 0, 0, 6}, {1, {4, 3}, 2, 3, 1, 0, 0, 6}};

    (void)state;
    assert_refused(&replicas, slices, COUNT(slices),
                   "0 to 11, 4 to 5 are in shard-pp0-tp0-dp0.safetensors and again in "
                   "shard-pp0-tp0-dp1.safetensors");
    assert_refused(&shards, columns, COUNT(columns),
                   "0 to 23, 2 to 3 are in shard-pp0-tp0-dp0.safetensors and again in "
                   "shard-pp0-tp1-dp0.safetensors");
    assert_refused(&shards, rows, COUNT(rows),
                   "0 to 11, 3 to 5 are in shard-pp0-tp0-dp0.safetensors and again in "
                   "shard-pp0-tp1-dp0.safetensors");
}

static void a_missing_end_or_shard_is_found(void **state)
{
    const struct part slices[] = {{0, {1, 12}, 1, 12, 0, 0, 0, 7}, {1, {1, 12}, 1, 12, 0, 0, 8, 4}};
    const struct part columns[] = {{0, {3, 8}, 3, 4, 0, 0, 0, 12}, {1, {3, 8}, 3, 4, 0, 4, 0, 11}};

    (void)state;
    assert_refused(&replicas, slices, COUNT(slices), "7 to 7 are in no file; shard-pp0-tp0-dp0");
    assert_refused(&replicas, slices, 1, "7 to 11 are in no file; shard-pp0-tp0-dp0");
    assert_refused(&shards, columns, COUNT(columns),
                   "shard 1: of its elements 0 to 11, 11 to 11 are in no file");
    assert_refused(&shards, columns, 1, "0 to 23, 4 to 7 are in no file");
}

/* Whoever loads reads the files of all replicas of one stage: each element once. */
static void what_is_twice_in_the_files_of_a_shard_is_refused(void **state)
{
    const struct grid_shape stages = {.pp = 2, .tp = 1, .dp = 1};
    const struct part parts[] = {{0, {1, 6}, 1, 6, 0, 0, 0, 6}, {1, {1, 6}, 1, 6, 0, 0, 0, 6}};

    (void)state;
    assert_refused(&replicas, parts, COUNT(parts),
                   "0 to 5 are in shard-pp0-tp0-dp0.safetensors and again in "
                   "shard-pp0-tp0-dp1.safetensors");
    assert_refused(&stages, parts, COUNT(parts), "in the files of several stages");
}

static void parts_of_different_shapes_are_refused(void **state)
{
    const struct part parts[] = {{0, {1, 12}, 1, 6, 0, 0, 0, 6}, {1, {1, 13}, 1, 6, 0, 6, 0, 6}};

    (void)state;
    assert_refused(&shards, parts, COUNT(parts), "different shapes");
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(slices_of_replicas_follow_one_another),
        FOLDER(shards_lie_beside_one_another),
        FOLDER(what_shards_have_in_common_is_in_the_files_of_each),
        FOLDER(parts_of_one_tensor_are_alike_and_of_one_stage),
        FOLDER(holes_beside_overlaps_are_found),
        FOLDER(a_missing_end_or_shard_is_found),
        FOLDER(what_is_twice_in_the_files_of_a_shard_is_refused),
        FOLDER(parts_of_different_shapes_are_refused),
    };

    return cmocka_run_group_tests_name("contents", tests, NULL, NULL);
}
