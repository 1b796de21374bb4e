/*
 * config_value -- one value of the configuration: from text into its field.
 *
 * Strict: digits for integers (no +, _, 0x, exponent), a decimal number for reals (no inf, no
 * nan), true and false for booleans, no value in quotes for any of these.
 */
#ifndef STAGES_CONFIG_VALUE_H
#define STAGES_CONFIG_VALUE_H

#include "base/status.h"
#include "stages/config.h"
#include "stages/config_draft.h"
#include "stages/config_schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `value` into the key's field of `config`. STATUS_ERR_REFUSED with place, value and what
 * would be legal. */
enum status config_value_parse(const struct config_key *key, const struct config_value *value,
                               struct config *config);

/* The default into the key's field; keys without one get "", or CONFIG_DERIVE. */
void config_value_default(const struct config_key *key, struct config *config);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_VALUE_H */
