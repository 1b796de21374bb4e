/* XXH3 sums: its authors' values, whatever pieces the bytes come in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stages/checkpoint/sum.h"

#define MOST 2367

/* The vectors of xxHash's own sanity check (cli/xsum_sanity_check.c): XXH3, 64 bits, seed 0. */
static const struct {
    size_t count;
    uint64_t sum;
} vectors[] = {
    {0, 0x2d06800538d394c2U},    {1, 0xc44bdff4074eecdbU},    {6, 0x27b56a84cd2d7325U},
    {12, 0xa713daf0dfbb77e7U},   {24, 0xa3fe70bf9d3510ebU},   {48, 0x397da259ecba1f11U},
    {80, 0xbcdefbbb2c47c90aU},   {195, 0xcd94217ee362ec3aU},  {403, 0xcdeb804d65c6dea4U},
    {512, 0x617e49599013cb6bU},  {2048, 0xdd59e2c3a5f038e0U}, {2240, 0x6e73a90539cf2948U},
    {2367, 0xcb37aeb9e5d361edU},
};

#define VECTORS (sizeof(vectors) / sizeof(vectors[0]))

static void fill(unsigned char *bytes)
{
    uint64_t generator = 2654435761U;

    for (int i = 0; i < MOST; i++) {
        bytes[i] = (unsigned char)(generator >> 56);
        generator *= 11400714785074694797U;
    }
}

static void sums_are_those_that_the_authors_publish(void **state)
{
    unsigned char bytes[MOST];

    (void)state;
    fill(bytes);
    for (size_t i = 0; i < VECTORS; i++) {
        assert_true(sum_of(bytes, vectors[i].count) == vectors[i].sum);
    }
}

static void pieces_have_the_sum_of_the_whole(void **state)
{
    static const size_t pieces[] = {1, 7, 256, 2366, 4000};
    unsigned char bytes[MOST];

    (void)state;
    fill(bytes);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct sum *sum = NULL;

        assert_int_equal(sum_open(&sum), STATUS_OK);
        assert_true(sum_value(sum) == vectors[0].sum);
        for (size_t at = 0; at < MOST; at += pieces[i]) {
            sum_add(sum, bytes + at, at + pieces[i] < MOST ? pieces[i] : MOST - at);
        }
        assert_true(sum_value(sum) == vectors[VECTORS - 1].sum);
        sum_close(&sum);
        assert_null(sum);
        sum_close(&sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_that_the_authors_publish),
        cmocka_unit_test(pieces_have_the_sum_of_the_whole),
    };

    return cmocka_run_group_tests_name("sum", tests, NULL, NULL);
}
