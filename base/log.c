#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"

#define LINE_BYTES 2048

/* Written once, before threads exist. */
static char process_name[64];

void log_name_process(const char *name)
{
    (void)snprintf(process_name, sizeof(process_name), "%s", name);
}

static enum log_level chosen_level(void)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *wanted = env_text(ENV_LOG);

    for (int level = LOG_ERROR; level <= LOG_DEBUG; level++) {
        if (strcmp(wanted, names[level]) == 0) {
            return (enum log_level)level;
        }
    }
    return LOG_INFO;
}

bool log_wants(enum log_level level)
{
    return level <= chosen_level();
}

void log_write(enum log_level level, const char *format, ...)
{
    static const char *const labels[] = {"error: ", "warning: ", "", "debug: "};
    char line[LINE_BYTES];
    int used = 0;
    int body = 0;
    va_list args;

    if (!log_wants(level)) {
        return;
    }
    if (process_name[0] != '\0') {
        used = snprintf(line, sizeof(line), "[%s] ", process_name);
    }
    used += snprintf(line + used, sizeof(line) - (size_t)used, "%s", labels[level]);
    va_start(args, format);
    body = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
    va_end(args);
    if (body < 0) {
        return;
    }
    used += body;
    if ((size_t)used > sizeof(line) - 2) {
        used = (int)sizeof(line) - 2;
    }
    line[used++] = '\n';
    /* A log line that cannot be written has nowhere to be reported. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)used);
    (void)written;
}
