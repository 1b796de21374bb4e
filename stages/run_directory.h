/*
 * run_directory -- where a run leaves what it made.
 *
 *     config.yaml      the resolved configuration
 *     plan.csv         the plan, compute actions, as PyTorch's pipelining CSV
 *     metrics.jsonl    first line the configuration, then a line a step
 *     trace/           rank-N.json where trace.enabled; of earlier attempts in attempt-1/ …
 *     logs/            rank-N.log, by the launcher
 *     checkpoints/     unless checkpoint.dir says otherwise (stages/checkpoint/store.h)
 *     model/           the final weights; its config.json is written last: the run is finished
 *     lock             held as long as the run lives
 *
 * Rank 0 makes it; the others use it once the job has started.
 */
#ifndef STAGES_RUN_DIRECTORY_H
#define STAGES_RUN_DIRECTORY_H

#include <stdbool.h>

#include "base/status.h"
#include "stages/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum run_state {
    RUN_NEW,       /* nothing there yet, or train.overwrite */
    RUN_FINISHED,  /* the final weights are there, of as many steps as are asked for */
    RUN_INCOMPLETE /* begun and not finished; or finished, and there is a checkpoint to go on from to
                      more steps */
};

struct run_directory {
    char path[CONFIG_TEXT_BYTES];
    int lock; /* descriptor, -1 where not held */
};

/* Looks only. */
enum run_state run_directory_state(const struct config *config);

/* STATUS_OK where a run may begin, or, `resumes`, go on from its checkpoint. STATUS_ERR_REFUSED where
 * one is alive there, train.overwrite or not; for RUN_INCOMPLETE without a checkpoint, naming what to
 * do; and where train.overwrite would remove checkpoints outside of the run directory.
 * RUN_FINISHED is the caller's to ask for before. For the launcher too, before it starts anything.
 */
enum status run_directory_check(const struct config *config, bool resumes);

/* Makes the directory, takes the lock (a live run that holds it: STATUS_ERR_REFUSED), removes what
 * an earlier run left, checkpoints included, writes config.yaml. Where the run `resumes`, only what
 * says that it is finished is removed, and the traces so far are put aside. `run` can be released
 * after a failure. */
enum status run_directory_open(const struct config *config, bool resumes,
                               struct run_directory *run);

/* Writes "<run>/<name>" to `path`; a path that does not fit is STATUS_ERR_REFUSED. */
enum status run_directory_path(const struct config *config, const char *name, char *path,
                               size_t path_bytes);

/* For RUN_FINISHED: says so on stdout, and how to go on. */
void run_directory_print_finished(const struct config *config);

/* Gives the lock back. Safe on a released one. */
void run_directory_release(struct run_directory *run);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_RUN_DIRECTORY_H */
