#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "base/clock.h"

static int64_t monotonic_ns(void)
{
    struct timespec now;

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void now_lies_between_two_looks_at_the_system_clock(void **state)
{
    int64_t before = monotonic_ns();
    int64_t now = clock_now_ns();
    int64_t after = monotonic_ns();

    (void)state;
    assert_true(before <= now && now <= after);
}

static void a_deadline_is_that_many_seconds_away(void **state)
{
    int64_t before = clock_now_ns();
    int64_t deadline = clock_deadline(2.5);
    int64_t after = clock_now_ns();

    (void)state;
    assert_true(deadline >= before + 2500000000 && deadline <= after + 2500000000);
}

static void a_negative_time_never_comes(void **state)
{
    (void)state;
    assert_true(clock_deadline(-1.0) == CLOCK_NEVER);
}

static void a_sleep_is_at_least_as_long_as_asked(void **state)
{
    int64_t before = clock_now_ns();

    (void)state;
    clock_sleep_ns(2 * CLOCK_MS);
    assert_true(clock_now_ns() - before >= 2000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(now_lies_between_two_looks_at_the_system_clock),
        cmocka_unit_test(a_deadline_is_that_many_seconds_away),
        cmocka_unit_test(a_negative_time_never_comes),
        cmocka_unit_test(a_sleep_is_at_least_as_long_as_asked),
    };

    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
