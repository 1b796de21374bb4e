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

static void assert_all(const struct control_rig *rig)
{
    for (int32_t rank = 0; rank < rig->world; rank++) {
        const struct rig_rank *self = &rig->ranks[rank];

        if (self->opened != STATUS_OK || self->ended != STATUS_OK || self->closed != STATUS_OK) {
            fail_msg("rank %d: open %d (%s), body %d (%s), close %d", (int)rank, (int)self->opened,
                     self->opened_text, (int)self->ended, self->ended_text, (int)self->closed);
        }
    }
}

/* ---- start ---- */

static enum status read_welcome(struct rig_rank *self)
{
    size_t bytes = 0;
    const void *welcome = control_welcome(self->control, &bytes);
    const struct control_config *first = &self->rig->ranks[0].config;

    return rig_expect(bytes == first->welcome_bytes && memcmp(welcome, first->welcome, bytes) == 0,
                      "the welcome is rank 0's");
}

static void test_every_rank_of_any_world_gets_the_welcome(void **state)
{
    (void)state;
    for (int32_t world = 1; world <= RIG_RANKS_MOST; world++) {
        struct control_rig rig;

        rig_init(&rig, world);
        rig_run(&rig, read_welcome);
        assert_all(&rig);
        rig_release(&rig);
    }
}

static void test_a_welcome_of_the_largest_size_arrives(void **state)
{
    static unsigned char plan[CONTROL_WELCOME_MOST_BYTES];
    struct control_rig rig;

    (void)state;
    for (size_t i = 0; i < sizeof(plan); i++) {
        plan[i] = (unsigned char)(i * 31U >> 3);
    }
    rig_init(&rig, 3);
    rig.ranks[0].config.welcome = plan;
    rig.ranks[0].config.welcome_bytes = sizeof(plan);
    rig_run(&rig, read_welcome);
    assert_all(&rig);
    rig_release(&rig);
}

static void test_a_rank_with_another_configuration_is_refused_everywhere_by_name(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 4);
    rig.ranks[2].config.config_hash = 0xabcd;
    rig_run(&rig, NULL);
    for (int32_t rank = 0; rank < 4; rank++) {
        const struct rig_rank *self = &rig.ranks[rank];

        assert_int_equal(self->opened, STATUS_ERR_REFUSED);
        assert_non_null(strstr(self->opened_text, "rank 2"));
        assert_non_null(strstr(self->opened_text, "configuration"));
        assert_non_null(strstr(self->opened_text, "000000000000abcd"));
        assert_non_null(strstr(self->opened_text, "0000000000001234"));
        assert_int_equal(self->aborts, 1);
        assert_true(cancel_requested(&self->cancel));
    }
    rig_release(&rig);
}

static void test_a_rank_with_another_kernel_variant_is_refused_by_both_names(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 2);
    rig.ranks[1].config.variant = "wide";
    rig_run(&rig, NULL);
    for (int32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig.ranks[rank].opened, STATUS_ERR_REFUSED);
        assert_non_null(strstr(rig.ranks[rank].opened_text, "'wide'"));
        assert_non_null(strstr(rig.ranks[rank].opened_text, "'plain'"));
    }
    rig_release(&rig);
}

static void test_a_rank_of_another_world_is_refused(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 2);
    rig.ranks[1].config.world = 5;
    rig_run(&rig, NULL);
    assert_int_equal(rig.ranks[0].opened, STATUS_ERR_REFUSED);
    assert_int_equal(rig.ranks[1].opened, STATUS_ERR_REFUSED);
    assert_non_null(strstr(rig.ranks[0].opened_text, "rank 1 of 5"));
    rig_release(&rig);
}

static void test_ranks_that_do_not_come_are_named(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 5);
    rig.ranks[1].absent = true;
    rig.ranks[3].absent = true;
    rig.ranks[0].config.start_timeout_s = 0.4;
    rig_run(&rig, NULL);
    for (int32_t rank = 0; rank < 5; rank += 2) {
        assert_int_equal(rig.ranks[rank].opened, STATUS_ERR_TIMEOUT);
        assert_non_null(strstr(rig.ranks[rank].opened_text, "ranks 1, 3 of 5"));
    }
    rig_release(&rig);
}

static void test_a_rank_whose_rank_0_never_comes_says_where_it_looked(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 2);
    rig.ranks[0].absent = true;
    rig.ranks[1].config.start_timeout_s = 0.3;
    rig_run(&rig, NULL);
    assert_int_equal(rig.ranks[1].opened, STATUS_ERR_TIMEOUT);
    assert_non_null(strstr(rig.ranks[1].opened_text, rig.directory));
    rig_release(&rig);
}

static void test_beats_that_cannot_tell_a_death_are_refused(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 1);
    rig.ranks[0].config.dead_after_s = 0.06;
    rig_run(&rig, NULL);
    assert_int_equal(rig.ranks[0].opened, STATUS_ERR_REFUSED);
    rig_release(&rig);
}

/* ---- rounds ---- */

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
        assert_all(&rig);
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
    assert_all(&rig);
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
    assert_all(&rig);
    rig_release(&rig);
}

static enum status give_the_most_keys(struct rig_rank *self)
{
    static struct control_key keys[CONTROL_KEYS_MOST];
    static struct control_value values[CONTROL_KEYS_MOST];
    static double numbers[2][CONTROL_KEYS_MOST];
    struct control_answer answer = {.numbers = numbers[self->rank]};
    struct control_round round = {.name = "STEP",
                                  .number = 1,
                                  .keys = keys,
                                  .key_count = CONTROL_KEYS_MOST,
                                  .values = values,
                                  .value_count = CONTROL_KEYS_MOST,
                                  .note = ""};

    if (self->rank == 0) {
        for (int32_t i = 0; i < CONTROL_KEYS_MOST; i++) {
            keys[i] = (struct control_key){.name = "h.11.attention.c_attn", .op = CONTROL_SUM};
            values[i] = (struct control_value){.key = i, .number = i + 0.5};
        }
    }
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
    rig_init(&rig, 2);
    rig_run(&rig, give_the_most_keys);
    assert_all(&rig);
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
        assert_all(&rig);
        rig_release(&rig);
    }
}

/* ---- abort ---- */

static enum status abort_from_turns(struct rig_rank *self)
{
    TRY(rig_barrier(self, 1));
    if (self->rank == self->rig->turns) {
        control_abort(self->control, "disk full while saving step 4");
        control_abort(self->control, "a second cause");
    }
    return rig_barrier(self, 2);
}

static void test_an_abort_of_any_rank_reaches_all_with_its_cause(void **state)
{
    (void)state;
    for (int culprit = 0; culprit < 4; culprit++) {
        struct control_rig rig;

        rig_init(&rig, 4);
        rig.turns = culprit;
        rig_run(&rig, abort_from_turns);
        for (int32_t rank = 0; rank < 4; rank++) {
            const struct rig_rank *self = &rig.ranks[rank];

            assert_int_equal(self->ended, rank == culprit ? STATUS_ERR_CANCELLED : STATUS_ERR_PEER);
            assert_string_equal(self->ended_text, "disk full while saving step 4");
            assert_string_equal(self->cause, "disk full while saving step 4");
            assert_int_equal(self->cause_rank, culprit);
            assert_int_equal(self->aborts, 1);
            assert_true(cancel_requested(&self->cancel));
            assert_int_equal(self->closed, STATUS_OK);
        }
        rig_release(&rig);
    }
}

static enum status abort_alone(struct rig_rank *self)
{
    control_abort(self->control, "alone");
    return rig_barrier(self, 1);
}

static void test_a_world_of_one_aborts_alike(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 1);
    rig_run(&rig, abort_alone);
    assert_int_equal(rig.ranks[0].ended, STATUS_ERR_CANCELLED);
    assert_string_equal(rig.ranks[0].cause, "alone");
    assert_int_equal(rig.ranks[0].aborts, 1);
    rig_release(&rig);
}

static enum status leave_early(struct rig_rank *self)
{
    TRY(rig_barrier(self, 1));
    return self->rank == 1 ? STATUS_OK : rig_barrier(self, 2);
}

static void test_a_rank_that_leaves_while_others_wait_is_named(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig_run(&rig, leave_early);
    assert_int_equal(rig.ranks[1].closed, STATUS_OK);
    assert_int_equal(rig.ranks[0].ended, STATUS_ERR_PEER);
    assert_int_equal(rig.ranks[2].ended, STATUS_ERR_PEER);
    assert_non_null(strstr(rig.ranks[2].ended_text, "rank 1"));
    assert_non_null(strstr(rig.ranks[2].ended_text, "BARRIER 2"));
    rig_release(&rig);
}

/* ---- stall ---- */

static void describe_step(void *context, int32_t rank, const struct control_progress *progress,
                          char *text, size_t text_bytes)
{
    (void)context;
    (void)snprintf(text, text_bytes, "stage %d, step %d, action %d (1F3)", (int)rank,
                   (int)progress->step, (int)progress->action);
}

/* Rank 2 hangs in action 17; the others wait for it, each in its own way, and for longer. */
static enum status hang_in_action(struct rig_rank *self)
{
    struct control_progress progress = {.step = 5, .phase = 1, .action = self->rank};

    progress.waits = self->rank == 1;
    control_progress(self->control, &progress);
    TRY(rig_barrier(self, 1));
    if (self->rank == 0) {
        return rig_barrier(self, 2);
    }
    if (self->rank == 2) {
        progress.action = 17;
        control_progress(self->control, &progress);
    }
    while (!cancel_requested(&self->cancel)) {
        clock_sleep_ns(CLOCK_MS);
    }
    return STATUS_OK;
}

static void test_a_rank_that_hangs_is_named_with_what_it_was_doing(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig.ranks[0].config.stall_after_s = 0.4;
    rig.ranks[0].config.describe = describe_step;
    rig_run(&rig, hang_in_action);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(rig.ranks[rank].cause_rank, 2);
        assert_non_null(strstr(rig.ranks[rank].cause, "hangs"));
        assert_non_null(strstr(rig.ranks[rank].cause, "stage 2, step 5, action 17 (1F3)"));
    }
    assert_int_equal(rig.ranks[0].ended, STATUS_ERR_PEER);
    rig_release(&rig);
}

/* The others are in a round for several times the limit while rank 1 works on. */
static enum status wait_for_a_slow_rank(struct rig_rank *self)
{
    struct control_progress progress = {.step = 1, .action = 0};
    int64_t until_ns = clock_now_ns() + 1800 * CLOCK_MS;

    while (self->rank == 1 && clock_now_ns() < until_ns) {
        progress.action++;
        control_progress(self->control, &progress);
        clock_sleep_ns(5 * CLOCK_MS);
    }
    return rig_barrier(self, 1);
}

static void test_a_rank_that_waits_in_a_round_does_not_hang(void **state)
{
    struct control_rig rig;

    (void)state;
    rig_init(&rig, 3);
    rig.ranks[0].config.stall_after_s = 0.8;
    rig_run(&rig, wait_for_a_slow_rank);
    assert_all(&rig);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rank_of_any_world_gets_the_welcome),
        cmocka_unit_test(test_a_welcome_of_the_largest_size_arrives),
        cmocka_unit_test(test_a_rank_with_another_configuration_is_refused_everywhere_by_name),
        cmocka_unit_test(test_a_rank_with_another_kernel_variant_is_refused_by_both_names),
        cmocka_unit_test(test_a_rank_of_another_world_is_refused),
        cmocka_unit_test(test_ranks_that_do_not_come_are_named),
        cmocka_unit_test(test_a_rank_whose_rank_0_never_comes_says_where_it_looked),
        cmocka_unit_test(test_beats_that_cannot_tell_a_death_are_refused),
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
        cmocka_unit_test(test_an_abort_of_any_rank_reaches_all_with_its_cause),
        cmocka_unit_test(test_a_world_of_one_aborts_alike),
        cmocka_unit_test(test_a_rank_that_leaves_while_others_wait_is_named),
        cmocka_unit_test(test_a_rank_that_hangs_is_named_with_what_it_was_doing),
        cmocka_unit_test(test_a_rank_that_waits_in_a_round_does_not_hang),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
