/*
 * arguments -- a growing list of words for a command line.
 *
 * Ends with NULL at every moment, so that it can be an argv; its words are also what config_load()
 * takes as overrides. Where memory is short a word is left out, which is remembered: whoever has
 * added all asks once, with tune_arguments_check().
 */
#ifndef STAGES_TUNE_ARGUMENTS_H
#define STAGES_TUNE_ARGUMENTS_H

#include <stdbool.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero is an empty list. */
struct tune_arguments {
    char *
        *words; /* owns them; NULL while there is none, else one more than `count`, the last NULL */
    int count;
    int capacity; /* private to arguments.c, as what follows */
    bool failed;
};

/* Appends one word, printf form. */
void tune_arguments_add(struct tune_arguments *arguments, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends copies of `count` words. */
void tune_arguments_add_all(struct tune_arguments *arguments, char *const *words, int count);

/* STATUS_ERR_NO_MEMORY where a word is missing. */
enum status tune_arguments_check(const struct tune_arguments *arguments);

/* Safe on an empty list, and twice. */
void tune_arguments_release(struct tune_arguments *arguments);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_ARGUMENTS_H */
