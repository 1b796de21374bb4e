/*
 * status -- what a function answers when it can fail.
 *
 * Zero is success, positive is "not yet", negative is a failure. Every code lives in the table
 * below, once: the enum, the names and the texts are generated from it.
 *
 * The function that first notices a failure calls status_fail(), which records where and why for
 * this thread and logs it. Everybody above only passes the code on, with TRY(). So one failure
 * makes one log line, and the line names the cause. A message says what was being done, to which
 * object, what was expected, what was found, and a hint where the user can act.
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, value, text */
#define STATUS_TABLE(X)                                   \
    X(OK, 0, "success")                                   \
    X(IN_PROGRESS, 1, "still running")                    \
    X(ERR_INVALID, -1, "invalid argument")                \
    X(ERR_NO_MEMORY, -2, "out of memory")                 \
    X(ERR_IO, -3, "input/output error")                   \
    X(ERR_FORMAT, -4, "malformed file or message")        \
    X(ERR_CUDA, -5, "CUDA call failed")                   \
    X(ERR_PEER, -6, "a peer process failed")              \
    X(ERR_TIMEOUT, -7, "timed out")                       \
    X(ERR_UNSUPPORTED, -8, "not supported by this build") \
    X(ERR_CANCELLED, -9, "cancelled")                     \
    X(ERR_REFUSED, -10, "refused")                        \
    X(ERR_NUMERIC, -11, "numbers out of range")

enum status {
#define X(name, value, text) STATUS_##name = (value),
    STATUS_TABLE(X)
#undef X
};

#define STATUS_MESSAGE_BYTES 1024

/* The last failure of this thread. Valid until the next status_fail() on the same thread. */
struct status_record {
    enum status code;
    const char *file; /* static string */
    int line;
    char message[STATUS_MESSAGE_BYTES]; /* cut, never overrun */
};

/* Records a failure, logs it at level error, and returns `code` so that the caller can return it
 * in turn. Configuration and input that the user can mend is STATUS_ERR_REFUSED (exit code 1);
 * everything else ends with exit code 2. */
enum status status_fail_at(const char *file, int line, enum status code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

#define status_fail(code, ...) status_fail_at(__FILE__, __LINE__, (code), __VA_ARGS__)

/* Like status_fail, without the log line: for a refusal that one of several attempts may get, and
 * for tests. */
enum status status_note_at(const char *file, int line, enum status code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

#define status_note(code, ...) status_note_at(__FILE__, __LINE__, (code), __VA_ARGS__)

/* While a thread is hushed its failures are recorded and not logged: for whoever tries what may well be
 * refused, and says itself what came of it. Calls nest: each true has its false. */
void status_hush(bool hushed);

/* Lends the record of this thread; never NULL. */
const struct status_record *status_last(void);

/* Makes `record` the last failure of this thread, as when a worker thread hands its own to the
 * thread that joins it. Does not log. */
void status_adopt(const struct status_record *record);

/* "ERR_NO_MEMORY", "out of memory"; static strings, "?" for an unknown code. */
const char *status_name(enum status code);
const char *status_text(enum status code);

/* Leaves the function with the callee's failure. Only where nothing has to be undone. */
#define TRY(call)                        \
    do {                                 \
        enum status try_status = (call); \
        if (try_status < 0) {            \
            return try_status;           \
        }                                \
    } while (0)

/* Same, through the single cleanup label of a function that holds resources. */
#define TRY_OR(label, status, call) \
    do {                            \
        (status) = (call);          \
        if ((status) < 0) {         \
            goto label;             \
        }                           \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif /* BASE_STATUS_H */
