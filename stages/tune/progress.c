#include "stages/tune/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define LINE_BYTES 256

/* To the first column, and everything behind it away. */
static const char wipe[] = "\r\033[K";

void tune_progress_show(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    if (isatty(STDERR_FILENO) != 1) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    (void)fprintf(stderr, "%s%s", wipe, line);
    (void)fflush(stderr);
}

void tune_progress_wipe(void)
{
    if (isatty(STDERR_FILENO) == 1) {
        (void)fputs(wipe, stderr);
        (void)fflush(stderr);
    }
}
