/*
 * train -- the life of one stage process of a training run, from the configuration to the weights.
 *
 * Joins the job (launch_env, job directory, engine), from the beginning or from a checkpoint, then step
 * after step: run the plan, tell of it (rank 0: metrics and console; every rank: its trace), evaluate and
 * write a checkpoint when it is time, stop where a signal asks for it, with a checkpoint, and write the
 * final weights.
 */
#ifndef STAGES_TRAIN_H
#define STAGES_TRAIN_H

#include <stdint.h>

#include "base/status.h"
#include "stages/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All that can be refused of a run before anything is made or started for it: its plan, the memory of
 * its ranks, of which `local_ranks` share this host, its directory, its data, the checkpoint that it goes
 * on from or the weights that it begins with. RUN_FINISHED (stages/run_directory.h) is the caller's to ask
 * for before. */
enum status train_check(const struct config *config, int32_t local_ranks);

/* Runs to the end. *signal_out is 0, or the signal after which the run ended in order. */
enum status train_run(const struct config *config, int32_t *signal_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TRAIN_H */
