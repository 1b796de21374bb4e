/*
 * ranking -- the table of a tuned configuration, for people.
 */
#ifndef STAGES_TUNE_RANKING_H
#define STAGES_TUNE_RANKING_H

#include <stdio.h>

#include "base/status.h"
#include "stages/tune/tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A line a contender, best first: the first ones, those that ran, and the configuration itself. Below
 * it what the columns mean and what is not in the table. */
enum status tune_ranking_print(const struct tune_result *result, FILE *out);

/* "3.4 % less than as configured"; "" where either was not measured. `text` has the bytes of
 * TUNE_RANKING_GAIN_BYTES. */
#define TUNE_RANKING_GAIN_BYTES 96
void tune_ranking_gain(const struct tune_field *field, const struct tune_contender *winner,
                       char *text);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_RANKING_H */
