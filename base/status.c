#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

static _Thread_local struct status_record last = {.code = STATUS_OK, .file = "", .message = ""};
static _Thread_local int hushes;

#if defined(__GNUC__)
__attribute__((format(printf, 4, 0)))
#endif
static void
record_failure(const char *file, int line, enum status code, const char *format, va_list args)
{
    char message[STATUS_MESSAGE_BYTES]; /* the arguments may point into `last` itself */

    (void)vsnprintf(message, sizeof(message), format, args);
    last.code = code;
    last.file = file;
    last.line = line;
    (void)snprintf(last.message, sizeof(last.message), "%s", message);
}

enum status status_fail_at(const char *file, int line, enum status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    record_failure(file, line, code, format, args);
    va_end(args);
    if (hushes > 0) {
        return code;
    }
    log_error("%s", last.message);
    log_debug("raised at %s:%d as %s (%s)", file, line, status_name(code), status_text(code));
    return code;
}

enum status status_note_at(const char *file, int line, enum status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    record_failure(file, line, code, format, args);
    va_end(args);
    return code;
}

void status_hush(bool hushed)
{
    hushes += hushed ? 1 : -1;
}

const struct status_record *status_last(void)
{
    return &last;
}

void status_adopt(const struct status_record *record)
{
    last = *record;
}

const char *status_name(enum status code)
{
    switch (code) {
#define X(name, value, text) \
    case STATUS_##name:      \
        return #name;
        STATUS_TABLE(X)
#undef X
    }
    return "?";
}

const char *status_text(enum status code)
{
    switch (code) {
#define X(name, value, text) \
    case STATUS_##name:      \
        return text;
        STATUS_TABLE(X)
#undef X
    }
    return "?";
}
