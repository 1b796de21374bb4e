/*
 * config_write -- what the table of keys holds, as text for a reader.
 *
 * config_write_yaml() and config_write_json() of stages/config.h live in the same file.
 */
#ifndef STAGES_CONFIG_WRITE_H
#define STAGES_CONFIG_WRITE_H

#include <stdio.h>

#include "base/status.h"
#include "stages/config.h"
#include "stages/config_schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The value of one key, as config_write_yaml() has it: equal texts are equal values. */
enum status config_write_value(const struct config_key *key, const struct config *config,
                               FILE *out);

/* Every key with its default, as YAML to start from; a key that has none is a comment. */
enum status config_write_defaults(FILE *out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_WRITE_H */
