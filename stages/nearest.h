/*
 * nearest -- which of a list of names a user may have meant by one that does not exist.
 */
#ifndef STAGES_NEAREST_H
#define STAGES_NEAREST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Letters of a word that are looked at. */
#define NEAREST_WORD_BYTES 64

/* How many letters must be inserted, deleted or replaced to make one word of the other. */
size_t nearest_edits(const char *one, const char *other);

/* The name with the fewest edits to `word`, the first of equals; NULL where none is near enough
 * for a slip: at most half of the letters of `word`, and 4. */
const char *nearest_name(const char *word, const char *const *names, size_t count);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_NEAREST_H */
