#include "stages/tune/arguments.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16

static bool make_room(struct tune_arguments *arguments)
{
    int capacity = arguments->capacity == 0 ? FIRST_CAPACITY : 2 * arguments->capacity;
    char **words = NULL;

    if (arguments->count + 1 < arguments->capacity) {
        return true;
    }
    words = realloc(arguments->words, (size_t)capacity * sizeof(*words));
    if (words != NULL) {
        arguments->words = words;
        arguments->capacity = capacity;
    }
    return words != NULL;
}

/* Takes `word` over; NULL: there was no memory for it. */
static void append(struct tune_arguments *arguments, char *word)
{
    if (word == NULL || !make_room(arguments)) {
        arguments->failed = true;
        free(word);
        return;
    }
    arguments->words[arguments->count++] = word;
    arguments->words[arguments->count] = NULL;
}

void tune_arguments_add(struct tune_arguments *arguments, const char *format, ...)
{
    char *word = NULL;
    va_list args;
    int wrote = 0;

    va_start(args, format);
    wrote = vasprintf(&word, format, args);
    va_end(args);
    append(arguments, wrote < 0 ? NULL : word);
}

void tune_arguments_add_all(struct tune_arguments *arguments, char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        append(arguments, strdup(words[i]));
    }
}

enum status tune_arguments_check(const struct tune_arguments *arguments)
{
    return arguments->failed
               ? status_fail(STATUS_ERR_NO_MEMORY, "weir tune: no memory for a command line")
               : STATUS_OK;
}

void tune_arguments_release(struct tune_arguments *arguments)
{
    for (int i = 0; i < arguments->count; i++) {
        free(arguments->words[i]);
    }
    free(arguments->words);
    *arguments = (struct tune_arguments){.words = NULL};
}
