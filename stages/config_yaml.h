/*
 * config_yaml -- a configuration file into a draft.
 *
 * The file is one YAML mapping of sections, each a mapping of keys to a scalar or a list of
 * scalars. Anything else that YAML knows (anchors, aliases, tags, a second document, deeper
 * nesting) is refused, as are unknown and repeated sections and keys, each with file and line.
 */
#ifndef STAGES_CONFIG_YAML_H
#define STAGES_CONFIG_YAML_H

#include "base/status.h"
#include "stages/config_draft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the file of the draft. STATUS_ERR_REFUSED with the place. */
enum status config_yaml_read(struct config_draft *draft);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_YAML_H */
