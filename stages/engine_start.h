/*
 * engine_start -- the later half of engine_open(): planes, data, worker, the barrier.
 *
 * Private to the engine's own files.
 */
#ifndef STAGES_ENGINE_START_H
#define STAGES_ENGINE_START_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* control.stall_after_s auto: outside steps (start, load, export) a rank may stand still for so long;
 * inside, for the larger of a minute and 20 times the longest action so far. */
#define ENGINE_STALL_START_S 600.0
#define ENGINE_STALL_LEAST_S 60.0
#define ENGINE_STALL_ACTIONS 20.0

/* Measures, or places after the allocation, what belongs to no chunk: the head's memory, where
 * its gradient lands, the out buffers. */
void engine_carve(struct engine *engine, bool measure);

/* Actions of this rank's longer line. */
int32_t engine_longest_line(const struct engine *engine);

/* Lanes to the neighbours, and the embedding pair. */
enum status engine_start_planes(struct engine *engine, const struct engine_options *options);

/* The data sets and their loaders, on the first and the last virtual stage. */
enum status engine_start_data(struct engine *engine);

/* Executor, worker and update. */
enum status engine_start_worker(struct engine *engine, const struct engine_options *options);

/* BARRIER: the plan's hashes agree, everybody is ready, and the first step's target count. */
enum status engine_start_barrier(struct engine *engine);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_ENGINE_START_H */
