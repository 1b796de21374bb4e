/*
 * fake_nvtx -- ranges of a profiler that looks, for tests: what a thread has pushed and popped.
 *
 * A pop of a thread that has no range open ends the program.
 */
#ifndef TESTS_EMULATED_FAKE_NVTX_H
#define TESTS_EMULATED_FAKE_NVTX_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ranges that any thread has begun so far, and those that have not ended. */
size_t fake_nvtx_begun(void);
size_t fake_nvtx_open(void);

/* From here on the calling thread's ranges are written to `text`, one name behind the other, each with a comma behind it, and
 * cut to `text_bytes`, which are more than 0; NULL: no longer. */
void fake_nvtx_write_to(char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_FAKE_NVTX_H */
