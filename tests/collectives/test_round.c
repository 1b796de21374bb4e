#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/round.h"

static struct round *subject;

static void open_world(int32_t world, enum control_op op)
{
    assert_int_equal(round_create(world, &subject), STATUS_OK);
    assert_int_equal(round_reserve_keys(subject, 1), STATUS_OK);
    round_set_key(subject, 0, op, "key");
}

static struct round_slot *give(int32_t rank, uint64_t key, double number, uint64_t bits)
{
    struct round_slot *slot = NULL;

    assert_int_equal(round_open_slot(subject, rank, 1, &slot), STATUS_OK);
    (void)snprintf(slot->name, sizeof(slot->name), "STEP");
    slot->number = 3;
    slot->shape = 1;
    slot->keys[0] = key;
    slot->numbers[0] = number;
    slot->bits[0] = bits;
    slot->note[0] = '\0';
    slot->given = true;
    return slot;
}

static void test_a_sum_does_not_depend_on_who_comes_first(void **state)
{
    /* In doubles (0.1 + 0.2) + 0.3 is 0.6000000000000001 and (0.3 + 0.2) + 0.1 is 0.6. */
    static const double numbers[4] = {0.1, 0.2, 0.3, 0.0};
    static const int32_t orders[3][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
    struct round_result result;
    int32_t first = -1;

    (void)state;
    for (int i = 0; i < 3; i++) {
        open_world(4, CONTROL_SUM);
        for (int j = 0; j < 4; j++) {
            assert_int_equal(round_given(subject, &first), j);
            (void)give(orders[i][j], 0, numbers[orders[i][j]], 0);
        }
        assert_int_equal(round_given(subject, &first), 4);
        assert_int_equal(first, 0);
        round_reduce(subject, &result);
        assert_int_equal(result.status, STATUS_OK);
        assert_true(result.numbers[0] == 0.6000000000000001);
        assert_int_equal(round_given(subject, &first), 0);
        assert_int_equal(first, -1);
        round_destroy(&subject);
    }
    round_destroy(&subject);
}

static void test_the_maximum_knows_nan_and_minus_infinity(void **state)
{
    struct round_result result;

    (void)state;
    open_world(3, CONTROL_MAX);
    (void)give(0, 0, -INFINITY, 0);
    (void)give(1, 0, (double)NAN, 0);
    (void)give(2, 0, INFINITY, 0);
    round_reduce(subject, &result);
    assert_true(isnan(result.numbers[0]));
    (void)give(0, 0, -INFINITY, 0);
    (void)give(1, 0, -5.0, 0);
    (void)give(2, 0, -INFINITY, 0);
    round_reduce(subject, &result);
    assert_true(result.numbers[0] == -5.0);
    round_destroy(&subject);
}

static void test_a_key_that_does_not_exist_is_told_by_rank(void **state)
{
    struct round_result result;

    (void)state;
    open_world(2, CONTROL_SUM);
    (void)give(0, 0, 1.0, 0);
    (void)give(1, UINT64_MAX, 1.0, 0);
    round_reduce(subject, &result);
    assert_int_equal(result.status, STATUS_ERR_FORMAT);
    assert_non_null(strstr(result.text, "rank 1 gives key 18446744073709551615 of 1"));
    round_destroy(&subject);
}

static void test_keys_of_another_shape_are_told_by_rank(void **state)
{
    struct round_result result;

    (void)state;
    open_world(3, CONTROL_SUM);
    (void)give(0, 0, 1.0, 0);
    (void)give(1, 0, 1.0, 0);
    give(2, 0, 1.0, 0)->shape = 2;
    round_reduce(subject, &result);
    assert_int_equal(result.status, STATUS_ERR_FORMAT);
    assert_non_null(strstr(result.text, "rank 2 has other keys"));
    round_destroy(&subject);
}

static void test_once_may_not_be_given_twice_by_one_rank_either(void **state)
{
    struct round_result result;
    struct round_slot *slot = NULL;

    (void)state;
    open_world(1, CONTROL_ONCE);
    (void)give(0, 0, 1.0, 0);
    assert_int_equal(round_open_slot(subject, 0, 2, &slot), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        slot->keys[i] = 0;
        slot->numbers[i] = 1.0;
        slot->bits[i] = 0;
    }
    round_reduce(subject, &result);
    assert_int_equal(result.status, STATUS_ERR_FORMAT);
    assert_non_null(strstr(result.text, "'key'"));
    round_destroy(&subject);
}

static void test_shapes_tell_names_order_and_operations_apart(void **state)
{
    const struct control_key lists[5][2] = {
        {{.name = "a", .op = CONTROL_SUM}, {.name = "b", .op = CONTROL_SUM}},
        {{.name = "b", .op = CONTROL_SUM}, {.name = "a", .op = CONTROL_SUM}},
        {{.name = "a", .op = CONTROL_SUM}, {.name = "b", .op = CONTROL_MAX}},
        {{.name = "a0b", .op = CONTROL_SUM}, {.name = "", .op = CONTROL_SUM}},
        {{.name = "", .op = CONTROL_SUM}, {.name = "a0b", .op = CONTROL_SUM}},
    };

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_true(round_shape(lists[i], 2) == round_shape(lists[i], 2));
        assert_true(round_shape(lists[i], 1) != round_shape(lists[i], 2));
        for (int j = 0; j < i; j++) {
            assert_true(round_shape(lists[i], 2) != round_shape(lists[j], 2));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sum_does_not_depend_on_who_comes_first),
        cmocka_unit_test(test_the_maximum_knows_nan_and_minus_infinity),
        cmocka_unit_test(test_a_key_that_does_not_exist_is_told_by_rank),
        cmocka_unit_test(test_keys_of_another_shape_are_told_by_rank),
        cmocka_unit_test(test_once_may_not_be_given_twice_by_one_rank_either),
        cmocka_unit_test(test_shapes_tell_names_order_and_operations_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
