/* Lines for people: fields, units, the cut, and the bar on a terminal alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "stages/console.h"

static void fields_are_joined_by_bars(void **state)
{
    struct console_line line;

    (void)state;
    console_line_begin(&line);
    assert_string_equal(line.text, "");
    console_line_add(&line, "step %d/%d", 120, 2000);
    assert_string_equal(line.text, "step 120/2000");
    console_line_add(&line, "loss %.4f", 3.412);
    console_line_add_time(&line, "eta ", 773.0);
    assert_string_equal(line.text, "step 120/2000 | loss 3.4120 | eta 0:12:53");
    assert_int_equal(line.used, strlen(line.text));
    console_line_begin(&line);
    assert_string_equal(line.text, "");
}

static void rates_have_at_most_three_digits_before_their_letter(void **state)
{
    static const struct {
        double rate;
        const char *text;
    } cases[] = {
        {0.0, "0.0 tok/s"},        {7.26, "7.3 tok/s"},     {512.0, "512 tok/s"},
        {999.4, "999 tok/s"},      {999.7, "1.0k tok/s"},   {1000.0, "1.0k tok/s"},
        {79400.0, "79.4k tok/s"},  {99970.0, "100k tok/s"}, {999600.0, "1.0M tok/s"},
        {1.2e9, "1.2G tok/s"},     {3.5e13, "35.0T tok/s"}, {2e15, "2.0P tok/s"},
        {4.56e19, "45600P tok/s"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct console_line line;

        console_line_begin(&line);
        console_line_add_rate(&line, cases[i].rate, "tok/s");
        assert_string_equal(line.text, cases[i].text);
    }
}

static void bytes_and_times_follow_their_label(void **state)
{
    struct console_line line;

    (void)state;
    console_line_begin(&line);
    console_line_add_bytes(&line, "mem ", 1200000000);
    console_line_add_bytes(&line, "mem ", 340000000);
    console_line_add_time(&line, "eta ", 0.4);
    console_line_add_time(&line, "eta ", 59.6);
    console_line_add_time(&line, "eta ", 360000.0 + 61.0);
    assert_string_equal(line.text,
                        "mem 1.2G | mem 340M | eta 0:00:00 | eta 0:01:00 | eta 100:01:01");
}

/* A first field around the line's length, and more behind it: the line holds what fits. */
static void a_line_is_cut_and_never_overrun(void **state)
{
    static char field[2 * CONSOLE_LINE_BYTES];

    (void)state;
    for (size_t length = CONSOLE_LINE_BYTES - 8; length < CONSOLE_LINE_BYTES + 2; length++) {
        struct {
            struct console_line line;
            char behind[8];
        } box;

        memset(&box, '~', sizeof(box));
        memset(field, 'x', length);
        field[length] = '\0';
        console_line_begin(&box.line);
        console_line_add(&box.line, "%s", field);
        for (int i = 0; i < 4; i++) {
            console_line_add(&box.line, "field %d", i);
        }
        assert_int_equal(box.line.used, CONSOLE_LINE_BYTES - 1);
        assert_int_equal(strlen(box.line.text), CONSOLE_LINE_BYTES - 1);
        assert_memory_equal(box.behind, "~~~~~~~~", sizeof(box.behind));
    }
}

static void a_file_gets_lines_and_no_bar(void **state)
{
    struct console console;
    struct console_line line;
    char text[64] = "";
    FILE *file = tmpfile();

    (void)state;
    assert_non_null(file);
    console_init(&console, file);
    assert_false(console.terminal);
    console_bar(&console, 1, 2);
    console_line_begin(&line);
    console_line_add(&line, "100%% of %s", "it");
    console_print(&console, &line);
    console_end(&console);
    rewind(file);
    assert_int_equal(fread(text, 1, sizeof(text) - 1, file), strlen("100% of it\n"));
    assert_string_equal(text, "100% of it\n");
    assert_int_equal(fclose(file), 0);
}

/* What a console that is told to be a terminal writes. */
static void a_terminal_gets_a_bar_that_is_erased_before_each_line(void **state)
{
    struct console console;
    struct console_line line;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(file);
    console_init(&console, file);
    console.terminal = true;
    console_bar(&console, 5, 20);
    console_line_begin(&line);
    console_line_add(&line, "line");
    console_print(&console, &line);
    console_bar(&console, 40, 20);
    console_end(&console);
    console_end(&console);
    console_bar(&console, 0, 0);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "\r[##########..............................] 5/20"
                              "\r\033[Kline\n"
                              "\r[########################################] 40/20"
                              "\r\033[K"
                              "\r[........................................] 0/0");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_joined_by_bars),
        cmocka_unit_test(rates_have_at_most_three_digits_before_their_letter),
        cmocka_unit_test(bytes_and_times_follow_their_label),
        cmocka_unit_test(a_line_is_cut_and_never_overrun),
        cmocka_unit_test(a_file_gets_lines_and_no_bar),
        cmocka_unit_test(a_terminal_gets_a_bar_that_is_erased_before_each_line),
    };

    return cmocka_run_group_tests_name("console", tests, NULL, NULL);
}
