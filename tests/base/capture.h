/*
 * capture -- what a piece of a test writes to stderr.
 */
#ifndef TESTS_BASE_CAPTURE_H
#define TESTS_BASE_CAPTURE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct capture {
    int kept; /* stderr as it was */
    int file; /* where it goes now */
};

/* Sends stderr to a file without a name. */
void capture_begin(struct capture *capture);

/* Puts stderr back and copies what came, cut to `text_bytes` with its NUL. */
void capture_end(struct capture *capture, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_BASE_CAPTURE_H */
