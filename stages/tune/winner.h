/*
 * winner -- what a tuned configuration becomes: a file that `./launch train` takes.
 *
 * The whole configuration, resolved, with the winner's keys, and comments on top that say what was
 * tuned, from what to what, and by which numbers. Its run directory is another than that of the
 * configuration, so that it neither goes on from that run nor writes over it.
 */
#ifndef STAGES_TUNE_WINNER_H
#define STAGES_TUNE_WINNER_H

#include "base/status.h"
#include "stages/tune/tuner.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "runs/x-tuned.yaml" for run directory runs/x, into `path`, which has FILE_PATH_BYTES. */
enum status tune_winner_path(const struct tune_base *base, char *path);

/* Writes result->field.all[0] to `path`; a plan that has no name to `path`.plan.csv before. */
enum status tune_winner_write(const struct tune_base *base, const struct tune_result *result,
                              const char *path);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_WINNER_H */
