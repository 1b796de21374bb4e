/*
 * log -- one line of talk on stderr, by level.
 *
 * stdout is for results, stderr for talk. WEIR_LOG=error|warn|info|debug chooses the level (info
 * unless set); a line reads `[stage 1] warn: text`, the prefix being what log_name_process() was
 * given. One write(2) a line, so that lines of several processes do not mix. Safe from every
 * thread. Nothing on the step path logs below warn.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum log_level {
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG
};

/* Call once in main() before any thread exists. `name` is copied: "rank 3", or "" for none. */
void log_name_process(const char *name);

bool log_wants(enum log_level level);

void log_write(enum log_level level, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif /* BASE_LOG_H */
