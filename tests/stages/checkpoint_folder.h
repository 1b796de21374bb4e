/*
 * checkpoint_folder -- a temporary directory for the checkpoints of one test.
 */
#ifndef TESTS_STAGES_CHECKPOINT_FOLDER_H
#define TESTS_STAGES_CHECKPOINT_FOLDER_H

#include <stddef.h>

/* Makes it; setup and teardown of a test. */
int checkpoint_folder_make(void **state);
int checkpoint_folder_remove(void **state);

/* Its path; and that of `name` in it, valid until the fourth call after this one. */
const char *checkpoint_folder(void);
const char *checkpoint_folder_path(const char *name);

/* Flips one bit of the byte at `at` from the end of `name`. Fails the test where it cannot. */
void checkpoint_folder_damage(const char *name, long at);

/* Writes `text` as the whole of `name`. */
void checkpoint_folder_write(const char *name, const char *text);

#endif /* TESTS_STAGES_CHECKPOINT_FOLDER_H */
