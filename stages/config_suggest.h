/*
 * config_suggest -- what a user may have meant by a key that does not exist.
 *
 * The nearest key is the one with the fewest edits (insert, delete, replace a letter) to its name;
 * a key of another section costs one edit more, so that a key in the wrong section is found too.
 */
#ifndef STAGES_CONFIG_SUGGEST_H
#define STAGES_CONFIG_SUGGEST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A hint for `section`.`name` into `hint`: "did you mean parallel.pp?" where a key is near enough,
 * else what the section holds, or the sections. `name` may be NULL, for a section alone. */
void config_suggest(const char *section, const char *name, char *hint, size_t hint_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_SUGGEST_H */
