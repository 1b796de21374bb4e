#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/rng.h"

static void assert_philox(const uint32_t counter[4], const uint32_t key[2],
                          const uint32_t expected[4])
{
    uint32_t out[4];

    rng_philox(counter, key, out);
    assert_memory_equal(out, expected, sizeof(out));
}

/* The known-answer vectors published with the generator. */
static void philox_gives_the_published_numbers(void **state)
{
    const uint32_t zeros[4] = {0, 0, 0, 0};
    const uint32_t of_zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t ones[4] = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
    const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    const uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t pi_key[2] = {0xa4093822, 0x299f31d0};
    const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};

    (void)state;
    assert_philox(zeros, zeros, of_zeros);
    assert_philox(ones, ones, of_ones);
    assert_philox(pi, pi_key, of_pi);
}

static void uniform_numbers_come_from_counter_and_key(void **state)
{
    const struct rng_purpose zero = {.seed = 0, .site = 0, .layer = 0};

    (void)state;
    assert_int_equal(rng_uniform(&zero, 0), 0xe169c58d6627e8d5);
    assert_int_equal(rng_uniform(&zero, 1), 0x9b00dbd8bc57ac4c);
}

static int common_numbers(const struct rng_purpose *a, const struct rng_purpose *b)
{
    int common = 0;

    for (uint64_t i = 0; i < 100; i++) {
        for (uint64_t j = 0; j < 100; j++) {
            common += rng_uniform(a, i) == rng_uniform(b, j);
        }
    }
    return common;
}

static void purposes_share_no_number(void **state)
{
    const struct rng_purpose first = {1, 2, 3};
    const struct rng_purpose others[] = {
        {2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {(uint64_t)1 << 32 | 1, 2, 3}};

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(common_numbers(&first, &others[i]), 0);
    }
}

/* The estimates of n samples of N(0,1) are normal themselves, with variances 1/n for the mean,
 * 2/n for the second, 15/n for the third and 96/n for the fourth moment (E x^8 - 9 = 96); five
 * standard deviations leave one chance in a million, and the seed is fixed. */
static void normal_numbers_have_the_moments_of_a_normal_distribution(void **state)
{
    const struct rng_purpose purpose = {.seed = 7, .site = 1, .layer = 2};
    const size_t n = 400000;
    float *x = malloc(n * sizeof(*x));
    double moments[4] = {0.0, 0.0, 0.0, 0.0};
    double neighbours = 0.0;
    size_t within = 0;

    (void)state;
    assert_non_null(x);
    rng_fill_normal(&purpose, 0, n, 0.5F, x);
    for (size_t i = 0; i < n; i++) {
        const double z = (double)x[i] / 0.5;
        moments[0] += z;
        moments[1] += z * z;
        moments[2] += z * z * z;
        moments[3] += z * z * z * z;
        neighbours += i > 0 ? z * (double)x[i - 1] / 0.5 : 0.0;
        within += fabs(z) < 1.0;
    }
    const double root = sqrt((double)n);
    assert_true(fabs(moments[0] / (double)n) < 5.0 / root);
    assert_true(fabs(moments[1] / (double)n - 1.0) < 5.0 * sqrt(2.0) / root);
    assert_true(fabs(moments[2] / (double)n) < 5.0 * sqrt(15.0) / root);
    assert_true(fabs(moments[3] / (double)n - 3.0) < 5.0 * sqrt(96.0) / root);
    assert_true(fabs(neighbours / (double)n) < 5.0 / root);
    /* erf(1/sqrt 2) of them lie within one standard deviation. */
    assert_true(fabs((double)within / (double)n - 0.6826894921) < 5.0 * 0.4655 / root);
    free(x);
}

static void any_split_into_calls_gives_the_same_numbers(void **state)
{
    const struct rng_purpose purpose = {.seed = 42, .site = 9, .layer = 0};
    const uint64_t first = ((uint64_t)1 << 32) - 11; /* crosses a word of the counter */
    float whole[37];
    float pieces[37];

    (void)state;
    rng_fill_normal(&purpose, first, 37, 0.02F, whole);
    for (size_t size = 1; size <= 37; size++) {
        memset(pieces, 0xFF, sizeof(pieces));
        for (size_t at = 0; at < 37; at += size) {
            const size_t count = 37 - at < size ? 37 - at : size;
            rng_fill_normal(&purpose, first + at, count, 0.02F, pieces + at);
        }
        assert_memory_equal(whole, pieces, sizeof(whole));
    }
}

static void the_scale_is_the_standard_deviation(void **state)
{
    const struct rng_purpose purpose = {.seed = 1, .site = 1, .layer = 1};
    float one[16];
    float two[16];

    (void)state;
    rng_fill_normal(&purpose, 0, 16, 1.0F, one);
    rng_fill_normal(&purpose, 0, 16, 2.0F, two);
    for (size_t i = 0; i < 16; i++) {
        assert_true(two[i] == 2.0F * one[i]);
        assert_true(one[i] != 0.0F);
    }
}

static void an_order_is_a_bijection_for_every_count(void **state)
{
    const struct rng_purpose purpose = {.seed = 3, .site = 4, .layer = 0};
    const uint64_t counts[] = {1, 2, 3, 4, 5, 7, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4097};
    unsigned char seen[4097];

    (void)state;
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t i = 0; i < counts[k]; i++) {
                const uint64_t place = rng_permute(&purpose, epoch, counts[k], i);
                assert_true(place < counts[k]);
                assert_int_equal(seen[place], 0);
                seen[place] = 1;
            }
        }
    }
}

static void orders_of_huge_sets_stay_inside(void **state)
{
    const struct rng_purpose purpose = {.seed = 3, .site = 4, .layer = 0};
    const uint64_t counts[] = {UINT64_MAX, ((uint64_t)1 << 32) + 1, (uint64_t)1 << 40};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        for (uint64_t i = 0; i < 100; i++) {
            const uint64_t place = rng_permute(&purpose, 0, counts[k], i);
            assert_true(place < counts[k]);
            for (uint64_t j = 0; j < i; j++) {
                assert_int_not_equal(rng_permute(&purpose, 0, counts[k], j), place);
            }
        }
    }
}

static void orders_differ_by_epoch_and_purpose(void **state)
{
    const struct rng_purpose purpose = {.seed = 3, .site = 4, .layer = 0};
    const struct rng_purpose other = {.seed = 4, .site = 4, .layer = 0};
    size_t same_epoch = 0;
    size_t same_purpose = 0;
    size_t in_place = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t place = rng_permute(&purpose, 0, 1000, i);
        same_epoch += place == rng_permute(&purpose, 1, 1000, i);
        same_purpose += place == rng_permute(&other, 0, 1000, i);
        in_place += place == i;
    }
    /* One place in common is expected of two random orders; ten has a chance of one in 10^7. */
    assert_true(same_epoch < 10);
    assert_true(same_purpose < 10);
    assert_true(in_place < 10);
}

/* All six orders of three items should be about equally frequent over the epochs: each count is
 * binomial with mean 1000 and standard deviation 29. */
static void small_sets_see_all_their_orders(void **state)
{
    const struct rng_purpose purpose = {.seed = 11, .site = 4, .layer = 0};
    int counts[9] = {0};
    int orders = 0;

    (void)state;
    for (uint64_t epoch = 0; epoch < 6000; epoch++) {
        counts[3 * rng_permute(&purpose, epoch, 3, 0) + rng_permute(&purpose, epoch, 3, 1)]++;
    }
    for (int i = 0; i < 9; i++) {
        if (counts[i] > 0) {
            orders++;
            assert_in_range(counts[i], 850, 1150);
        }
    }
    assert_int_equal(orders, 6);
}

/* The mask's key is 64 bits of a counter, its numbers the eighths of other counters: by hand from the
 * generator, which the published vectors hold. */
static void mask_numbers_come_from_counter_and_key(void **state)
{
    const uint32_t counter[4] = {0x9ABCDEF0U, 0x12345678U, 5, 6};
    const uint32_t seed[2] = {7, 8};
    const struct rng_mask mask =
        rng_mask_of(UINT64_C(8) << 32 | 7, 5, 6, UINT64_C(0x123456789ABCDEF0));
    uint32_t key[4];

    (void)state;
    rng_philox(counter, seed, key);
    assert_int_equal(mask.key, key[0] | (uint64_t)key[1] << 32);
    for (uint32_t block = 0; block < 5; block++) {
        const uint32_t at[4] = {block, 3, 0, 0};
        uint32_t words[4];
        uint16_t numbers[8];
        rng_philox(at, key, words);
        for (int i = 0; i < 8; i++) {
            numbers[i] = rng_mask_number(mask, ((UINT64_C(3) << 32) + block) * 8 + (uint64_t)i);
            assert_int_equal(numbers[i], i % 2 == 0 ? words[i / 2] & 0xFFFFU : words[i / 2] >> 16);
        }
    }
    /* The published vector of zeros, as eight numbers. */
    const uint16_t zeros[8] = {0xe8d5, 0x6627, 0xc58d, 0xe169, 0xac4c, 0xbc57, 0xdbd8, 0x9b00};
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(rng_mask_number((struct rng_mask){0}, i), zeros[i]);
    }
}

/* Of n numbers, those below the threshold are binomial; five standard deviations. */
static void a_mask_drops_as_often_as_it_says(void **state)
{
    const double probabilities[] = {0.1, 0.5, 0.9};
    const size_t n = 100000;

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        const double p = probabilities[k];
        const uint32_t threshold = rng_mask_threshold(p);
        const struct rng_mask mask = rng_mask_of(1, 2, 3, k);
        size_t dropped = 0;
        size_t both = 0; /* of two neighbours */
        int last = 0;
        for (uint64_t i = 0; i < n; i++) {
            const int drops = rng_mask_number(mask, i) < threshold;
            dropped += (size_t)drops;
            both += (size_t)(drops && last);
            last = drops;
        }
        assert_true(fabs((double)dropped / (double)n - p) < 5.0 * sqrt(p * (1 - p) / (double)n));
        assert_true(fabs((double)both / (double)n - p * p) < 10.0 * sqrt(p * p / (double)n));
    }
}

static void masks_of_different_samples_sites_and_layers_differ(void **state)
{
    const struct rng_mask masks[] = {rng_mask_of(1, 2, 3, 4),
                                     rng_mask_of(2, 2, 3, 4),
                                     rng_mask_of(1, 3, 3, 4),
                                     rng_mask_of(1, 2, 4, 4),
                                     rng_mask_of(1, 2, 3, 5),
                                     rng_mask_of(1, 2, 3, 4 + (UINT64_C(1) << 32)),
                                     rng_mask_of(1 + (UINT64_C(1) << 32), 2, 3, 4)};

    (void)state;
    for (size_t a = 0; a < 7; a++) {
        for (size_t b = 0; b < a; b++) {
            size_t equal = 0;
            for (uint64_t i = 0; i < 1000; i++) {
                equal += rng_mask_number(masks[a], i) == rng_mask_number(masks[b], i);
            }
            assert_true(equal < 3); /* 1000 / 65536 are expected */
        }
    }
}

static void a_threshold_is_the_nearest_and_keeps_something(void **state)
{
    (void)state;
    assert_int_equal(rng_mask_threshold(0.0), 0);
    assert_int_equal(rng_mask_threshold(0.1), 6554); /* 6553.6 */
    assert_int_equal(rng_mask_threshold(0.5), 32768);
    assert_int_equal(rng_mask_threshold(1e-6), 0);
    assert_int_equal(rng_mask_threshold(0.9999999), 65535);
    assert_true(rng_mask_scale(0) == 1.0F);
    assert_true(rng_mask_scale(32768) == 2.0F);
    assert_true(rng_mask_scale(65535) == 65536.0F);
    assert_true(rng_mask_scale(6554) == (float)(65536.0 / 58982.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(uniform_numbers_come_from_counter_and_key),
        cmocka_unit_test(purposes_share_no_number),
        cmocka_unit_test(normal_numbers_have_the_moments_of_a_normal_distribution),
        cmocka_unit_test(any_split_into_calls_gives_the_same_numbers),
        cmocka_unit_test(the_scale_is_the_standard_deviation),
        cmocka_unit_test(an_order_is_a_bijection_for_every_count),
        cmocka_unit_test(orders_of_huge_sets_stay_inside),
        cmocka_unit_test(orders_differ_by_epoch_and_purpose),
        cmocka_unit_test(small_sets_see_all_their_orders),
        cmocka_unit_test(mask_numbers_come_from_counter_and_key),
        cmocka_unit_test(a_mask_drops_as_often_as_it_says),
        cmocka_unit_test(masks_of_different_samples_sites_and_layers_differ),
        cmocka_unit_test(a_threshold_is_the_nearest_and_keeps_something),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
