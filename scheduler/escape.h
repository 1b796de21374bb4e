/*
 * escape -- any text made safe inside JSON strings and XML.
 *
 * Run names, paths and messages come from users and may hold quotes, control characters or bytes
 * that are not UTF-8. Both functions read bytes as UTF-8, keep what is valid, and put U+FFFD in
 * the place of each byte that is not; XML, which cannot hold control characters in any form, gets
 * U+FFFD for those too. What they print is valid for every input.
 */
#ifndef SCHEDULER_ESCAPE_H
#define SCHEDULER_ESCAPE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* No character of the input becomes longer than this. */
#define ESCAPE_MOST_BYTES 6

/* Write the escaped text without quotes around it and a final zero; what does not fit into
 * `out_bytes` >= 1 is left out by whole characters. Return the bytes written, without the zero;
 * ESCAPE_MOST_BYTES · strlen(text) + 1 always fit. */
size_t escape_json(const char *text, char *out, size_t out_bytes);
size_t escape_xml(const char *text, char *out, size_t out_bytes);

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_ESCAPE_H */
