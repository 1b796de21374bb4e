/*
 * config_names -- the keys that checkpoint.allow_change names.
 *
 * Legal are keys whose change a resumed run asks for (config_key.change is CHANGE_ASKED):
 * "train.seed", or "seed" where no other such key has the name; and whole sections that hold only
 * such keys and keys that may change anyway: "data", "data.*".
 */
#ifndef STAGES_CONFIG_NAMES_H
#define STAGES_CONFIG_NAMES_H

#include "base/status.h"
#include "stages/config.h"
#include "stages/config_draft.h"
#include "stages/config_schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the next item of "[a, b]" without blanks and moves `at` on; false at the end. An item
 * that is too long or empty becomes "?", which nothing takes. */
bool config_list_next(const char **at, char *item, size_t item_bytes);

/* The list `value` into `names`, each as "section.key" or "section.*", "" after the last.
 * STATUS_ERR_REFUSED names the word and what it may have meant. */
enum status config_names_parse(const struct config_key *key, const struct config_value *value,
                               char names[CONFIG_NAMES_MOST][CONFIG_NAME_BYTES]);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_NAMES_H */
