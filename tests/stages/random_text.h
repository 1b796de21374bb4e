/*
 * random_text -- a text to train on: letters from `seed`, the same in every run.
 */
#ifndef TESTS_STAGES_RANDOM_TEXT_H
#define TESTS_STAGES_RANDOM_TEXT_H

#include <stdint.h>

/* Writes `bytes` letters as the file `path`; 0 on success. */
int random_text_write(const char *path, uint32_t seed, int bytes);

#endif /* TESTS_STAGES_RANDOM_TEXT_H */
