#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

void check_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    char message[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    log_error("internal fault at %s:%d: expected %s: %s", file, line, condition, message);
    abort();
}
