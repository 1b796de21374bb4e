#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/base/capture.h"

static void a_line_bears_level_and_process(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    (void)setenv("WEIR_LOG", "info", 1);
    log_name_process("stage 1");
    capture_begin(&capture);
    log_error("no %s", "space");
    log_warn("slow");
    log_info("ready");
    log_debug("hidden");
    capture_end(&capture, text, sizeof(text));
    log_name_process("");
    assert_string_equal(text, "[stage 1] error: no space\n"
                              "[stage 1] warning: slow\n"
                              "[stage 1] ready\n");
}

static void without_a_name_there_is_no_prefix(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    capture_begin(&capture);
    log_info("ready");
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "ready\n");
}

static void the_variable_chooses_the_level(void **state)
{
    (void)state;
    (void)setenv("WEIR_LOG", "error", 1);
    assert_true(log_wants(LOG_ERROR));
    assert_false(log_wants(LOG_WARN));
    (void)setenv("WEIR_LOG", "debug", 1);
    assert_true(log_wants(LOG_DEBUG));
    (void)setenv("WEIR_LOG", "nonsense", 1);
    assert_true(log_wants(LOG_INFO));
    assert_false(log_wants(LOG_DEBUG));
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
    struct capture capture;
    char text[8192];
    char message[4000];

    (void)state;
    memset(message, 'x', sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    capture_begin(&capture);
    log_error("%s", message);
    log_error("next");
    capture_end(&capture, text, sizeof(text));
    size_t first = strcspn(text, "\n");
    assert_in_range(first, 1000, 2048);
    assert_string_equal(text + first, "\nerror: next\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_bears_level_and_process),
        cmocka_unit_test(without_a_name_there_is_no_prefix),
        cmocka_unit_test(the_variable_chooses_the_level),
        cmocka_unit_test(a_long_line_is_cut_and_still_ends),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
