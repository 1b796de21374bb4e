/* metrics.jsonl between two attempts: where it ends, and cut back to a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "stages/metrics_file.h"
#include "tests/stages/checkpoint_folder.h"

#define NAME "metrics.jsonl"

static const char old_lines[] = "{\"model\":{}}\n"
                                "{\"step\":1,\"loss\":5.5}\n"
                                "{\"step\":2,\"loss\":null,\"cause\":\"a { in it }\"}\n"
                                "{\"step\":3,\"loss\":3.5}\n";

static void assert_lines(const char *expected)
{
    char *text = NULL;
    size_t count = 0;

    assert_int_equal(file_read(checkpoint_folder_path(NAME), 4096, &text, &count), STATUS_OK);
    assert_string_equal(text, expected);
    free(text);
}

static int64_t last(void)
{
    return metrics_file_last(checkpoint_folder_path(NAME));
}

static enum status cut(int64_t step)
{
    return metrics_file_cut(checkpoint_folder_path(NAME), "{\"new\":1}", step);
}

static void the_lines_up_to_the_step_stay_as_they_are_behind_a_new_first_line(void **state)
{
    (void)state;
    checkpoint_folder_write(NAME, old_lines);
    assert_int_equal(last(), 3);
    assert_int_equal(cut(2), STATUS_OK);
    assert_lines("{\"new\":1}\n"
                 "{\"step\":1,\"loss\":5.5}\n"
                 "{\"step\":2,\"loss\":null,\"cause\":\"a { in it }\"}\n");
    assert_int_equal(last(), 2);
    assert_int_equal(cut(0), STATUS_OK);
    assert_lines("{\"new\":1}\n");
    assert_int_equal(last(), 0);
}

/* A process that died in the middle of a line, at each of its bytes. */
static void half_a_line_is_none(void **state)
{
    char text[sizeof(old_lines)];
    size_t whole = strlen(old_lines);

    (void)state;
    for (size_t bytes = whole - 1; old_lines[bytes - 1] != '\n'; bytes--) {
        memcpy(text, old_lines, sizeof(text));
        text[bytes] = '\0';
        checkpoint_folder_write(NAME, text);
        assert_int_equal(last(), 2);
        assert_int_equal(cut(3), STATUS_OK);
        assert_int_equal(last(), 2);
    }
}

static void no_file_is_one_without_lines(void **state)
{
    (void)state;
    assert_int_equal(last(), 0);
    assert_int_equal(cut(5), STATUS_OK);
    assert_lines("{\"new\":1}\n");
    assert_int_equal(metrics_file_cut(checkpoint_folder_path("none/" NAME), "{}", 1),
                     STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "none/" NAME));
}

#define FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, checkpoint_folder_make, checkpoint_folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER(the_lines_up_to_the_step_stay_as_they_are_behind_a_new_first_line),
        FOLDER(half_a_line_is_none),
        FOLDER(no_file_is_one_without_lines),
    };

    return cmocka_run_group_tests_name("metrics_file", tests, NULL, NULL);
}
