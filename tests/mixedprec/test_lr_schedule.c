#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "mixedprec/lr_schedule.h"

static const struct lr_schedule usual = {
    .kind = LR_COSINE,
    .max = 1e-3,
    .min = 1e-4,
    .warmup_updates = 10,
    .decay_updates = 110,
    .wsd_decay_updates = 20,
};

static void assert_close(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-15)) {
        fail_msg("got %.17g, expected %.17g", got, expected);
    }
}

static void test_first_update_of_the_warm_up_is_not_zero_and_the_peak_is_met_once(void **state)
{
    int peaks = 0;

    (void)state;
    for (int kind = LR_CONSTANT; kind <= LR_INVERSE_SQRT; kind++) {
        struct lr_schedule schedule = usual;

        schedule.kind = (enum lr_kind)kind;
        for (int64_t k = 1; k <= 10; k++) {
            assert_close(lr_schedule_at(&schedule, k), 1e-4 * (double)k);
        }
    }
    for (int64_t k = 1; k <= 200; k++) {
        peaks += lr_schedule_at(&usual, k) == 1e-3 ? 1 : 0;
    }
    assert_int_equal(peaks, 1);
}

static void test_cosine_passes_its_hand_computed_points(void **state)
{
    (void)state;
    assert_close(lr_schedule_at(&usual, 60), 1e-4 + 9e-4 * 0.5);
    assert_close(lr_schedule_at(&usual, 35), 1e-4 + 9e-4 * (1.0 + sqrt(0.5)) / 2.0);
    assert_close(lr_schedule_at(&usual, 110), 1e-4);
    assert_close(lr_schedule_at(&usual, 5000), 1e-4);
}

static void test_linear_falls_evenly(void **state)
{
    struct lr_schedule schedule = usual;

    (void)state;
    schedule.kind = LR_LINEAR;
    assert_close(lr_schedule_at(&schedule, 35), 1e-3 - 9e-4 * 0.25);
    assert_close(lr_schedule_at(&schedule, 85), 1e-3 - 9e-4 * 0.75);
    assert_close(lr_schedule_at(&schedule, 110), 1e-4);
}

static void test_constant_stays(void **state)
{
    struct lr_schedule schedule = usual;

    (void)state;
    schedule.kind = LR_CONSTANT;
    assert_close(lr_schedule_at(&schedule, 11), 1e-3);
    assert_close(lr_schedule_at(&schedule, 9999), 1e-3);
}

static void test_wsd_stays_and_falls_over_its_last_updates(void **state)
{
    struct lr_schedule schedule = usual;

    (void)state;
    schedule.kind = LR_WSD;
    assert_close(lr_schedule_at(&schedule, 11), 1e-3);
    assert_close(lr_schedule_at(&schedule, 90), 1e-3);
    assert_close(lr_schedule_at(&schedule, 100), 1e-3 - 9e-4 * 0.5);
    assert_close(lr_schedule_at(&schedule, 110), 1e-4);
}

static void test_inverse_sqrt_halves_at_four_times_the_warm_up(void **state)
{
    struct lr_schedule schedule = usual;

    (void)state;
    schedule.kind = LR_INVERSE_SQRT;
    schedule.min = 0.0;
    assert_close(lr_schedule_at(&schedule, 40), 0.5e-3);
    assert_close(lr_schedule_at(&schedule, 160), 0.25e-3);
    schedule.min = 4e-4;
    assert_close(lr_schedule_at(&schedule, 160), 4e-4);
}

static void test_no_warm_up_begins_at_the_peak(void **state)
{
    struct lr_schedule schedule = usual;

    (void)state;
    schedule.warmup_updates = 0;
    schedule.kind = LR_LINEAR;
    assert_close(lr_schedule_at(&schedule, 1), 1e-3 - 9e-4 / 110.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_update_of_the_warm_up_is_not_zero_and_the_peak_is_met_once),
        cmocka_unit_test(test_cosine_passes_its_hand_computed_points),
        cmocka_unit_test(test_linear_falls_evenly),
        cmocka_unit_test(test_constant_stays),
        cmocka_unit_test(test_wsd_stays_and_falls_over_its_last_updates),
        cmocka_unit_test(test_inverse_sqrt_halves_at_four_times_the_warm_up),
        cmocka_unit_test(test_no_warm_up_begins_at_the_peak),
    };

    return cmocka_run_group_tests_name("lr_schedule", tests, NULL, NULL);
}
