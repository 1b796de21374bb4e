/*
 * Rounds: what all ranks give becomes one answer, the same for all.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/control.h"
#include "control_rig.h"

/* Keys of a round with every operation, and what each rank gives. */
enum {
    KEY_SUM,
    KEY_MAX,
    KEY_ONCE,
    KEY_SAME,
    KEY_NOBODY,
    KEY_COUNT
};

static const struct control_key every_key[KEY_COUNT] = {
    [KEY_SUM] = {.name = "sum of squares", .op = CONTROL_SUM},
    [KEY_MAX] = {.name = "found_inf", .op = CONTROL_MAX},
    [KEY_ONCE] = {.name = "loss", .op = CONTROL_ONCE},
    [KEY_SAME] = {.name = "plan hash", .op = CONTROL_SAME},
    [KEY_NOBODY] = {.name = "nobody's", .op = CONTROL_SUM},
};

static struct control_round every_round(uint64_t number, const struct control_value *values,
                                        int32_t value_count)
{
    return (struct control_round){.name = "STEP",
                                  .number = number,
                                  .keys = every_key,
                                  .key_count = KEY_COUNT,
                                  .values = values,
                                  .value_count = value_count,
                                  .note = ""};
}

/* Rank r gives 0.1·(r+1) and 1e16·(-1)^r to the sum, r-100 to the maximum; rank 1 (or 0) gives
 * ONCE. What comes of it, computed anew: */
static enum status check_every_kind(int32_t world, uint64_t number, const double *numbers)
{
    double sum = 0.0;

    for (int32_t rank = 0; rank < world; rank++) {
        sum += 0.1 * (rank + 1);
        sum += rank % 2 == 0 ? 1e16 : -1e16;
    }
    TRY(rig_expect(numbers[KEY_SUM] == sum, "the sum is taken in rank order"));
    TRY(rig_expect(numbers[KEY_MAX] == (double)(world - 1) - 100.0, "MAX is the largest"));
    TRY(rig_expect(numbers[KEY_ONCE] == 2.5 * (double)number, "ONCE reaches all"));
    return rig_expect(numbers[KEY_NOBODY] == 0.0, "what nobody gives is 0");
}

static enum status give_every_kind(struct rig_rank *self)
{
    int32_t world = self->rig->world;
    bool gives_once = self->rank == (world > 1 ? 1 : 0);
    double numbers[KEY_COUNT];

    for (uint64_t number = 1; number <= 20; number++) {
        struct control_value values[5] = {
            {.key = KEY_SUM, .number = 0.1 * (self->rank + 1)},
            {.key = KEY_SUM, .number = self->rank % 2 == 0 ? 1e16 : -1e16},
            {.key = KEY_MAX, .number = (double)self->rank - 100.0},
            {.key = KEY_SAME, .bits = UINT64_C(0xfedcba9876543210) + number},
            {.key = KEY_ONCE, .number = 2.5 * (double)number},
        };
        struct control_answer answer = {.numbers = numbers};
        struct control_round round = every_round(number, values, gives_once ? 5 : 4);

        TRY(control_reduce(self->control, &round, &answer, rig_deadline()));
        TRY(check_every_kind(world, number, numbers));
        TRY(rig_expect(answer.stop_signal == 0 && answer.note_rank == -1, "nothing else is told"));
    }
    return STATUS_OK;
}

static void test_a_round_reduces_every_kind_of_key_in_rank_order(void **state)
{
    (void)state;
    for (int32_t world = 1; world <= RIG_RANKS_MOST; world++) {
        struct control_rig rig;

        rig_init(&rig, world);
        rig_run(&rig, give_every_kind);
        rig_assert_all_well(&rig);
        rig_release(&rig);
    }
}

static enum status give_nan(struct rig_rank *self)
{
    double numbers[KEY_COUNT];
    struct control_answer answer = {.numbers = numbers};
    struct control_value values[2] = {
        {.key = KEY_MAX, .number = self->rank == 1 ? (double)NAN : 5.0},
        {.key = KEY_ONCE, .number = 1.0},
    };
    struct control_round round = every_round(1, values, self->rank == 0 ? 2 : 1);

    TRY(control_reduce(self->control, &round, &answer, rig_deadline()));
    return rig_expect(numbers[KEY_MAX] != numbers[KEY_MAX], "NaN is the largest");
}

static void test_nan_is_the_largest_of_all(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig_run(&rig, give_nan);
    rig_assert_all_well(&rig);
    rig_release(&rig);
}

/* Who gives ONCE, as a mask of ranks, and whose SAME differs, are in `turns`. */
static enum status give_by_mask(struct rig_rank *self)
{
    double numbers[KEY_COUNT];
    struct control_answer answer = {.numbers = numbers};
    int mask = self->rig->turns;
    struct control_value values[2] = {
        {.key = KEY_SAME, .bits = (mask >> (8 + self->rank) & 1) != 0 ? 7 : 6},
        {.key = KEY_ONCE, .number = 1.0},
    };
    struct control_round round = every_round(1, values, (mask >> self->rank & 1) != 0 ? 2 : 1);

    return control_reduce(self->control, &round, &answer, rig_deadline());
}

static void expect_refusal(int mask, enum status status, const char *first, const char *second)
{
    struct control_rig rig;

    rig_init(&rig, 4);
    rig.turns = mask;
    rig_run(&rig, give_by_mask);
    for (int32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(rig.ranks[rank].ended, status);
        assert_non_null(strstr(rig.ranks[rank].ended_text, first));
        assert_non_null(strstr(rig.ranks[rank].ended_text, second));
        assert_int_equal(rig.ranks[rank].closed, STATUS_OK);
    }
    rig_release(&rig);
}

static void test_once_given_twice_is_an_error_by_name_on_all_ranks(void **state)
{
    (void)state;
    expect_refusal(0x0a, STATUS_ERR_FORMAT, "'loss'", "ranks 1 and 3");
}

static void test_once_given_by_nobody_is_an_error_by_name(void **state)
{
    (void)state;
    expect_refusal(0x00, STATUS_ERR_FORMAT, "'loss'", "no rank");
}

static void test_same_that_differs_is_refused_by_name_with_both_values(void **state)
{
    (void)state;
    expect_refusal(0x401, STATUS_ERR_REFUSED, "rank 0 has 0x0000000000000006",
                   "rank 2 has 0x0000000000000007");
}

static enum status give_another_round(struct rig_rank *self)
{
    return rig_barrier(self, self->rank == 2 ? 8 : 7);
}

static void test_ranks_in_different_rounds_are_told_which(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig_run(&rig, give_another_round);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(rig.ranks[rank].ended, STATUS_ERR_FORMAT);
        assert_non_null(strstr(rig.ranks[rank].ended_text, "rank 2 is in BARRIER 8"));
    }
    rig_release(&rig);
}

static enum status give_notes(struct rig_rank *self)
{
    double numbers[KEY_COUNT];
    struct control_answer answer = {.numbers = numbers};
    const struct control_value value = {.key = KEY_ONCE, .number = 1.0};
    struct control_round round = every_round(1, &value, self->rank == 0 ? 1 : 0);
    char note[32];

    (void)snprintf(note, sizeof(note), "tensor of rank %d", (int)self->rank);
    round.note = self->rank >= 2 ? note : "";
    TRY(control_reduce(self->control, &round, &answer, rig_deadline()));
    return rig_expect(answer.note_rank == 2 && strcmp(answer.note, "tensor of rank 2") == 0,
                      "the lowest rank's note is told");
}

static void test_the_lowest_rank_with_a_note_is_told_to_all(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 4);
    rig_run(&rig, give_notes);
    rig_assert_all_well(&rig);
    rig_release(&rig);
}

static struct control_key most_keys[CONTROL_KEYS_MOST];
static struct control_value most_values[CONTROL_KEYS_MOST];

static enum status give_the_most_keys(struct rig_rank *self)
{
    static double numbers[2][CONTROL_KEYS_MOST];
    struct control_answer answer = {.numbers = numbers[self->rank]};
    struct control_round round = {.name = "STEP",
                                  .number = 1,
                                  .keys = most_keys,
                                  .key_count = CONTROL_KEYS_MOST,
                                  .values = most_values,
                                  .value_count = CONTROL_KEYS_MOST,
                                  .note = ""};

    TRY(rig_barrier(self, 1));
    TRY(control_reduce(self->control, &round, &answer, rig_deadline()));
    for (int32_t i = 0; i < CONTROL_KEYS_MOST; i++) {
        TRY(rig_expect(numbers[self->rank][i] == 2.0 * i + 1.0, "every key is summed"));
    }
    return STATUS_OK;
}

static void test_a_round_may_have_the_most_keys(void **state)
{
    struct control_rig rig;

    (void)state;
    for (int32_t i = 0; i < CONTROL_KEYS_MOST; i++) {
        most_keys[i] = (struct control_key){.name = "h.11.attention.c_attn", .op = CONTROL_SUM};
        most_values[i] = (struct control_value){.key = i, .number = i + 0.5};
    }
    rig_init(&rig, 2);
    rig_run(&rig, give_the_most_keys);
    rig_assert_all_well(&rig);
    rig_release(&rig);
}

static enum status wait_too_short(struct rig_rank *self)
{
    double numbers[KEY_COUNT];
    struct control_answer answer = {.numbers = numbers};
    struct control_round round = every_round(1, NULL, 0);

    if (self->rank == 1) {
        enum status status =
            control_reduce(self->control, &round, &answer, clock_now_ns() + 50 * CLOCK_MS);

        (void)__atomic_add_fetch(&self->rig->turns, 1, __ATOMIC_RELEASE);
        TRY(rig_expect(status == STATUS_ERR_TIMEOUT, "the deadline ends the wait"));
        status = control_reduce(self->control, &round, &answer, rig_deadline());
        return rig_expect(status == STATUS_ERR_INVALID, "no second round is begun");
    }
    return rig_expect(rig_await(&self->rig->turns, 1), "rank 1 gives up");
}

static void test_a_deadline_ends_a_round_that_others_do_not_join(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 2);
    rig_run(&rig, wait_too_short);
    assert_int_equal(rig.ranks[1].opened, STATUS_OK);
    assert_int_equal(rig.ranks[1].ended, STATUS_OK);
    assert_int_equal(rig.ranks[0].ended, STATUS_OK);
    rig_release(&rig);
}

/* ---- stop ---- */

static enum status stop_in_round_three(struct rig_rank *self)
{
    double numbers[KEY_COUNT];
    struct control_answer answer = {.numbers = numbers};
    const struct control_value value = {.key = KEY_ONCE, .number = 1.0};

    for (uint64_t number = 1; number <= 5; number++) {
        struct control_round round = every_round(number, &value, self->rank == 0 ? 1 : 0);

        if (number == 3 && self->rank == self->rig->world - 1) {
            control_stop(self->control, 15);
        }
        TRY(control_reduce(self->control, &round, &answer, rig_deadline()));
        TRY(rig_expect(answer.stop_signal == (number >= 3 ? 15 : 0),
                       "the signal is in the answer of its round and of all later ones"));
    }
    return STATUS_OK;
}

static void test_a_stop_anywhere_is_in_the_same_answer_everywhere(void **state)
{
    (void)state;
    for (int32_t world = 1; world <= 3; world++) {
        struct control_rig rig;

        rig_init(&rig, world);
        rig_run(&rig, stop_in_round_three);
        rig_assert_all_well(&rig);
        rig_release(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round_reduces_every_kind_of_key_in_rank_order),
        cmocka_unit_test(test_nan_is_the_largest_of_all),
        cmocka_unit_test(test_once_given_twice_is_an_error_by_name_on_all_ranks),
        cmocka_unit_test(test_once_given_by_nobody_is_an_error_by_name),
        cmocka_unit_test(test_same_that_differs_is_refused_by_name_with_both_values),
        cmocka_unit_test(test_ranks_in_different_rounds_are_told_which),
        cmocka_unit_test(test_the_lowest_rank_with_a_note_is_told_to_all),
        cmocka_unit_test(test_a_round_may_have_the_most_keys),
        cmocka_unit_test(test_a_deadline_ends_a_round_that_others_do_not_join),
        cmocka_unit_test(test_a_stop_anywhere_is_in_the_same_answer_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
