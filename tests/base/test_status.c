#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tests/base/capture.h"

static void a_failure_is_recorded_and_logged_once(void **state)
{
    struct capture capture;
    char text[512];

    (void)state;
    capture_begin(&capture);
    enum status status =
        status_fail(STATUS_ERR_IO, "reading %s: expected %d, found %d", "a.bin", 3, 4);
    int line = __LINE__ - 1;
    capture_end(&capture, text, sizeof(text));

    assert_int_equal(status, STATUS_ERR_IO);
    assert_int_equal(status_last()->code, STATUS_ERR_IO);
    assert_string_equal(status_last()->message, "reading a.bin: expected 3, found 4");
    assert_non_null(strstr(status_last()->file, "test_status.c"));
    assert_in_range(status_last()->line, line - 1, line);
    assert_string_equal(text, "error: reading a.bin: expected 3, found 4\n");
}

static void a_note_is_recorded_and_not_logged(void **state)
{
    struct capture capture;
    char text[64];

    (void)state;
    capture_begin(&capture);
    assert_int_equal(status_note(STATUS_ERR_REFUSED, "no %s", "x"), STATUS_ERR_REFUSED);
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "");
    assert_string_equal(status_last()->message, "no x");
}

static void a_hushed_thread_records_and_logs_nothing(void **state)
{
    struct capture capture;
    char text[64];

    (void)state;
    capture_begin(&capture);
    status_hush(true);
    status_hush(true);
    status_hush(false);
    assert_int_equal(status_fail(STATUS_ERR_REFUSED, "no %s", "y"), STATUS_ERR_REFUSED);
    status_hush(false);
    assert_string_equal(status_last()->message, "no y");
    (void)status_fail(STATUS_ERR_IO, "loud");
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "error: loud\n");
}

static void a_message_may_be_made_from_the_last_one(void **state)
{
    (void)state;
    (void)status_note(STATUS_ERR_IO, "disk full");
    (void)status_note(STATUS_ERR_PEER, "rank 3 failed: %s", status_last()->message);
    assert_string_equal(status_last()->message, "rank 3 failed: disk full");
}

static void a_long_message_is_cut_and_not_overrun(void **state)
{
    char long_text[2 * STATUS_MESSAGE_BYTES];

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    (void)status_note(STATUS_ERR_IO, "%s", long_text);
    assert_int_equal(strlen(status_last()->message), STATUS_MESSAGE_BYTES - 1);
}

static void *fail_elsewhere(void *record)
{
    (void)status_note(STATUS_ERR_FORMAT, "on another thread");
    *(struct status_record *)record = *status_last();
    return NULL;
}

static void each_thread_has_its_own_record_and_hands_it_over(void **state)
{
    struct status_record record;
    pthread_t thread;

    (void)state;
    (void)status_note(STATUS_ERR_IO, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &record), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(status_last()->message, "here");
    status_adopt(&record);
    assert_int_equal(status_last()->code, STATUS_ERR_FORMAT);
    assert_string_equal(status_last()->message, "on another thread");
}

static void every_code_has_a_name_and_a_text(void **state)
{
    (void)state;
    assert_string_equal(status_name(STATUS_OK), "OK");
    assert_string_equal(status_name(STATUS_ERR_NO_MEMORY), "ERR_NO_MEMORY");
    assert_string_equal(status_text(STATUS_ERR_NO_MEMORY), "out of memory");
    for (int code = STATUS_ERR_NUMERIC; code <= STATUS_IN_PROGRESS; code++) {
        assert_string_not_equal(status_name((enum status)code), "?");
        assert_string_not_equal(status_text((enum status)code), "?");
    }
    assert_string_equal(status_name((enum status)99), "?");
    assert_string_equal(status_text((enum status)99), "?");
}

static enum status pass_on(enum status inner, int *reached)
{
    TRY(inner);
    *reached = 1;
    return STATUS_OK;
}

static enum status pass_on_through_cleanup(enum status inner, int *cleaned)
{
    enum status status = STATUS_OK;

    TRY_OR(done, status, inner);
    status = STATUS_IN_PROGRESS;
done:
    *cleaned = 1;
    return status;
}

static void try_leaves_on_failures_only(void **state)
{
    int reached = 0;
    int cleaned = 0;

    (void)state;
    assert_int_equal(pass_on(STATUS_ERR_PEER, &reached), STATUS_ERR_PEER);
    assert_int_equal(reached, 0);
    assert_int_equal(pass_on(STATUS_IN_PROGRESS, &reached), STATUS_OK);
    assert_int_equal(reached, 1);
    assert_int_equal(pass_on_through_cleanup(STATUS_ERR_PEER, &cleaned), STATUS_ERR_PEER);
    assert_int_equal(cleaned, 1);
    assert_int_equal(pass_on_through_cleanup(STATUS_OK, &cleaned), STATUS_IN_PROGRESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_recorded_and_logged_once),
        cmocka_unit_test(a_note_is_recorded_and_not_logged),
        cmocka_unit_test(a_hushed_thread_records_and_logs_nothing),
        cmocka_unit_test(a_message_may_be_made_from_the_last_one),
        cmocka_unit_test(a_long_message_is_cut_and_not_overrun),
        cmocka_unit_test(each_thread_has_its_own_record_and_hands_it_over),
        cmocka_unit_test(every_code_has_a_name_and_a_text),
        cmocka_unit_test(try_leaves_on_failures_only),
    };

    (void)setenv("WEIR_LOG", "error", 1);
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
