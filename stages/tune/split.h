/*
 * split -- which layers a contender's virtual stages had better have, by measured costs.
 */
#ifndef STAGES_TUNE_SPLIT_H
#define STAGES_TUNE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/tune/contender.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a count for each virtual stage: the least load of the fullest rank, then what the
 * simulation of its plan takes less for. *better_out: it differs from what the contender has, and is predicted
 * to be faster. The table knows the contender's costs. Memory is not looked at. */
enum status tune_split_find(const struct tune_contender *contender,
                            const struct tune_cost_table *table, int32_t *counts, bool *better_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_SPLIT_H */
