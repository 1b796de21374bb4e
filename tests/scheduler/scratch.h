/*
 * scratch -- a folder of its own for a test, gone afterwards.
 */
#ifndef TESTS_SCHEDULER_SCRATCH_H
#define TESTS_SCHEDULER_SCRATCH_H

#include <stddef.h>

#define SCRATCH_PATH_BYTES 512

struct scratch {
    char path[SCRATCH_PATH_BYTES];
};

/* Fails the test where it cannot be made. */
void scratch_make(struct scratch *scratch);

/* Writes "<folder>/<name>" to `path_out`. */
void scratch_path(const struct scratch *scratch, const char *name,
                  char path_out[SCRATCH_PATH_BYTES]);

/* A folder inside it. */
void scratch_folder(const struct scratch *scratch, const char *name);

/* The whole file, with a zero behind it; the caller frees it. */
char *scratch_read(const char *path, size_t *bytes_out);

void scratch_write(const char *path, const char *text, size_t text_bytes);

/* With all that is in it. */
void scratch_remove(struct scratch *scratch);

#endif /* TESTS_SCHEDULER_SCRATCH_H */
