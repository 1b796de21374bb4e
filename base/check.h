/*
 * check -- assertions for our own bugs.
 *
 * ENSURE is always on and stands at module borders and in cold code; DCHECK is for hot loops and
 * exists in debug builds only (no side effects in its condition). Both end the process with a
 * message. Data from disk, network, user or environment is never asserted: it gets a status.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Prints place, condition and message, then aborts. */
void check_fail(const char *file, int line, const char *condition, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5), noreturn))
#endif
    ;

#define ENSURE(condition, ...)                                       \
    do {                                                             \
        if (!(condition)) {                                          \
            check_fail(__FILE__, __LINE__, #condition, __VA_ARGS__); \
        }                                                            \
    } while (0)

#ifdef NDEBUG
#define DCHECK(condition, ...) ((void)0)
#else
#define DCHECK(condition, ...) ENSURE(condition, __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

#endif /* BASE_CHECK_H */
