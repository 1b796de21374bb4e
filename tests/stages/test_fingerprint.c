/* What a data file is: all of a small one, blocks of a large one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stages/checkpoint/sum.h"
#include "stages/data/fingerprint.h"
#include "tests/stages/checkpoint_folder.h"

#define BLOCK ((size_t)65536)
#define WHOLE ((size_t)1 << 26) /* summed to the last byte */
#define LARGE (2 * WHOLE + 12345)

/* Zeros that take no memory until they are written. */
static unsigned char *make_bytes(size_t count)
{
    unsigned char *bytes =
        mmap(NULL, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(bytes != MAP_FAILED);
    return bytes;
}

static uint64_t print_of(const unsigned char *bytes, size_t count)
{
    struct manifest_sum print;

    assert_int_equal(fingerprint_of(bytes, count, &print), STATUS_OK);
    assert_true(print.bytes == count);
    return print.xxh3;
}

/* Flips a bit, and says whether the print is another one; flips it back. */
static bool is_seen(unsigned char *bytes, size_t count, size_t at)
{
    uint64_t before = print_of(bytes, count);
    uint64_t after = 0;

    bytes[at] ^= 1;
    after = print_of(bytes, count);
    bytes[at] ^= 1;
    return before != after;
}

/* XXH3 of "" as published; of a text all of it counts. */
static void a_small_file_is_summed_to_the_last_byte(void **state)
{
    struct manifest_sum print;
    struct manifest_sum other;

    (void)state;
    checkpoint_folder_write("text", "");
    assert_int_equal(fingerprint_file(checkpoint_folder_path("text"), &print), STATUS_OK);
    assert_true(print.bytes == 0 && print.xxh3 == 0x2d06800538d394c2U);
    checkpoint_folder_write("text", "a text of 21 letters.");
    assert_int_equal(fingerprint_file(checkpoint_folder_path("text"), &print), STATUS_OK);
    assert_true(print.bytes == 21 && print.xxh3 == sum_of("a text of 21 letters.", 21));
    for (long at = 1; at <= 21; at++) {
        checkpoint_folder_damage("text", at);
        assert_int_equal(fingerprint_file(checkpoint_folder_path("text"), &other), STATUS_OK);
        assert_true(other.bytes == 21 && other.xxh3 != print.xxh3);
        checkpoint_folder_damage("text", at);
    }
}

static void the_largest_that_is_summed_whole_hides_nothing(void **state)
{
    unsigned char *bytes = make_bytes(WHOLE);

    (void)state;
    bytes[WHOLE / 3] = 7;
    assert_true(print_of(bytes, WHOLE) == sum_of(bytes, WHOLE));
    assert_int_equal(munmap(bytes, WHOLE), 0);
}

/* The blocks put one after another have the sum: block k of 1024 begins at k times the 1023rd part of what is
 * before the last one, and the last one is the end. */
static void of_a_large_file_blocks_are_summed_in_their_order(void **state)
{
    unsigned char *bytes = make_bytes(LARGE);
    unsigned char *blocks = make_bytes(1024 * BLOCK);
    size_t stride = (LARGE - BLOCK) / 1023;

    (void)state;
    for (size_t at = 0; at < LARGE; at += 4999) {
        bytes[at] = (unsigned char)(at % 251);
    }
    for (size_t block = 0; block < 1023; block++) {
        memcpy(blocks + block * BLOCK, bytes + block * stride, BLOCK);
    }
    memcpy(blocks + 1023 * BLOCK, bytes + LARGE - BLOCK, BLOCK);
    assert_true(print_of(bytes, LARGE) == sum_of(blocks, 1024 * BLOCK));
    assert_int_equal(munmap(bytes, LARGE), 0);
    assert_int_equal(munmap(blocks, 1024 * BLOCK), 0);
}

/* First and last byte, and those of a block in the middle; between two blocks nothing is. */
static void what_lies_between_the_blocks_of_a_large_file_is_not_seen(void **state)
{
    unsigned char *bytes = make_bytes(LARGE);
    size_t middle = 500 * ((LARGE - BLOCK) / 1023);

    (void)state;
    assert_true(is_seen(bytes, LARGE, 0));
    assert_true(is_seen(bytes, LARGE, LARGE - 1));
    assert_true(is_seen(bytes, LARGE, middle));
    assert_true(is_seen(bytes, LARGE, middle + BLOCK - 1));
    assert_false(is_seen(bytes, LARGE, middle - 1));
    assert_false(is_seen(bytes, LARGE, middle + BLOCK));
    assert_int_equal(munmap(bytes, LARGE), 0);
}

static void a_file_that_is_not_there_is_refused_by_name(void **state)
{
    struct manifest_sum print;

    (void)state;
    assert_int_equal(fingerprint_file(checkpoint_folder_path("text"), &print), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, checkpoint_folder_path("text")));
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(a_small_file_is_summed_to_the_last_byte),
        cmocka_unit_test(the_largest_that_is_summed_whole_hides_nothing),
        cmocka_unit_test(of_a_large_file_blocks_are_summed_in_their_order),
        cmocka_unit_test(what_lies_between_the_blocks_of_a_large_file_is_not_seen),
        FOLDER(a_file_that_is_not_there_is_refused_by_name),
    };

    return cmocka_run_group_tests_name("fingerprint", tests, NULL, NULL);
}
