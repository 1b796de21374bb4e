/* The file of one rank: what is in it and where it lies in the whole, read without the reader too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "stages/checkpoint/shard.h"
#include "stages/checkpoint/sum.h"
#include "tests/stages/checkpoint_folder.h"

#define FILE_NAME "one.safetensors"

/* Shard 1 of 2 of a matrix of 2 x 12 in 3 blocks: columns 2,3 · 6,7 · 10,11; a slice of 5 elements from the
 * third on. And a vector of 3 that is whole and not sliced. */
static struct params make_params(int moments)
{
    struct params params;
    struct param matrix = {
        .name = "h.0.attn.c_attn.weight",
        .rows = 2,
        .cols = 6,
        .sharded = true,
        .shard = {.whole_rows = 2, .whole_cols = 12, .first_col = 2, .blocks = 3},
    };
    struct param vector = {.name = "h.0.ln_1.bias", .rows = 1, .cols = 3, .fp32 = true};

    params_init(&params, DTYPE_FP32, moments);
    param_slice(&matrix, 0, 0);
    assert_int_equal(params_add(&params, &matrix), STATUS_OK);
    assert_int_equal(params_add(&params, &vector), STATUS_OK);
    param_slice(&params.table[0], 2, 5);
    params_measure(&params);
    assert_int_equal(params_place(&params), STATUS_OK);
    for (int32_t i = 0; i < params.count; i++) {
        struct param *param = &params.table[i];

        for (size_t e = 0; e < param->elems; e++) {
            float value = (float)(100 * (i + 1)) + (float)e;

            assert_int_equal(param_put(param, e, 1, &value), STATUS_OK);
        }
        for (size_t e = 0; e < param->own_elems; e++) {
            param->moment1[e] = (float)(1000 * (i + 1)) + (float)e;
            if (moments == 2) {
                param->moment2[e] = 0x1p-140F * (float)(e + 1);
            }
        }
    }
    return params;
}

static void write_shard(const struct params *params, int32_t replica, struct manifest_sum *sum)
{
    const struct shard_writing writing = {
        .path = checkpoint_folder_path(FILE_NAME),
        .params = params,
        .replica = replica,
    };

    assert_int_equal(shard_write(&writing, sum), STATUS_OK);
}

static void a_shard_holds_what_its_rank_owns_exactly(void **state)
{
    struct params params = make_params(2);
    struct manifest_sum sum;
    struct shard *shard = NULL;
    const struct shard_tensor *tensor = NULL;

    (void)state;
    write_shard(&params, 0, &sum);
    params_release(&params);
    assert_int_equal(shard_open(checkpoint_folder_path(FILE_NAME), &sum, NULL, &shard), STATUS_OK);
    assert_int_equal(shard_count(shard), 2);
    tensor = shard_find(shard, "h.0.attn.c_attn.weight");
    assert_non_null(tensor);
    assert_true(tensor->rows == 2 && tensor->cols == 6 && tensor->first == 2 && tensor->elems == 5);
    assert_true(tensor->place.whole_rows == 2 && tensor->place.whole_cols == 12 &&
                tensor->place.first_row == 0 && tensor->place.first_col == 2 &&
                tensor->place.blocks == 3);
    for (size_t e = 0; e < 5; e++) {
        assert_true(tensor->main[e] == 102.0F + (float)e);
        assert_true(tensor->moment1[e] == 1000.0F + (float)e);
        assert_true(tensor->moment2[e] == 0x1p-140F * (float)(e + 1));
    }
    tensor = shard_find(shard, "h.0.ln_1.bias");
    assert_non_null(tensor);
    assert_true(tensor->rows == 1 && tensor->cols == 3 && tensor->first == 0 && tensor->elems == 3);
    assert_true(tensor->main[2] == 202.0F && tensor->moment1[0] == 2000.0F);
    assert_null(shard_find(shard, "h.0.ln_1"));
    shard_close(&shard);
    assert_null(shard);
}

/* With nothing of the reader: the names and the places are in the file as its page says. */
static void the_file_is_safetensors_with_places_in_its_metadata(void **state)
{
    struct params params = make_params(2);
    struct manifest_sum sum;
    struct safetensors *file = NULL;
    const struct safetensors_entry *entry = NULL;

    (void)state;
    write_shard(&params, 0, &sum);
    params_release(&params);
    assert_int_equal(safetensors_open(checkpoint_folder_path(FILE_NAME), &file), STATUS_OK);
    assert_int_equal(safetensors_count(file), 6);
    entry = safetensors_find(file, "h.0.attn.c_attn.weight.moment1");
    assert_non_null(entry);
    assert_int_equal(entry->dtype, SAFETENSORS_F32);
    assert_true(entry->dims == 1 && entry->shape[0] == 5);
    assert_string_equal(safetensors_metadata(file, "h.0.attn.c_attn.weight"),
                        "{\"shape\": [2, 12], \"rows\": 2, \"cols\": 6, \"blocks\": 3, "
                        "\"first_row\": 0, \"first_col\": 2, \"first\": 2, \"elems\": 5}");
    safetensors_close(&file);
}

static void what_is_not_sliced_is_written_by_the_first_replica_alone(void **state)
{
    struct params params = make_params(1);
    struct manifest_sum sum;
    struct shard *shard = NULL;

    (void)state;
    write_shard(&params, 1, &sum);
    params_release(&params);
    assert_int_equal(shard_open(checkpoint_folder_path(FILE_NAME), &sum, NULL, &shard), STATUS_OK);
    assert_int_equal(shard_count(shard), 1);
    assert_string_equal(shard_at(shard, 0)->name, "h.0.attn.c_attn.weight");
    assert_null(shard_at(shard, 0)->moment2);
    shard_close(&shard);
}

static void a_rank_that_owns_nothing_writes_a_file_too(void **state)
{
    struct params params = {.count = 0};
    struct manifest_sum sum;
    struct shard *shard = NULL;

    (void)state;
    write_shard(&params, 0, &sum);
    assert_int_equal(shard_open(checkpoint_folder_path(FILE_NAME), &sum, NULL, &shard), STATUS_OK);
    assert_int_equal(shard_count(shard), 0);
    shard_close(&shard);
}

/* The sum that is made while the file is written is that of the file. */
static void a_changed_byte_or_length_is_refused_with_both_values(void **state)
{
    struct params params = make_params(2);
    struct manifest_sum sum;
    struct manifest_sum longer;
    struct shard *shard = NULL;
    char *bytes = NULL;
    size_t count = 0;
    char digits[20];

    (void)state;
    write_shard(&params, 0, &sum);
    params_release(&params);
    assert_int_equal(file_read(checkpoint_folder_path(FILE_NAME), 1 << 16, &bytes, &count),
                     STATUS_OK);
    assert_true(count == sum.bytes && sum_of(bytes, count) == sum.xxh3);
    free(bytes);
    for (long at = 1; at < (long)count; at += 61) {
        checkpoint_folder_damage(FILE_NAME, at);
        assert_int_equal(shard_open(checkpoint_folder_path(FILE_NAME), &sum, NULL, &shard),
                         STATUS_ERR_REFUSED);
        (void)snprintf(digits, sizeof(digits), "%016llx", (unsigned long long)sum.xxh3);
        assert_non_null(strstr(status_last()->message, digits));
        assert_non_null(strstr(status_last()->message, FILE_NAME));
        checkpoint_folder_damage(FILE_NAME, at);
    }
    longer = (struct manifest_sum){.bytes = sum.bytes + 1, .xxh3 = sum.xxh3};
    assert_int_equal(shard_open(checkpoint_folder_path(FILE_NAME), &longer, NULL, &shard),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "bytes"));
    assert_int_equal(shard_open(checkpoint_folder_path("none"), &sum, NULL, &shard),
                     STATUS_ERR_REFUSED);
    assert_null(shard);
}

static void count_piece(void *context)
{
    (*(int *)context)++;
}

/* 2.5 MiB of one tensor with two moments: three pieces each, one for the header, one for the last sync. */
static void each_piece_is_told_to_who_watches(void **state)
{
    struct params params;
    struct param vector = {.name = "wte.weight", .rows = 1, .cols = 5 << 17};
    struct manifest_sum sum;
    struct shard *shard = NULL;
    int pieces = 0;
    const struct piece_watch watch = {.moved = count_piece, .context = &pieces};
    const struct shard_writing writing = {
        .path = checkpoint_folder_path(FILE_NAME), .params = &params, .watch = &watch};

    (void)state;
    params_init(&params, DTYPE_FP32, 2);
    assert_int_equal(params_add(&params, &vector), STATUS_OK);
    params_measure(&params);
    assert_int_equal(params_place(&params), STATUS_OK);
    assert_int_equal(shard_write(&writing, &sum), STATUS_OK);
    params_release(&params);
    assert_int_equal(pieces, 3 * 3 + 1 + 1);
    assert_true(sum.bytes > 15 << 19 && sum.bytes < 16 << 19);
    pieces = 0;
    assert_int_equal(shard_open(checkpoint_folder_path(FILE_NAME), &sum, &watch, &shard),
                     STATUS_OK);
    shard_close(&shard);
    /* The file as a whole: 7.5 MiB and a header. */
    assert_int_equal(pieces, 8);
    assert_int_equal(shard_open_unsummed(checkpoint_folder_path(FILE_NAME), &shard), STATUS_OK);
    shard_close(&shard);
}

/* A file of one tensor with this place in the metadata. */
static void write_place(const char *place, const char *entry_name)
{
    static const float values[8];
    const struct safetensors_note note = {.key = "a", .value = place};
    struct safetensors_entry entry = {
        .dtype = SAFETENSORS_F32,
        .dims = 1,
        .shape = {4},
        .bytes = 4 * sizeof(float),
        .data = values,
    };

    (void)snprintf(entry.name, sizeof(entry.name), "%s", entry_name);
    assert_int_equal(safetensors_write(checkpoint_folder_path(FILE_NAME), &entry, 1, &note, 1),
                     STATUS_OK);
}

#define PLACE(shape, rest) "{\"shape\": " shape ", \"first\": 0, \"elems\": 4, " rest "}"
#define PART(rows, cols, blocks, row, col)                                                \
    "\"rows\": " rows ", \"cols\": " cols ", \"blocks\": " blocks ", \"first_row\": " row \
    ", \"first_col\": " col

/* Whatever a file says, nothing outside of it is read. */
static void places_that_cannot_be_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{",
        PLACE("[2, 2, 2]", PART("2", "2", "1", "0", "0")),
        PLACE("[2, 0]", PART("2", "2", "1", "0", "0")),
        PLACE("[2, 1]", PART("2", "2", "1", "0", "0")),
        PLACE("[2, 2]", PART("2", "2", "0", "0", "0")),
        PLACE("[2, 2]", PART("2", "2", "3", "0", "0")),
        PLACE("[2, 2]", PART("2", "2", "1", "1", "0")),
        PLACE("[2, 2]", PART("2", "2", "1", "0", "1")),
        PLACE("[2, 4]", PART("2", "2", "2", "0", "2")),
        PLACE("[2, 2]", PART("2", "2", "1", "-1", "0")),
        PLACE("[2, 2]", PART("1", "2", "1", "0", "0")),
        PLACE("[9223372036854775807, 2]", PART("9223372036854775807", "2", "1", "0", "0")),
        "{\"shape\": [2, 2], \"first\": 1, \"elems\": 4, " PART("2", "2", "1", "0", "0") "}",
        "{\"shape\": [9, 2], \"first\": 0, \"elems\": 5, " PART("9", "2", "1", "0", "0") "}",
        "{\"shape\": [2, 2], \"first\": 9223372036854775807, \"elems\": 4, " PART("2", "2", "1",
                                                                                  "0", "0") "}",
    };
    struct shard *shard = NULL;

    (void)state;
    write_place(PLACE("[2, 2]", PART("2", "2", "1", "0", "0")), "a.main");
    assert_int_equal(shard_open_unsummed(checkpoint_folder_path(FILE_NAME), &shard), STATUS_OK);
    shard_close(&shard);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        write_place(wrong[i], "a.main");
        if (shard_open_unsummed(checkpoint_folder_path(FILE_NAME), &shard) != STATUS_ERR_REFUSED) {
            fail_msg("taken: %s", wrong[i]);
        }
        assert_non_null(strstr(status_last()->message, "tensor a"));
    }
    write_place(PLACE("[2, 2]", PART("2", "2", "1", "0", "0")), "a.weight");
    assert_int_equal(shard_open_unsummed(checkpoint_folder_path(FILE_NAME), &shard),
                     STATUS_ERR_REFUSED);
    write_place(PLACE("[2, 2]", PART("2", "2", "1", "0", "0")), "b.main");
    assert_int_equal(shard_open_unsummed(checkpoint_folder_path(FILE_NAME), &shard),
                     STATUS_ERR_REFUSED);
    assert_null(shard);
}

#ifdef WEIR_FAULTS
static void a_full_disk_leaves_no_file_and_says_so(void **state)
{
    struct params params = make_params(2);
    struct manifest_sum sum;
    const struct fault fault = {.kind = FAULT_FULL, .rank = 3, .step = 7, .saving = true};
    struct fault_writing writing_fault = {.fault = &fault, .rank = 3, .step = 7};
    const struct shard_writing writing = {
        .path = checkpoint_folder_path(FILE_NAME),
        .params = &params,
        .fault = &writing_fault,
    };

    (void)state;
    assert_int_equal(shard_write(&writing, &sum), STATUS_ERR_IO);
    assert_non_null(strstr(status_last()->message, FILE_NAME));
    assert_non_null(strstr(status_last()->message, "No space left"));
    assert_int_equal(rmdir(checkpoint_folder()), 0); /* nothing is in it */
    assert_int_equal(checkpoint_folder_make(NULL), 0);
    /* Another step's, and another rank's. */
    writing_fault.step = 8;
    assert_int_equal(shard_write(&(struct shard_writing){.path = checkpoint_folder_path(FILE_NAME),
                                                         .params = &params,
                                                         .fault = &writing_fault},
                                 &sum),
                     STATUS_OK);
    params_release(&params);
}
#endif

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(a_shard_holds_what_its_rank_owns_exactly),
        FOLDER(the_file_is_safetensors_with_places_in_its_metadata),
        FOLDER(what_is_not_sliced_is_written_by_the_first_replica_alone),
        FOLDER(a_rank_that_owns_nothing_writes_a_file_too),
        FOLDER(each_piece_is_told_to_who_watches),
        FOLDER(a_changed_byte_or_length_is_refused_with_both_values),
        FOLDER(places_that_cannot_be_are_refused),
#ifdef WEIR_FAULTS
        FOLDER(a_full_disk_leaves_no_file_and_says_so),
#endif
    };

    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
