/*
 * config_draft -- what the file and the overrides say, key by key, before it means anything.
 *
 * Holds the text of each key that was given and where it stands, so that every later refusal can
 * name its place. Knows the table of keys, no types and no values.
 */
#ifndef STAGES_CONFIG_DRAFT_H
#define STAGES_CONFIG_DRAFT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "stages/config_schema.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONFIG_PLACE_BYTES 4200

struct config_value {
    char *text;  /* owns; a list reads "[a, b]"; NULL: not given */
    char *place; /* owns; "gpt.yaml:12" or "--train.steps=5" */
    bool list;
    bool quoted; /* in quotes in the file: a text, never a number */
};

struct config_draft {
    const char *path;            /* of the file; borrows until release */
    struct config_value *values; /* owns; by config_schema_index() */
    bool overwrite;              /* --overwrite was given */
};

enum status config_draft_init(const char *path, struct config_draft *draft);

/* Copies text and place of `value` over what the key had. */
enum status config_draft_set(struct config_draft *draft, const struct config_key *key,
                             const struct config_value *value);

/* Lends what was given for the key; its text is NULL where nothing was. */
const struct config_value *config_draft_of(const struct config_draft *draft,
                                           const struct config_key *key);

/* Where `section`.`name` was given, or the file where it was not; lends. */
const char *config_draft_place(const struct config_draft *draft, const char *section,
                               const char *name);

bool config_draft_given(const struct config_draft *draft, const char *section, const char *name);

/* Safe on a zeroed draft, and twice. */
void config_draft_release(struct config_draft *draft);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_DRAFT_H */
