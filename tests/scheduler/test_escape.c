/* Any text made safe for JSON and XML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/escape.h"

#define REPLACEMENT "\xef\xbf\xbd"

static void assert_json(const char *text, const char *expected)
{
    char out[256];

    assert_int_equal(escape_json(text, out, sizeof(out)), strlen(expected));
    assert_string_equal(out, expected);
}

static void assert_xml(const char *text, const char *expected)
{
    char out[256];

    assert_int_equal(escape_xml(text, out, sizeof(out)), strlen(expected));
    assert_string_equal(out, expected);
}

static void json_escapes_what_json_must(void **state)
{
    (void)state;
    assert_json("", "");
    assert_json("plain 1f1b", "plain 1f1b");
    assert_json("\"\\/", "\\\"\\\\/");
    assert_json("a\nb\tc\rd", "a\\nb\\tc\\rd");
    assert_json("\x01\x1f\x7f", "\\u0001\\u001f\\u007f");
}

static void xml_escapes_what_xml_must(void **state)
{
    (void)state;
    assert_xml("a<b>&\"'", "a&lt;b&gt;&amp;&quot;&#39;");
    assert_xml("a\nb", "a b");
    assert_xml("\x01", REPLACEMENT);
}

static void valid_utf_8_stays(void **state)
{
    /* Two, three and four bytes, and the ends of the ranges. */
    const char *text = "\xc2\x80 \xc3\xa9 \xe2\x82\xac \xed\x9f\xbf \xee\x80\x80 \xf0\x90\x80\x80 "
                       "\xf4\x8f\xbf\xbf";

    (void)state;
    assert_json(text, text);
    assert_xml(text, text);
}

static void each_byte_that_is_not_utf_8_is_replaced(void **state)
{
    (void)state;
    assert_json("\xff", REPLACEMENT);
    assert_json("\xc3", REPLACEMENT);                                 /* cut */
    assert_json("\xe2\x82", REPLACEMENT REPLACEMENT);                 /* cut */
    assert_json("\xc0\xaf", REPLACEMENT REPLACEMENT);                 /* too long a form of '/' */
    assert_json("\xed\xa0\x80", REPLACEMENT REPLACEMENT REPLACEMENT); /* a surrogate */
    assert_json("\xf4\x90\x80\x80", REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT);
    assert_json("\x80z", REPLACEMENT "z");
}

static void every_pair_of_bytes_gives_strict_json(void **state)
{
    (void)state;
    for (int first = 1; first < 256; first++) {
        for (int second = 0; second < 256; second++) {
            const char text[3] = {(char)first, (char)second, '\0'};
            char out[64] = "[\"";
            size_t used = 2 + escape_json(text, out + 2, sizeof(out) - 4);
            json_t *parsed = NULL;

            memcpy(out + used, "\"]", 3);
            parsed = json_loads(out, 0, NULL);
            assert_non_null(parsed);
            json_decref(parsed);
        }
    }
}

static void what_does_not_fit_is_left_out_by_whole_characters(void **state)
{
    char out[8];

    (void)state;
    assert_int_equal(escape_json("abcdef\"x", out, 8), 6);
    assert_string_equal(out, "abcdef");
    assert_int_equal(escape_json("ab\xe2\x82\xac", out, 5), 2);
    assert_string_equal(out, "ab");
    assert_int_equal(escape_json("a", out, 1), 0);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_escapes_what_json_must),
        cmocka_unit_test(xml_escapes_what_xml_must),
        cmocka_unit_test(valid_utf_8_stays),
        cmocka_unit_test(each_byte_that_is_not_utf_8_is_replaced),
        cmocka_unit_test(every_pair_of_bytes_gives_strict_json),
        cmocka_unit_test(what_does_not_fit_is_left_out_by_whole_characters),
    };

    return cmocka_run_group_tests_name("escape", tests, NULL, NULL);
}
