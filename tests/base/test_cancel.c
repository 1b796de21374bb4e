#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>

#include "base/cancel.h"
#include "base/clock.h"

static void a_fresh_cancel_lets_waits_go_on(void **state)
{
    struct cancel cancel = {0};

    (void)state;
    assert_false(cancel_requested(&cancel));
    assert_int_equal(cancel_check(&cancel, CLOCK_NEVER), STATUS_OK);
    assert_int_equal(cancel_check(&cancel, clock_deadline(3600.0)), STATUS_OK);
}

static void no_cancel_at_all_is_never_requested(void **state)
{
    (void)state;
    assert_false(cancel_requested(NULL));
    assert_int_equal(cancel_check(NULL, CLOCK_NEVER), STATUS_OK);
}

static void a_passed_deadline_is_a_time_out(void **state)
{
    struct cancel cancel = {0};

    (void)state;
    assert_int_equal(cancel_check(&cancel, clock_now_ns() - 1), STATUS_ERR_TIMEOUT);
    assert_int_equal(cancel_check(NULL, 0), STATUS_ERR_TIMEOUT);
}

static void a_request_wins_over_the_deadline_and_may_repeat(void **state)
{
    struct cancel cancel = {0};

    (void)state;
    cancel_request(&cancel);
    cancel_request(&cancel);
    assert_true(cancel_requested(&cancel));
    assert_int_equal(cancel_check(&cancel, 0), STATUS_ERR_CANCELLED);
}

static void *request(void *cancel)
{
    cancel_request(cancel);
    return NULL;
}

static void a_request_of_another_thread_ends_a_wait(void **state)
{
    struct cancel cancel = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, request, &cancel), 0);
    while (cancel_check(&cancel, CLOCK_NEVER) == STATUS_OK) {
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(cancel_check(&cancel, CLOCK_NEVER), STATUS_ERR_CANCELLED);
}

static struct cancel of_signal;

static void on_signal(int number)
{
    (void)number;
    cancel_request(&of_signal);
}

static void a_signal_handler_may_request_it(void **state)
{
    struct sigaction action = {.sa_handler = on_signal};

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_true(cancel_requested(&of_signal));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_cancel_lets_waits_go_on),
        cmocka_unit_test(no_cancel_at_all_is_never_requested),
        cmocka_unit_test(a_passed_deadline_is_a_time_out),
        cmocka_unit_test(a_request_wins_over_the_deadline_and_may_repeat),
        cmocka_unit_test(a_request_of_another_thread_ends_a_wait),
        cmocka_unit_test(a_signal_handler_may_request_it),
    };

    return cmocka_run_group_tests_name("cancel", tests, NULL, NULL);
}
