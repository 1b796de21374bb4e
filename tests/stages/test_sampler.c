#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "stages/data/sampler.h"

#define SAMPLES 13

static const struct sampler shuffled = {
    .samples = SAMPLES, .seed = 5, .shuffle = true, .micro_batch_size = 1, .replicas = 1};

static void test_every_sample_comes_once_an_epoch(void **state)
{
    int64_t seen[SAMPLES];

    (void)state;
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        memset(seen, 0, sizeof(seen));
        for (int64_t n = 0; n < SAMPLES; n++) {
            int64_t sample = sampler_sample(&shuffled, epoch * SAMPLES + n);

            assert_true(sample >= 0 && sample < SAMPLES);
            assert_int_equal(seen[sample]++, 0);
        }
    }
}

static void test_epochs_and_seeds_have_orders_of_their_own(void **state)
{
    struct sampler other = shuffled;
    int same_epoch = 0;
    int same_seed = 0;

    (void)state;
    other.seed = 6;
    for (int64_t n = 0; n < SAMPLES; n++) {
        same_epoch += sampler_sample(&shuffled, n) == sampler_sample(&shuffled, SAMPLES + n);
        same_seed += sampler_sample(&shuffled, n) == sampler_sample(&other, n);
    }
    assert_true(same_epoch < SAMPLES && same_seed < SAMPLES);
}

static void test_without_shuffling_samples_come_in_order_and_again(void **state)
{
    struct sampler plain = shuffled;

    (void)state;
    plain.shuffle = false;
    for (int64_t n = 0; n < (int64_t)3 * SAMPLES; n++) {
        assert_int_equal(sampler_sample(&plain, n), n % SAMPLES);
    }
}

/* Counts the numbers of one replica's step, which begins at sample 40. */
static void count_numbers(const struct sampler *sampler, int64_t microbatches, int64_t *seen)
{
    for (int64_t i = 0; i < microbatches; i++) {
        for (int64_t row = 0; row < sampler->micro_batch_size; row++) {
            int64_t number = sampler_number(sampler, 40, i, row);

            assert_int_equal(
                number,
                40 + (i * sampler->replicas + sampler->replica) * sampler->micro_batch_size + row);
            seen[number - 40]++;
        }
    }
}

/* Position in the global batch = (i·dp + d)·micro_batch_size + row. */
static void test_the_global_batch_is_the_same_for_every_split(void **state)
{
    static const int64_t splits[][3] = {{8, 1, 1}, {1, 8, 1}, {2, 2, 2}, {4, 1, 2}, {1, 2, 4}};

    (void)state;
    for (size_t s = 0; s < sizeof(splits) / sizeof(splits[0]); s++) {
        struct sampler sampler = shuffled;
        int64_t seen[8] = {0};

        sampler.micro_batch_size = splits[s][1];
        sampler.replicas = splits[s][2];
        for (sampler.replica = 0; sampler.replica < sampler.replicas; sampler.replica++) {
            count_numbers(&sampler, splits[s][0], seen);
        }
        for (int k = 0; k < 8; k++) {
            assert_int_equal(seen[k], 1);
        }
    }
}

/* As many steps as there are samples: with 4 a step over two replicas they are four epochs. */
static void check_four_epochs(int64_t samples)
{
    struct sampler sampler = shuffled;
    int64_t seen[4][SAMPLES] = {{0}};

    sampler.samples = samples;
    sampler.replicas = 2;
    for (int64_t k = 0; k < 4 * samples; k++) {
        int64_t number = 0;

        sampler.replica = (int32_t)(k / 2 % 2);
        number = sampler_number(&sampler, k / 4 * 4, k % 2, 0);
        seen[number / samples][sampler_sample(&sampler, number)]++;
    }
    for (int64_t k = 0; k < 4 * samples; k++) {
        assert_int_equal(seen[k / samples][k % samples], 1);
    }
}

/* H13: 7 or 9 samples, 4 a step: the steps of four epochs take each sample four times, once in
 * each. */
static void test_samples_that_do_not_fill_a_step_are_neither_dropped_nor_repeated(void **state)
{
    (void)state;
    check_four_epochs(7);
    check_four_epochs(9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sample_comes_once_an_epoch),
        cmocka_unit_test(test_epochs_and_seeds_have_orders_of_their_own),
        cmocka_unit_test(test_without_shuffling_samples_come_in_order_and_again),
        cmocka_unit_test(test_the_global_batch_is_the_same_for_every_split),
        cmocka_unit_test(test_samples_that_do_not_fill_a_step_are_neither_dropped_nor_repeated),
    };

    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
