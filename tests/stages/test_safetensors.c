/* H38: a file's header is not trusted for anything. */
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

#define FILE_BYTES 65536

static char path[64];

static int make_path(void **state)
{
    int descriptor = -1;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/weir-safetensors-XXXXXX");
    descriptor = mkstemp(path);
    return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_bytes(const void *bytes, size_t count)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Header length, header, and `data_bytes` of zeros. */
static void write_file(const char *header, size_t data_bytes)
{
    static unsigned char bytes[FILE_BYTES];
    uint64_t length = strlen(header);

    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, &length, sizeof(length));
    for (uint64_t i = 0; i < length; i++) {
        bytes[8 + i] = (unsigned char)header[i];
    }
    write_bytes(bytes, 8 + length + data_bytes);
}

static void assert_refused(const char *what)
{
    struct safetensors *file = NULL;
    enum status status = safetensors_open(path, &file);

    if (status != STATUS_ERR_REFUSED && status != STATUS_ERR_FORMAT) {
        safetensors_close(&file);
        fail_msg("%s: expected a refusal, got %s", what, status_name(status));
    }
    assert_null(file);
    assert_non_null(strstr(status_last()->message, path));
}

static void test_headers_that_lie_are_refused_with_the_file(void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],"
         "\"data_offsets\":[0,4]}}",
         4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
         12},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4},
        {"{\"a\":[1,2]}", 0},
        {" {}", 0},
        {"[]", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", 4},
        {"{\"__metadata__\":{\"a\":1}}", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_file(cases[i].header, cases[i].data_bytes);
        assert_refused(cases[i].header);
    }
}

/* A refusal names the tensor and the cause, so that the file can be mended. */
static void test_a_refusal_names_tensor_and_cause(void **state)
{
    static const struct {
        const char *tensor;
        size_t data_bytes;
        const char *words;
    } cases[] = {
        {"\"F32\",\"shape\":[1],\"data_offsets\":[8,4]", 8, "data_offsets [8, 4]"},
        {"\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]", 4, "expected 4000000 bytes"},
        {"\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]", 4, "shape asks"},
        {"\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]", 4, "integers from 0"},
        {"\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]", 4, "integers from 0"},
        {"\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]", 4, "8 dimensions"},
        {"\"F32\",\"shape\":[1],\"data_offsets\":[4,8]", 8, "a hole"},
        {"\"F32\",\"shape\":[1],\"data_offsets\":[0]", 4, "data_offsets [begin, end]"},
        {"\"F99\",\"shape\":[1],\"data_offsets\":[0,4]", 4, "found F99"},
        {"7,\"shape\":[1],\"data_offsets\":[0,4]", 4, "found none"},
        {"\"F4\",\"shape\":[3],\"data_offsets\":[0,2]", 2, "whole bytes"},
        {"\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1", 4, "exactly dtype"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char header[256];

        (void)snprintf(header, sizeof(header), "{\"the.tensor\":{\"dtype\":%s}}", cases[i].tensor);
        write_file(header, cases[i].data_bytes);
        assert_refused(header);
        assert_non_null(strstr(status_last()->message, "tensor the.tensor: "));
        assert_non_null(strstr(status_last()->message, cases[i].words));
    }
}

static void test_lengths_that_lie_are_refused(void **state)
{
    static const unsigned char all[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    static const unsigned char longer[10] = {200, 0, 0, 0, 0, 0, 0, 0, '{', '}'};

    (void)state;
    write_bytes(all, 8);
    assert_refused("length of eight times 255");
    write_bytes(longer, 10);
    assert_refused("length beyond the file");
    write_bytes("12345", 5);
    assert_refused("five bytes");
    write_bytes("", 0);
    assert_refused("no bytes");
    write_bytes("PK\003\004 an archive with another name, long enough to be read", 56);
    assert_refused("an archive");
}

static void test_a_header_of_a_thousand_brackets_is_refused(void **state)
{
    static char header[4096];

    (void)state;
    (void)snprintf(header, sizeof(header), "{\"a\":");
    memset(header + 5, '[', 2000);
    write_file(header, 0);
    assert_refused("deep brackets");
}

static void test_what_is_written_is_read_back(void **state)
{
    static const float weights[6] = {1.0F, -2.0F, 3.5F, 0.0F, 1e-30F, 7.0F};
    static const int32_t ids[3] = {5, -6, 70000};
    const struct safetensors_entry entries[2] = {
        {.name = "b.weight",
         .dtype = SAFETENSORS_F32,
         .dims = 2,
         .shape = {2, 3},
         .bytes = sizeof(weights),
         .data = weights},
        {.name = "a.ids",
         .dtype = SAFETENSORS_I32,
         .dims = 1,
         .shape = {3},
         .bytes = sizeof(ids),
         .data = ids},
    };
    const struct safetensors_note note = {.key = "step", .value = "7 \"quoted\""};
    struct safetensors *file = NULL;
    const struct safetensors_entry *entry = NULL;

    (void)state;
    assert_int_equal(safetensors_write(path, entries, 2, &note, 1), STATUS_OK);
    assert_int_equal(safetensors_open(path, &file), STATUS_OK);
    assert_int_equal(safetensors_count(file), 2);
    entry = safetensors_find(file, "b.weight");
    assert_non_null(entry);
    assert_true(entry->dims == 2 && entry->shape[0] == 2 && entry->shape[1] == 3);
    assert_memory_equal(entry->data, weights, sizeof(weights));
    entry = safetensors_find(file, "a.ids");
    assert_non_null(entry);
    assert_memory_equal(entry->data, ids, sizeof(ids));
    assert_string_equal(safetensors_metadata(file, "step"), "7 \"quoted\"");
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    assert_null(safetensors_find(file, "c"));
    safetensors_close(&file);
}

/* Any change of one byte is read or refused, never worse. */
static void test_mutated_files_never_do_harm(void **state)
{
    static unsigned char good[2048];
    static const float weights[4] = {1.0F, 2.0F, 3.0F, 4.0F};
    const struct safetensors_entry entry = {.name = "w",
                                            .dtype = SAFETENSORS_F32,
                                            .dims = 2,
                                            .shape = {2, 2},
                                            .bytes = sizeof(weights),
                                            .data = weights};
    FILE *source = NULL;
    size_t count = 0;
    uint32_t word = 7;

    (void)state;
    assert_int_equal(safetensors_write(path, &entry, 1, NULL, 0), STATUS_OK);
    source = fopen(path, "r");
    assert_non_null(source);
    count = fread(good, 1, sizeof(good), source);
    assert_int_equal(fclose(source), 0);
    for (int i = 0; i < 3000; i++) {
        static unsigned char bad[2048];
        struct safetensors *file = NULL;

        memcpy(bad, good, count);
        word = word * 1664525U + 1013904223U;
        bad[(word >> 8) % count] = (unsigned char)(word >> 24);
        word = word * 1664525U + 1013904223U;
        write_bytes(bad, i % 3 == 0 ? (word >> 8) % count : count);
        if (safetensors_open(path, &file) == STATUS_OK) {
            for (size_t t = 0; t < safetensors_count(file); t++) {
                assert_true(safetensors_at(file, t)->bytes <= count);
            }
        }
        safetensors_close(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_that_lie_are_refused_with_the_file),
        cmocka_unit_test(test_a_refusal_names_tensor_and_cause),
        cmocka_unit_test(test_lengths_that_lie_are_refused),
        cmocka_unit_test(test_a_header_of_a_thousand_brackets_is_refused),
        cmocka_unit_test(test_what_is_written_is_read_back),
        cmocka_unit_test(test_mutated_files_never_do_harm),
    };

    return cmocka_run_group_tests_name("safetensors", tests, make_path, remove_path);
}
