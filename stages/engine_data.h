/*
 * engine_data -- which data sets a rank opens, and how much of each.
 *
 * Private to the engine's own files.
 */
#ifndef STAGES_ENGINE_DATA_H
#define STAGES_ENGINE_DATA_H

#include <stdbool.h>

#include "stages/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* More stage processes than cores on this host. */
bool engine_is_crowded(const struct engine_options *options);

/* Ends loaders, then data sets. */
void engine_close_data(struct engine *engine);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_ENGINE_DATA_H */
