#include "scheduler/escape.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static bool is_continuation(unsigned char byte)
{
    return (byte & 0xC0U) == 0x80U;
}

/* Length of the valid UTF-8 sequence at `bytes`, 0 where there is none. The second byte decides
 * over forms that are too long, surrogates and what lies beyond U+10FFFF. */
static size_t sequence_bytes(const unsigned char *bytes)
{
    unsigned char first = bytes[0];
    unsigned char second = first < 0x80 ? 0 : bytes[1];

    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first <= 0xDF) {
        return is_continuation(second) ? 2 : 0;
    }
    if (first >= 0xE0 && first <= 0xEF) {
        unsigned char low = first == 0xE0 ? 0xA0 : 0x80;
        unsigned char high = first == 0xED ? 0x9F : 0xBF;

        return second >= low && second <= high && is_continuation(bytes[2]) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        unsigned char low = first == 0xF0 ? 0x90 : 0x80;
        unsigned char high = first == 0xF4 ? 0x8F : 0xBF;

        return second >= low && second <= high && is_continuation(bytes[2]) &&
                       is_continuation(bytes[3])
                   ? 4
                   : 0;
    }
    return 0;
}

/* The escaped form of one ASCII character, NULL where it stands for itself. `scratch` holds forms
 * that have to be made. */
static const char *json_form(unsigned char character, char scratch[8])
{
    switch (character) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        break;
    }
    if (character >= 0x20 && character != 0x7F) {
        return NULL;
    }
    (void)snprintf(scratch, 8, "\\u%04x", (unsigned)character);
    return scratch;
}

static const char *xml_form(unsigned char character)
{
    switch (character) {
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\n':
    case '\r':
    case '\t':
        return " ";
    default:
        break;
    }
    return character >= 0x20 && character != 0x7F ? NULL : REPLACEMENT;
}

static size_t escape(const char *text, char *out, size_t out_bytes, bool xml)
{
    const unsigned char *next = (const unsigned char *)text;
    size_t used = 0;

    while (*next != '\0') {
        char scratch[8];
        size_t read_bytes = sequence_bytes(next);
        const char *form = REPLACEMENT;
        size_t form_bytes = sizeof(REPLACEMENT) - 1;

        if (read_bytes == 1) {
            form = xml ? xml_form(*next) : json_form(*next, scratch);
            form_bytes = form == NULL ? 1 : strlen(form);
        } else if (read_bytes > 1) {
            form = NULL;
            form_bytes = read_bytes;
        }
        if (form_bytes >= out_bytes - used) {
            break;
        }
        memcpy(out + used, form == NULL ? (const char *)next : form, form_bytes);
        used += form_bytes;
        next += read_bytes == 0 ? 1 : read_bytes;
    }
    out[used] = '\0';
    return used;
}

size_t escape_json(const char *text, char *out, size_t out_bytes)
{
    return escape(text, out, out_bytes, false);
}

size_t escape_xml(const char *text, char *out, size_t out_bytes)
{
    return escape(text, out, out_bytes, true);
}
