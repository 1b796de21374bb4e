/*
 * engine_data -- which data sets a rank opens, and how much of each.
 *
 * Private to the engine's own files.
 */
#ifndef STAGES_ENGINE_DATA_H
#define STAGES_ENGINE_DATA_H

#include <stdbool.h>
#include <stddef.h>

#include "stages/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* More stage processes than cores on this host. */
bool engine_is_crowded(const struct engine_options *options);

/* What this rank's loaders will take, of all sets that the run has; none is opened. Plans, grid and
 * configuration are set. STATUS_ERR_REFUSED as data_parts_of(). */
enum status engine_plan_data(const struct engine *engine, size_t *bytes_out);

/* What is to be copied to the device of each step; nothing where it reads what a loader fills. */
void engine_plan_inputs(struct engine *engine);

/* What they have taken. */
size_t engine_data_bytes(const struct engine *engine);

/* Ends loaders, then data sets. */
void engine_close_data(struct engine *engine);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_ENGINE_DATA_H */
