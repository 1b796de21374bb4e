/*
 * config_override -- one word of the command line into a draft.
 *
 * Knows "--section.key=value", the same without dashes, and "--overwrite".
 */
#ifndef STAGES_CONFIG_OVERRIDE_H
#define STAGES_CONFIG_OVERRIDE_H

#include "base/status.h"
#include "stages/config_draft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets what `word` says over what the file or an earlier word said. A list is written
 * [3,3,2] or 3,3,2. STATUS_ERR_REFUSED names the word and what was meant. */
enum status config_override_apply(struct config_draft *draft, const char *word);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_OVERRIDE_H */
