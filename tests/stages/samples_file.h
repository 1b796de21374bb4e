/*
 * samples_file -- a training file of format samples for tests: tokens, and one thing more a position.
 */
#ifndef TESTS_STAGES_SAMPLES_FILE_H
#define TESTS_STAGES_SAMPLES_FILE_H

#include <stddef.h>
#include <stdint.h>

struct samples_file {
    int64_t samples;
    int64_t positions;
    int32_t vocab; /* tokens run through [0, vocab) */
    /* "loss_mask" of floats, or "tokentypes" of int32_t: (samples, positions) */
    const char *more;
    const void *values;
};

/* The token at `index` of (samples, positions + 1). */
int32_t samples_file_token(const struct samples_file *file, int64_t index);

/* Makes it under /tmp, its name in `path`: the caller unlinks it. 0 where it could. */
int samples_file_write(const struct samples_file *file, char *path, size_t path_bytes);

#endif /* TESTS_STAGES_SAMPLES_FILE_H */
