/* What the writer leaves on disk, byte by byte, and what it refuses to write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/checkpoint/safetensors.h"

static char path[64];

static int make_path(void **state)
{
    int descriptor = -1;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/weir-writer-XXXXXX");
    descriptor = mkstemp(path);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static size_t read_file(unsigned char *bytes, size_t most)
{
    FILE *file = fopen(path, "r");
    size_t count = 0;

    assert_non_null(file);
    count = fread(bytes, 1, most, file);
    assert_int_equal(fclose(file), 0);
    return count;
}

static const float floats[2] = {1.0F, -2.0F};
static const int32_t ids[3] = {5, -6, 70000};
static const double doubles[1] = {0.25};

static struct safetensors_entry entry_of(const char *name, enum safetensors_dtype dtype,
                                         int64_t elements, size_t bytes, const void *data)
{
    struct safetensors_entry entry = {
        .dtype = dtype, .dims = 1, .shape = {elements}, .bytes = bytes, .data = data};

    (void)snprintf(entry.name, sizeof(entry.name), "%s", name);
    return entry;
}

/* Wide elements first, then names; the header a multiple of 8 bytes; data without gaps. */
static void the_file_is_the_format_byte_by_byte(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"7\"},"
        "\"z\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
        "\"b\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[16,28]}}";
    const struct safetensors_entry entries[3] = {
        entry_of("b", SAFETENSORS_I32, 3, sizeof(ids), ids),
        entry_of("z", SAFETENSORS_F64, 1, sizeof(doubles), doubles),
        entry_of("a", SAFETENSORS_F32, 2, sizeof(floats), floats)};
    const struct safetensors_note note = {.key = "step", .value = "7"};
    unsigned char bytes[1024];
    size_t padded = (sizeof(header) - 1 + 7) / 8 * 8;
    size_t at = 8;

    (void)state;
    assert_int_equal(safetensors_write(path, entries, 3, &note, 1), STATUS_OK);
    assert_int_equal(read_file(bytes, sizeof(bytes)), 8 + padded + 28);
    assert_int_equal(bytes[0] + 256 * bytes[1], padded);
    for (int i = 2; i < 8; i++) {
        assert_int_equal(bytes[i], 0);
    }
    assert_memory_equal(bytes + at, header, sizeof(header) - 1);
    for (at += sizeof(header) - 1; at < 8 + padded; at++) {
        assert_int_equal(bytes[at], ' ');
    }
    assert_memory_equal(bytes + at, doubles, 8);
    assert_memory_equal(bytes + at + 8, floats, 8);
    assert_memory_equal(bytes + at + 16, ids, 12);
}

static void scalars_and_empty_tensors_are_read_back(void **state)
{
    struct safetensors_entry entries[2] = {
        entry_of("empty", SAFETENSORS_F32, 0, 0, NULL),
        entry_of("scalar", SAFETENSORS_F64, 1, sizeof(doubles), doubles)};
    const struct safetensors_entry *found = NULL;
    struct safetensors *file = NULL;

    (void)state;
    entries[1].dims = 0;
    assert_int_equal(safetensors_write(path, entries, 2, NULL, 0), STATUS_OK);
    assert_int_equal(safetensors_open(path, &file), STATUS_OK);
    found = safetensors_find(file, "empty");
    assert_non_null(found);
    assert_true(found->bytes == 0 && found->dims == 1 && found->shape[0] == 0);
    found = safetensors_find(file, "scalar");
    assert_non_null(found);
    assert_true(found->dims == 0 && found->bytes == 8 && found->dtype == SAFETENSORS_F64);
    assert_memory_equal(found->data, doubles, 8);
    safetensors_close(&file);
    assert_null(file);
}

static void no_tensors_at_all_are_a_file_too(void **state)
{
    struct safetensors *file = NULL;

    (void)state;
    assert_int_equal(safetensors_write(path, NULL, 0, NULL, 0), STATUS_OK);
    assert_int_equal(safetensors_open(path, &file), STATUS_OK);
    assert_int_equal(safetensors_count(file), 0);
    assert_null(safetensors_at(file, 0));
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    assert_null(safetensors_metadata(file, "step"));
    safetensors_close(&file);
}

static void assert_invalid(const struct safetensors_entry *entries, size_t count,
                           const struct safetensors_note *note, const char *word)
{
    unsigned char before[1024];
    unsigned char after[1024];
    size_t bytes = read_file(before, sizeof(before));

    assert_int_equal(safetensors_write(path, entries, count, note, note != NULL ? 1 : 0),
                     STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, path));
    assert_non_null(strstr(status_last()->message, word));
    assert_int_equal(read_file(after, sizeof(after)), bytes);
    assert_memory_equal(before, after, bytes);
}

static void what_is_no_tensor_is_refused_and_the_old_file_stays(void **state)
{
    const struct safetensors_entry good = entry_of("a", SAFETENSORS_F32, 2, 8, floats);
    struct safetensors_entry pair[2] = {good, good};
    const struct safetensors_note format = {.key = "format", .value = "np"};
    const struct safetensors_note latin = {.key = "note", .value = "\xe9t\xe9"};

    (void)state;
    assert_int_equal(safetensors_write(path, &good, 1, NULL, 0), STATUS_OK);
    assert_invalid(pair, 2, NULL, "given twice");
    pair[1] = entry_of("b", SAFETENSORS_F32, 3, 8, floats);
    assert_invalid(pair, 2, NULL, "tensor b");
    pair[1] = entry_of("b", SAFETENSORS_F32, -1, 8, floats);
    assert_invalid(pair, 2, NULL, "tensor b");
    pair[1] = entry_of("b", SAFETENSORS_F32, INT64_MAX, 8, floats);
    assert_invalid(pair, 2, NULL, "tensor b");
    pair[1] = entry_of("b", SAFETENSORS_OTHER, 2, 8, floats);
    assert_invalid(pair, 2, NULL, "tensor b");
    pair[1] = entry_of("b", SAFETENSORS_F32, 2, 8, NULL);
    assert_invalid(pair, 2, NULL, "tensor b");
    pair[1] = entry_of("__metadata__", SAFETENSORS_F32, 2, 8, floats);
    assert_invalid(pair, 2, NULL, "__metadata__");
    pair[1] = entry_of("\xe9", SAFETENSORS_F32, 2, 8, floats);
    assert_invalid(pair, 2, NULL, "UTF-8");
    assert_invalid(&good, 1, &format, "format is given twice");
    assert_invalid(&good, 1, &latin, "UTF-8");
}

/* The oracle's file was written by another writer. */
static void a_foreign_file_reads_by_name_and_in_order(void **state)
{
    struct safetensors *file = NULL;
    const struct safetensors_entry *entry = NULL;

    (void)state;
    assert_int_equal(safetensors_open(TEST_REFERENCE_DIR "/gpt2_a.safetensors", &file), STATUS_OK);
    assert_int_equal(safetensors_count(file), 161);
    for (size_t i = 1; i < safetensors_count(file); i++) {
        assert_true(strcmp(safetensors_at(file, i - 1)->name, safetensors_at(file, i)->name) < 0);
        assert_ptr_equal(safetensors_find(file, safetensors_at(file, i)->name),
                         safetensors_at(file, i));
    }
    entry = safetensors_find(file, "tokens");
    assert_non_null(entry);
    assert_true(entry->dtype == SAFETENSORS_I32 && entry->dims == 3);
    assert_true(entry->shape[0] == 10 && entry->shape[1] == 8 && entry->shape[2] == 33);
    assert_string_equal(safetensors_metadata(file, "lr"), "0.006");
    assert_string_equal(safetensors_metadata(file, "masked"), "False");
    safetensors_close(&file);
}

/* Put together from its layout by hand, a file is the one that is written at once. */
static void a_layout_says_where_each_tensor_lies(void **state)
{
    const struct safetensors_entry entries[3] = {
        entry_of("b", SAFETENSORS_I32, 3, sizeof(ids), NULL),
        entry_of("z", SAFETENSORS_F64, 1, sizeof(doubles), NULL),
        entry_of("a", SAFETENSORS_F32, 2, sizeof(floats), NULL)};
    const struct safetensors_entry other[3] = {
        entry_of("a", SAFETENSORS_F32, 2, sizeof(floats), floats),
        entry_of("b", SAFETENSORS_I32, 3, sizeof(ids), ids),
        entry_of("z", SAFETENSORS_F64, 1, sizeof(doubles), doubles)};
    struct safetensors_layout layout;
    unsigned char bytes[1024];
    unsigned char written[1024];

    (void)state;
    assert_int_equal(safetensors_layout_make(path, entries, 3, NULL, 0, &layout), STATUS_OK);
    assert_int_equal(layout.file_bytes, layout.header_bytes + 28);
    assert_true(layout.file_bytes <= sizeof(bytes));
    memcpy(bytes, layout.header, layout.header_bytes);
    memcpy(bytes + layout.at[0], ids, sizeof(ids));
    memcpy(bytes + layout.at[1], doubles, sizeof(doubles));
    memcpy(bytes + layout.at[2], floats, sizeof(floats));
    assert_int_equal(safetensors_write(path, other, 3, NULL, 0), STATUS_OK);
    assert_int_equal(read_file(written, sizeof(written)), layout.file_bytes);
    assert_memory_equal(bytes, written, layout.file_bytes);
    safetensors_layout_release(&layout);
    safetensors_layout_release(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_the_format_byte_by_byte),
        cmocka_unit_test(a_layout_says_where_each_tensor_lies),
        cmocka_unit_test(scalars_and_empty_tensors_are_read_back),
        cmocka_unit_test(no_tensors_at_all_are_a_file_too),
        cmocka_unit_test(what_is_no_tensor_is_refused_and_the_old_file_stays),
        cmocka_unit_test(a_foreign_file_reads_by_name_and_in_order),
    };

    return cmocka_run_group_tests_name("safetensors_write", tests, make_path, remove_path);
}
