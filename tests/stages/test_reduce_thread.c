/* A thread that does one item after another: order, waits, failures, the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "stages/reduce_thread.h"

#define ITEMS 64
#define SOON  (30 * CLOCK_SECOND)

struct work {
    int32_t done[ITEMS];
    int count;
    int32_t fails_at; /* item, or -1 */
    int held;         /* atomic: items wait while it is set */
};

static enum status take(void *context, int32_t item)
{
    struct work *work = context;

    while (__atomic_load_n(&work->held, __ATOMIC_ACQUIRE) != 0) {
        clock_sleep_ns(CLOCK_MS);
    }
    if (item == work->fails_at) {
        return status_fail(STATUS_ERR_PEER, "item %d does not work", (int)item);
    }
    work->done[work->count++] = item;
    return STATUS_OK;
}

static void items_are_done_in_the_order_in_which_they_come(void **state)
{
    struct work work = {.fails_at = -1, .held = 1};
    struct reduce_thread *thread = NULL;

    (void)state;
    assert_int_equal(reduce_thread_open(take, &work, ITEMS, &thread), STATUS_OK);
    for (int round = 0; round < 2; round++) {
        work.count = 0;
        for (int32_t i = 0; i < ITEMS; i++) {
            assert_int_equal(reduce_thread_give(thread, 7 * i), round * ITEMS + i + 1);
        }
        __atomic_store_n(&work.held, 0, __ATOMIC_RELEASE);
        assert_int_equal(reduce_thread_wait(thread, (int64_t)(round + 1) * ITEMS, SOON), STATUS_OK);
        assert_int_equal(work.count, ITEMS);
        for (int32_t i = 0; i < ITEMS; i++) {
            assert_int_equal(work.done[i], 7 * i);
        }
    }
    reduce_thread_close(&thread);
    assert_null(thread);
    reduce_thread_close(&thread);
}

/* The wait is for the first items alone. */
static void a_wait_ends_when_its_items_have_ended(void **state)
{
    struct work work = {.fails_at = -1};
    struct reduce_thread *thread = NULL;

    (void)state;
    assert_int_equal(reduce_thread_open(take, &work, 4, &thread), STATUS_OK);
    assert_int_equal(reduce_thread_wait(thread, 0, SOON), STATUS_OK);
    assert_int_equal(reduce_thread_give(thread, 1), 1);
    assert_int_equal(reduce_thread_wait(thread, 1, SOON), STATUS_OK);
    __atomic_store_n(&work.held, 1, __ATOMIC_RELEASE);
    assert_int_equal(reduce_thread_give(thread, 2), 2);
    assert_int_equal(reduce_thread_wait(thread, 1, SOON), STATUS_OK);
    assert_int_equal(reduce_thread_wait(thread, 2, 20 * CLOCK_MS), STATUS_IN_PROGRESS);
    assert_int_equal(reduce_thread_wait(thread, 2, 0), STATUS_IN_PROGRESS);
    __atomic_store_n(&work.held, 0, __ATOMIC_RELEASE);
    assert_int_equal(reduce_thread_wait(thread, 2, SOON), STATUS_OK);
    reduce_thread_close(&thread);
}

static void after_a_failure_nothing_is_begun_and_every_wait_says_why(void **state)
{
    struct work work = {.fails_at = 2};
    struct reduce_thread *thread = NULL;

    (void)state;
    assert_int_equal(reduce_thread_open(take, &work, 4, &thread), STATUS_OK);
    (void)reduce_thread_give(thread, 1);
    (void)reduce_thread_give(thread, 2);
    (void)reduce_thread_give(thread, 3);
    for (int i = 0; i < 2; i++) {
        (void)status_note(STATUS_ERR_IO, "another one");
        assert_int_equal(reduce_thread_wait(thread, 3, SOON), STATUS_ERR_PEER);
        assert_string_equal(status_last()->message, "item 2 does not work");
    }
    (void)reduce_thread_give(thread, 4);
    reduce_thread_close(&thread);
    assert_int_equal(work.count, 1);
    assert_int_equal(work.done[0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_done_in_the_order_in_which_they_come),
        cmocka_unit_test(a_wait_ends_when_its_items_have_ended),
        cmocka_unit_test(after_a_failure_nothing_is_begun_and_every_wait_says_why),
    };

    return cmocka_run_group_tests_name("reduce_thread", tests, NULL, NULL);
}
