/* Weight decay from update to update, against its closed forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "mixedprec/wd_schedule.h"

static void assert_close(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-15)) {
        fail_msg("got %.17g, expected %.17g", got, expected);
    }
}

static void constant_stays_at_the_start(void **state)
{
    const struct wd_schedule schedule = {.kind = WD_CONSTANT, .start = 0.1, .end = 0.7};

    (void)state;
    assert_true(wd_schedule_at(&schedule, 1) == 0.1);
    assert_true(wd_schedule_at(&schedule, 100000) == 0.1);
}

static void linear_moves_evenly_and_ends_at_the_end(void **state)
{
    const struct wd_schedule schedule = {.kind = WD_LINEAR, .start = 0.1, .end = 0.5, .updates = 8};

    (void)state;
    assert_close(wd_schedule_at(&schedule, 1), 0.15);
    assert_close(wd_schedule_at(&schedule, 2), 0.2);
    assert_close(wd_schedule_at(&schedule, 7), 0.45);
    assert_true(wd_schedule_at(&schedule, 8) == 0.5);
    assert_true(wd_schedule_at(&schedule, 9) == 0.5);
}

/* cos π(1-x) at x = 1/4, 1/3, 1/2, 3/4: -√½, -½, 0, √½. */
static void cosine_passes_its_hand_computed_points(void **state)
{
    const struct wd_schedule schedule = {
        .kind = WD_COSINE, .start = 0.1, .end = 0.5, .updates = 12};

    (void)state;
    assert_close(wd_schedule_at(&schedule, 3), 0.1 + 0.2 * (1.0 - sqrt(0.5)));
    assert_close(wd_schedule_at(&schedule, 4), 0.2);
    assert_close(wd_schedule_at(&schedule, 6), 0.3);
    assert_close(wd_schedule_at(&schedule, 9), 0.1 + 0.2 * (1.0 + sqrt(0.5)));
    assert_true(wd_schedule_at(&schedule, 12) == 0.5);
    assert_true(wd_schedule_at(&schedule, 13) == 0.5);
}

static void it_may_fall(void **state)
{
    struct wd_schedule schedule = {.kind = WD_LINEAR, .start = 0.5, .end = 0.0, .updates = 2};

    (void)state;
    assert_close(wd_schedule_at(&schedule, 1), 0.25);
    assert_true(wd_schedule_at(&schedule, 2) == 0.0);
    schedule.kind = WD_COSINE;
    assert_close(wd_schedule_at(&schedule, 1), 0.25);
    assert_true(wd_schedule_at(&schedule, 2) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_stays_at_the_start),
        cmocka_unit_test(linear_moves_evenly_and_ends_at_the_end),
        cmocka_unit_test(cosine_passes_its_hand_computed_points),
        cmocka_unit_test(it_may_fall),
    };

    return cmocka_run_group_tests_name("wd_schedule", tests, NULL, NULL);
}
