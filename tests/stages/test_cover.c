/* Ranges that make up a tensor, and those that do not: holes, overlaps and what is too much, by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "stages/checkpoint/cover.h"

/* Files 0 … 3 are those of two stages of two replicas. */
static const struct grid_shape layout = {.pp = 2, .tp = 1, .dp = 2};

static const struct cover_whole twelve = {
    .folder = "a/step-00000010", .layout = &layout, .name = "wte.weight", .shard = -1, .elems = 12};

struct range {
    size_t first;
    size_t elems;
    int32_t file;
};

static enum status check(const struct cover_whole *whole, const struct range *ranges, size_t count)
{
    struct cover cover = {.ranges = NULL};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(cover_add(&cover, ranges[i].first, ranges[i].elems, ranges[i].file),
                         STATUS_OK);
    }
    status = cover_check(&cover, whole);
    cover_release(&cover);
    return status;
}

#define CHECK(whole, ...)                               \
    check((whole), (const struct range[]){__VA_ARGS__}, \
          sizeof((const struct range[]){__VA_ARGS__}) / sizeof(struct range))

static void assert_said(const char *words)
{
    if (strstr(status_last()->message, words) == NULL) {
        fail_msg("expected \"%s\" in: %s", words, status_last()->message);
    }
}

static void ranges_in_any_order_make_up_the_whole(void **state)
{
    (void)state;
    assert_int_equal(CHECK(&twelve, {0, 12, 0}), STATUS_OK);
    assert_int_equal(CHECK(&twelve, {7, 5, 1}, {0, 7, 0}), STATUS_OK);
    assert_int_equal(CHECK(&twelve, {11, 1, 0}, {3, 0, 1}, {0, 3, 2}, {3, 8, 1}), STATUS_OK);
}

static void a_hole_is_named_with_its_elements_and_the_file_before_it(void **state)
{
    (void)state;
    assert_int_equal(CHECK(&twelve, {0, 5, 0}, {8, 4, 1}), STATUS_ERR_REFUSED);
    assert_said("a/step-00000010: the checkpoint is damaged: tensor wte.weight: ");
    assert_said(
        "of its elements 0 to 11, 5 to 7 are in no file; shard-pp0-tp0-dp0.safetensors has");
    assert_int_equal(CHECK(&twelve, {1, 11, 0}), STATUS_ERR_REFUSED);
    assert_said("0 to 0 are in no file");
    assert_null(strstr(status_last()->message, ".safetensors"));
    assert_int_equal(CHECK(&twelve, {6, 5, 3}, {0, 6, 2}), STATUS_ERR_REFUSED);
    assert_said("11 to 11 are in no file; shard-pp1-tp0-dp1.safetensors has");
    assert_int_equal(CHECK(&twelve, {0, 0, 0}), STATUS_ERR_REFUSED);
    assert_said("0 to 11 are in no file");
    assert_int_equal(CHECK(&twelve, {0, 5, 0}, {20, 4, 1}), STATUS_ERR_REFUSED);
    assert_said("5 to 11 are in no file");
}

static void an_overlap_is_named_with_its_elements_and_both_files(void **state)
{
    (void)state;
    assert_int_equal(CHECK(&twelve, {4, 8, 2}, {0, 6, 1}), STATUS_ERR_REFUSED);
    assert_said("4 to 5 are in shard-pp0-tp0-dp1.safetensors and again in "
                "shard-pp1-tp0-dp0.safetensors");
    assert_int_equal(CHECK(&twelve, {0, 12, 0}, {3, 4, 1}), STATUS_ERR_REFUSED);
    assert_said("3 to 6 are in shard-pp0-tp0-dp0.safetensors and again in "
                "shard-pp0-tp0-dp1.safetensors");
    assert_int_equal(CHECK(&twelve, {0, 12, 1}, {0, 12, 0}), STATUS_ERR_REFUSED);
    assert_said("0 to 11 are in shard-pp0-tp0-dp0.safetensors and again in "
                "shard-pp0-tp0-dp1.safetensors");
}

/* The sizes add up to 12. */
static void a_hole_and_an_overlap_of_one_size_do_not_cancel(void **state)
{
    (void)state;
    assert_int_equal(CHECK(&twelve, {0, 6, 0}, {4, 4, 1}, {10, 2, 0}), STATUS_ERR_REFUSED);
    assert_said("4 to 5 are in");
    assert_int_equal(CHECK(&twelve, {0, 4, 0}, {6, 4, 1}, {8, 4, 0}), STATUS_ERR_REFUSED);
    assert_said("4 to 5 are in no file");
}

static void what_is_too_much_is_named(void **state)
{
    (void)state;
    assert_int_equal(CHECK(&twelve, {0, 6, 0}, {6, 7, 1}), STATUS_ERR_REFUSED);
    assert_said("wte.weight has 12 elements, and shard-pp0-tp0-dp1.safetensors has 6 to 12");
    assert_int_equal(CHECK(&twelve, {0, 12, 0}, {14, 1, 2}), STATUS_ERR_REFUSED);
    assert_said("shard-pp1-tp0-dp0.safetensors has 14 to 14");
}

static void the_shard_whose_part_it_is_is_named(void **state)
{
    struct cover_whole part = twelve;

    (void)state;
    part.shard = 3;
    assert_int_equal(CHECK(&part, {0, 11, 0}), STATUS_ERR_REFUSED);
    assert_said("tensor wte.weight, shard 3: of its elements");
}

/* Every set of up to three ranges among 0 … 5, against an array that counts. */
static bool is_covered(const struct range *ranges, size_t count, size_t elems)
{
    int times[8] = {0};

    for (size_t i = 0; i < count; i++) {
        for (size_t e = 0; e < ranges[i].elems; e++) {
            times[ranges[i].first + e]++;
        }
    }
    for (size_t e = 0; e < 8; e++) {
        if (times[e] != (e < elems ? 1 : 0)) {
            return false;
        }
    }
    return true;
}

#define KINDS ((size_t)21) /* ranges of 1 … 6 elements within 0 … 5 */

static void every_set_of_ranges_is_judged_as_by_counting(void **state)
{
    struct range kinds[KINDS + 1];
    struct cover_whole five = twelve;
    size_t made = 0;
    int whole = 0;

    (void)state;
    five.elems = 5;
    for (size_t first = 0; first < 6; first++) {
        for (size_t end = first + 1; end <= 6; end++) {
            kinds[made++] = (struct range){first, end - first, 0};
        }
    }
    assert_int_equal(made, KINDS);
    kinds[KINDS] = (struct range){0, 0, 0};
    for (size_t set = 0; set < (KINDS + 1) * (KINDS + 1) * (KINDS + 1); set++) {
        const struct range ranges[3] = {kinds[set % (KINDS + 1)],
                                        kinds[set / (KINDS + 1) % (KINDS + 1)],
                                        kinds[set / (KINDS + 1) / (KINDS + 1)]};
        struct cover cover = {.ranges = NULL};
        bool expected = is_covered(ranges, 3, 5);
        enum status status = STATUS_OK;

        for (int32_t i = 0; i < 3; i++) {
            assert_int_equal(cover_add(&cover, ranges[i].first, ranges[i].elems, i), STATUS_OK);
        }
        status = cover_check(&cover, &five);
        assert_int_equal(status, expected ? STATUS_OK : STATUS_ERR_REFUSED);
        whole += expected ? 1 : 0;
        cover_release(&cover);
    }
    /* One, two and three parts of 5, in any order and place: 3 + 4·6 + 6·6. */
    assert_int_equal(whole, 63);
}

static void a_cleared_one_is_empty(void **state)
{
    struct cover cover = {.ranges = NULL};

    (void)state;
    for (size_t e = 0; e < 100; e++) {
        assert_int_equal(cover_add(&cover, 2 * e, 1, 0), STATUS_OK);
    }
    cover_clear(&cover);
    assert_int_equal(cover_add(&cover, 0, 12, 1), STATUS_OK);
    assert_int_equal(cover_check(&cover, &twelve), STATUS_OK);
    cover_release(&cover);
    cover_release(&cover);
    assert_null(cover.ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_in_any_order_make_up_the_whole),
        cmocka_unit_test(a_hole_is_named_with_its_elements_and_the_file_before_it),
        cmocka_unit_test(an_overlap_is_named_with_its_elements_and_both_files),
        cmocka_unit_test(a_hole_and_an_overlap_of_one_size_do_not_cancel),
        cmocka_unit_test(what_is_too_much_is_named),
        cmocka_unit_test(the_shard_whose_part_it_is_is_named),
        cmocka_unit_test(every_set_of_ranges_is_judged_as_by_counting),
        cmocka_unit_test(a_cleared_one_is_empty),
    };

    return cmocka_run_group_tests_name("cover", tests, NULL, NULL);
}
