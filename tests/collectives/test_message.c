#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>

#include "collectives/message.h"

/* Counts allocations of the whole process, the msgpack library's included. Sanitizers bring an
 * allocator of their own, so there nothing is counted. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef COUNTS_ALLOCATIONS
#define COUNTS_ALLOCATIONS 1
#endif

static size_t allocations;

#if COUNTS_ALLOCATIONS
void *malloc(size_t size)
{
    static void *(*real)(size_t);

    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "malloc");

        memcpy((void *)&real, &symbol, sizeof(real));
    }
    allocations++;
    return real(size);
}
#endif

static struct message_view *view;
static struct message_pack *pack;

static int open_tools(void **state)
{
    (void)state;
    return message_view_create(&view) == STATUS_OK && message_pack_create(&pack) == STATUS_OK ? 0
                                                                                              : -1;
}

static int close_tools(void **state)
{
    (void)state;
    message_view_destroy(&view);
    message_pack_destroy(&pack);
    return view == NULL && pack == NULL ? 0 : -1;
}

/* Finishes the pack and opens it in the view. */
static void reopen(void)
{
    const void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(message_pack_end(pack, &bytes, &size), STATUS_OK);
    assert_int_equal(message_view_open(view, bytes, size, "rank 3"), STATUS_OK);
}

static void test_every_kind_of_value_survives_the_trip(void **state)
{
    static const double doubles[4] = {0.1, -0.0, INFINITY, 5e-324};
    static const uint64_t uints[5] = {0, 127, 128, UINT64_C(1) << 32, UINT64_MAX};
    static const char *const texts[3] = {"", "wte", "h.0.attention"};
    static const unsigned char raw[4] = {0x00, 0xc1, 0xff, 0x00};
    double doubles_back[4];
    uint64_t uints_back[5];
    uint64_t uint_back = 0;
    int64_t int_back = 0;
    double double_back = 0.0;
    const void *raw_back = NULL;
    size_t size = 0;
    char text[32];

    (void)state;
    message_pack_begin(pack);
    message_put_int(pack, "low", INT64_MIN);
    message_put_int(pack, "high", INT64_MAX);
    message_put_uint(pack, "uint", UINT64_MAX);
    message_put_double(pack, "double", 1.0 / 3.0);
    message_put_double(pack, "nan", (double)NAN);
    message_put_text(pack, "text", "stage 1, step 5");
    message_put_bytes(pack, "raw", raw, sizeof(raw));
    message_put_bytes(pack, "none", NULL, 0);
    message_put_doubles(pack, "doubles", doubles, 4);
    message_put_uints(pack, "uints", uints, 5);
    message_put_texts(pack, "texts", texts, 3);
    reopen();
    assert_int_equal(message_get_int(view, "low", INT64_MIN, 0, &int_back), STATUS_OK);
    assert_true(int_back == INT64_MIN);
    assert_int_equal(message_get_int(view, "high", 0, INT64_MAX, &int_back), STATUS_OK);
    assert_true(int_back == INT64_MAX);
    assert_int_equal(message_get_uint(view, "uint", &uint_back), STATUS_OK);
    assert_true(uint_back == UINT64_MAX);
    assert_int_equal(message_get_double(view, "double", &double_back), STATUS_OK);
    assert_true(double_back == 1.0 / 3.0);
    assert_int_equal(message_get_double(view, "nan", &double_back), STATUS_OK);
    assert_true(isnan(double_back));
    assert_int_equal(message_get_text(view, "text", text, sizeof(text)), STATUS_OK);
    assert_string_equal(text, "stage 1, step 5");
    assert_int_equal(message_get_bytes(view, "raw", &raw_back, &size), STATUS_OK);
    assert_int_equal(size, sizeof(raw));
    assert_memory_equal(raw_back, raw, sizeof(raw));
    assert_int_equal(message_get_bytes(view, "none", &raw_back, &size), STATUS_OK);
    assert_int_equal(size, 0);
    assert_int_equal(message_get_array(view, "doubles", 4, &size), STATUS_OK);
    assert_int_equal(size, 4);
    assert_int_equal(message_get_doubles(view, "doubles", doubles_back, 4), STATUS_OK);
    assert_memory_equal(doubles_back, doubles, sizeof(doubles));
    assert_int_equal(message_get_uints(view, "uints", uints_back, 5), STATUS_OK);
    assert_memory_equal(uints_back, uints, sizeof(uints));
    assert_int_equal(message_get_text_at(view, "texts", 2, text, sizeof(text)), STATUS_OK);
    assert_string_equal(text, "h.0.attention");
    assert_true(message_has(view, "texts"));
    assert_false(message_has(view, "tex"));
}

static void test_the_bytes_are_those_of_msgpack(void **state)
{
    /* By hand from the specification: a map with a 16-bit count of 2, "a": 1, "b": -1. */
    static const unsigned char expected[] = {0xde, 0x00, 0x02, 0xa1, 'a', 0x01, 0xa1, 'b', 0xff};
    const void *bytes = NULL;
    size_t size = 0;

    (void)state;
    message_pack_begin(pack);
    message_put_int(pack, "a", 1);
    message_put_int(pack, "b", -1);
    assert_int_equal(message_pack_end(pack, &bytes, &size), STATUS_OK);
    assert_int_equal(size, sizeof(expected));
    assert_memory_equal(bytes, expected, sizeof(expected));
}

static void test_a_field_of_another_type_is_refused_with_peer_field_and_value(void **state)
{
    int64_t value = -7;
    double number = -7.0;
    char text[4] = "old";

    (void)state;
    message_pack_begin(pack);
    message_put_int(pack, "rank", 9);
    message_put_text(pack, "word", "four");
    message_put_uint(pack, "large", UINT64_MAX);
    reopen();
    assert_int_equal(message_get_int(view, "rank", 0, 7, &value), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "rank 3"));
    assert_non_null(strstr(status_last()->message, "'rank'"));
    assert_non_null(strstr(status_last()->message, "0 … 7"));
    assert_non_null(strstr(status_last()->message, "found 9"));
    assert_int_equal(message_get_int(view, "large", 0, INT64_MAX, &value), STATUS_ERR_FORMAT);
    assert_int_equal(message_get_int(view, "word", 0, 7, &value), STATUS_ERR_FORMAT);
    assert_int_equal(message_get_int(view, "absent", 0, 7, &value), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "found nothing"));
    assert_int_equal(message_get_double(view, "rank", &number), STATUS_ERR_FORMAT);
    assert_int_equal(message_get_text(view, "word", text, sizeof(text)), STATUS_ERR_FORMAT);
    assert_int_equal(message_get_text(view, "rank", text, sizeof(text)), STATUS_ERR_FORMAT);
    assert_true(value == -7 && number == -7.0);
    assert_string_equal(text, "old");
}

static void test_an_array_of_another_size_or_type_is_refused(void **state)
{
    static const uint64_t three[3] = {1, 2, 3};
    uint64_t uints[3];
    double doubles[3];
    size_t elems = 0;

    (void)state;
    message_pack_begin(pack);
    message_put_uints(pack, "three", three, 3);
    reopen();
    assert_int_equal(message_get_uints(view, "three", uints, 2), STATUS_ERR_FORMAT);
    assert_int_equal(message_get_doubles(view, "three", doubles, 3), STATUS_ERR_FORMAT);
    assert_int_equal(message_get_array(view, "three", 2, &elems), STATUS_ERR_FORMAT);
    assert_int_equal(message_get_uints(view, "three", uints, 3), STATUS_OK);
}

static void test_a_text_with_a_nul_inside_is_refused(void **state)
{
    static const unsigned char bytes[] = {0x81, 0xa1, 't', 0xa3, 'a', 0x00, 'b'};
    char text[8];

    (void)state;
    assert_int_equal(message_view_open(view, bytes, sizeof(bytes), "x"), STATUS_OK);
    assert_int_equal(message_get_text(view, "t", text, sizeof(text)), STATUS_ERR_FORMAT);
}

struct hostile {
    const char *name;
    const char *bytes;
    size_t size;
    const char *reason;
};

#define HOSTILE(name, bytes, reason)                 \
    {                                                \
        (name), (bytes), sizeof(bytes) - 1, (reason) \
    }

static const struct hostile hostiles[] = {
    HOSTILE("nothing", "", "empty"),
    HOSTILE("an array of 4 G", "\xdd\xff\x00\x00\x00", "no map"),
    HOSTILE("an array of 256 M in a map", "\x81\xa1k\xdd\x10\x00\x00\x00", "larger"),
    HOSTILE("a map of 4 G", "\xdf\xff\xff\xff\xff", "larger"),
    HOSTILE("a map of 64 K", "\xde\xff\xff", "larger"),
    HOSTILE("raw bytes of 4 G",
            "\x81\xa1k\xc6\xff\xff\xff\xf0"
            "0123456789",
            "larger"),
    HOSTILE("raw bytes of 4 G alone",
            "\xc6\xff\xff\xff\xf0"
            "0123456789",
            "no map"),
    HOSTILE("a text of 2 G", "\x81\xa1k\xdb\x7f\xff\xff\xff", "larger"),
    HOSTILE("a key of 2 G", "\x81\xdb\x7f\xff\xff\xff", "larger"),
    HOSTILE("a count cut short", "\x81\xa1k\xdd\x00", "inside a count"),
    HOSTILE("a value cut short", "\x81\xa1k\xcb\x00\x00", "larger"),
    HOSTILE("a value left out", "\x81\xa1k", "inside a value"),
    HOSTILE("the byte that is never used", "\x81\xa1k\xc1", "not allowed"),
    HOSTILE("an extension", "\x81\xa1k\xd4\x05\x00", "not allowed"),
    HOSTILE("an extension of 4 G", "\x81\xa1k\xc9\xff\xff\xff\xff\x05", "not allowed"),
    HOSTILE("a number for a key", "\x81\x01\x02", "no text"),
    HOSTILE("a key twice", "\x82\xa1k\x01\xa1k\x02", "twice"),
    HOSTILE("a key twice, written otherwise", "\x82\xa1k\x01\xd9\x01k\x02", "twice"),
    HOSTILE("bytes after the end", "\x81\xa1k\x01\x00", "after its end"),
    HOSTILE("nine levels", "\x81\xa1k\x91\x91\x91\x91\x91\x91\x91\x91\x01", "too deep"),
    HOSTILE("a number alone", "\x05", "no map"),
    HOSTILE("text that is no message", "GET / HTTP/1.1\r\n\r\n", "no map"),
};

static void test_hostile_bytes_are_refused_without_an_allocation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(hostiles) / sizeof(hostiles[0]); i++) {
        const struct hostile *hostile = &hostiles[i];
        size_t before = allocations;
        enum status status = message_view_open(view, hostile->bytes, hostile->size, "a stranger");

        if (status != STATUS_ERR_FORMAT || allocations != before ||
            strstr(status_last()->message, hostile->reason) == NULL) {
            fail_msg("%s: status %d, %zu allocations, '%s'", hostile->name, (int)status,
                     allocations - before, status_last()->message);
        }
        assert_false(message_has(view, "k"));
    }
}

static void test_eight_levels_are_allowed(void **state)
{
    static const unsigned char bytes[] = {0x81, 0xa1, 'k',  0x91, 0x91, 0x91,
                                          0x91, 0x91, 0x91, 0x91, 0x01};

    (void)state;
    assert_int_equal(message_check(bytes, sizeof(bytes), "x"), STATUS_OK);
}

static void test_too_many_fields_values_or_bytes_are_refused(void **state)
{
    static const unsigned char zeros[8] = {0x81, 0xa1, 'k', 0xdd, 0x00, 0x01, 0x00, 0x00};
    static const unsigned char raw[8] = {0x81, 0xa1, 'k', 0xc6, 0x00, 0x12, 0x00, 0x00};
    unsigned char *bytes = calloc(1, MESSAGE_MOST_BYTES + 1);

    (void)state;
    assert_non_null(bytes);
    bytes[0] = 0xde; /* 65 fields of one byte and one value */
    bytes[2] = MESSAGE_FIELDS_MOST + 1;
    for (size_t i = 0; i <= MESSAGE_FIELDS_MOST; i++) {
        bytes[3 + 3 * i] = 0xa1;
        bytes[4 + 3 * i] = (unsigned char)(0x20 + i);
    }
    assert_int_equal(message_check(bytes, 3 + 3 * (MESSAGE_FIELDS_MOST + 1), "x"),
                     STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "too many fields"));
    memcpy(bytes, zeros, sizeof(zeros)); /* 65536 zeros */
    memset(bytes + 8, 0, 65536);
    assert_int_equal(message_check(bytes, 8 + 65536, "x"), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "too many values"));
    memcpy(bytes, raw, sizeof(raw)); /* raw bytes up to beyond the bound */
    assert_int_equal(message_check(bytes, MESSAGE_MOST_BYTES + 1, "x"), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "too long"));
    free(bytes);
}

static void test_a_message_that_grew_too_long_is_not_sent(void **state)
{
    const void *bytes = NULL;
    size_t size = 0;
    unsigned char *raw = calloc(1, MESSAGE_MOST_BYTES);
    char name[8];

    (void)state;
    assert_non_null(raw);
    message_pack_begin(pack);
    message_put_bytes(pack, "raw", raw, MESSAGE_MOST_BYTES);
    assert_int_equal(message_pack_end(pack, &bytes, &size), STATUS_ERR_INVALID);
    message_pack_begin(pack);
    for (int i = 0; i <= MESSAGE_FIELDS_MOST; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        message_put_int(pack, name, i);
    }
    assert_int_equal(message_pack_end(pack, &bytes, &size), STATUS_ERR_INVALID);
    free(raw);
}

/* The getters must hold whatever passes the check. */
static void read_all_kinds(void)
{
    int64_t int_value = 0;
    uint64_t uints[4];
    double doubles[4];
    const void *raw = NULL;
    size_t size = 0;
    char text[16];

    (void)message_get_int(view, "i", -5, 5, &int_value);
    (void)message_get_double(view, "d", &doubles[0]);
    (void)message_get_text(view, "t", text, sizeof(text));
    if (message_get_bytes(view, "b", &raw, &size) == STATUS_OK && size > 0) {
        (void)memcpy(text, raw, size < sizeof(text) ? size : sizeof(text));
    }
    (void)message_get_doubles(view, "x", doubles, 4);
    (void)message_get_uints(view, "u", uints, 4);
    (void)message_get_text_at(view, "w", 1, text, sizeof(text));
}

static void test_mutated_messages_never_do_harm(void **state)
{
    static const double doubles[4] = {1.0, 2.0, 3.0, 4.0};
    static const uint64_t uints[4] = {1, 200, 70000, UINT64_MAX};
    static const char *const texts[2] = {"one", "two"};
    const void *bytes = NULL;
    size_t size = 0;
    uint64_t random = 88172645463325252U;
    size_t accepted = 0;

    (void)state;
    message_pack_begin(pack);
    message_put_int(pack, "i", 3);
    message_put_double(pack, "d", 0.5);
    message_put_text(pack, "t", "text");
    message_put_bytes(pack, "b", "raw", 3);
    message_put_doubles(pack, "x", doubles, 4);
    message_put_uints(pack, "u", uints, 4);
    message_put_texts(pack, "w", texts, 2);
    assert_int_equal(message_pack_end(pack, &bytes, &size), STATUS_OK);
    for (int i = 0; i < 60000; i++) {
        /* A heap block of exactly the size, so that a sanitizer sees each byte too far. */
        size_t cut = size;
        unsigned char *mutant = NULL;

        for (int draw = 0; draw < 3; draw++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
        }
        cut -= (random >> 40) % 4 == 0 ? (size_t)(random >> 44) % size : 0;
        mutant = malloc(cut);
        assert_non_null(mutant);
        memcpy(mutant, bytes, cut);
        for (uint64_t change = 0; change <= (random & 3U); change++) {
            mutant[(random >> (8 + 7 * change)) % cut] = (unsigned char)(random >> (3 + change));
        }
        if (message_view_open(view, mutant, cut, "a stranger") == STATUS_OK) {
            accepted++;
            read_all_kinds();
        }
        free(mutant);
    }
    assert_in_range(accepted, 1000, 59000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_value_survives_the_trip),
        cmocka_unit_test(test_the_bytes_are_those_of_msgpack),
        cmocka_unit_test(test_a_field_of_another_type_is_refused_with_peer_field_and_value),
        cmocka_unit_test(test_an_array_of_another_size_or_type_is_refused),
        cmocka_unit_test(test_a_text_with_a_nul_inside_is_refused),
        cmocka_unit_test(test_hostile_bytes_are_refused_without_an_allocation),
        cmocka_unit_test(test_eight_levels_are_allowed),
        cmocka_unit_test(test_too_many_fields_values_or_bytes_are_refused),
        cmocka_unit_test(test_a_message_that_grew_too_long_is_not_sent),
        cmocka_unit_test(test_mutated_messages_never_do_harm),
    };

    return cmocka_run_group_tests(tests, open_tools, close_tools);
}
