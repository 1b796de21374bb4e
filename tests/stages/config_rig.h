/*
 * config_rig -- a configuration from text, for tests: a file of its own and its refusals.
 */
#ifndef TESTS_STAGES_CONFIG_RIG_H
#define TESTS_STAGES_CONFIG_RIG_H

#include "base/status.h"
#include "stages/config.h"

/* cmocka's group setup and teardown: a directory for the file, and its end. */
int config_rig_open(void **state);
int config_rig_close(void **state);

/* "/tmp/…/rig.yaml", where the last text lies. */
const char *config_rig_path(void);

/* A configuration that is legal: every required key, two batch keys, 4 stages. */
const char *config_rig_legal(void);

/* Loads `text` with up to two overrides (NULL for none). */
enum status config_rig_load(const char *text, const char *first, const char *second,
                            struct config **config);

/* Fails the test unless `text` with the override is refused with `words` in the message. */
void config_rig_refuses(const char *text, const char *override, const char *words);

#endif /* TESTS_STAGES_CONFIG_RIG_H */
