/*
 * config_layers -- parallel.layers_per_stage auto: which layers go to which virtual stage.
 *
 * By FLOPs (stages/model/flops.h), so that the rank with most to do has the least: a head of a large
 * vocabulary takes the place of layers. On a V, where the schedule has one, the first and the last
 * virtual stage are on one rank and count together. Equal loads get equal counts, the last ones fewer.
 */
#ifndef STAGES_CONFIG_LAYERS_H
#define STAGES_CONFIG_LAYERS_H

#include "base/status.h"
#include "stages/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The placement that the configuration's schedule has, as far as it is known before there is a plan:
 * auto looks at a V first where the number of chunks allows it, a file may have any. */
enum placement config_placement(const struct config *config);

/* Writes pp·virtual_stages counts; everything else that FLOPs are counted by is resolved. */
enum status config_split_layers(struct config *config);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CONFIG_LAYERS_H */
