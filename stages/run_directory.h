/*
 * run_directory -- where a run leaves what it made.
 *
 *     config.yaml      the resolved configuration
 *     plan.csv         the plan, compute actions, as PyTorch's pipelining CSV
 *     metrics.jsonl    first line the configuration, then a line a step
 *     trace/           rank-N.json where trace.enabled; of earlier attempts in attempt-1/ …
 *     logs/            rank-N.log, by the launcher
 *     checkpoints/     unless checkpoint.dir says otherwise (stages/checkpoint/store.h), with a lock
 *                      of its own: somebody else's checkpoint.dir may be the same
 *     model/           the final weights; its config.json is written last: the run is finished
 *     lock             held as long as the run lives
 *
 * Rank 0 makes it; the others use it once the job has started.
 */
#ifndef STAGES_RUN_DIRECTORY_H
#define STAGES_RUN_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

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
    int checkpoint_lock;
};

/* Looks only. */
enum run_state run_directory_state(const struct config *config);

/* STATUS_ERR_REFUSED where a run is alive in the run directory or in checkpoint.dir, which may then change
 * while they are looked at: for whoever starts a run, before anything else of these. */
enum status run_directory_check_free(const struct config *config);

/* STATUS_OK where a run may begin, or, `resumes`, go on from its checkpoint. STATUS_ERR_REFUSED where
 * one is alive there, train.overwrite or not; for RUN_INCOMPLETE without a checkpoint, naming what to
 * do; and where a run that begins has a checkpoint.dir outside of the run directory with checkpoints in it.
 * RUN_FINISHED is the caller's to ask for before. For the launcher too, before it starts anything.
 */
enum status run_directory_check(const struct config *config, bool resumes);

/* Makes the directory and takes the locks (a live run that holds one: STATUS_ERR_REFUSED). A run that
 * begins removes what an earlier one left, checkpoints included, and writes config.yaml. One that
 * `resumes` changes nothing yet: it may still be refused. `run` can be released after a failure. */
enum status run_directory_open(const struct config *config, bool resumes,
                               struct run_directory *run);

/* For a run that resumes, when all of its ranks have their part of the checkpoint: removes what says
 * that it is finished, puts the traces so far aside, writes config.yaml. */
enum status run_directory_go_on(const struct config *config);

/* Which config.yaml lies there. */
struct run_directory_stamp {
    bool there;
    uint64_t inode;
    int64_t modified_ns;
};

/* Config.yaml is what an attempt writes last before the run is its own: whether one has since `before`
 * tells whether what lies there is that attempt's, or an earlier run's still. Looks only. */
void run_directory_stamp(const struct config *config, struct run_directory_stamp *stamp_out);
bool run_directory_changed(const struct config *config, const struct run_directory_stamp *before);

/* For RUN_FINISHED: says so on stdout, and how to go on. */
void run_directory_print_finished(const struct config *config);

/* Gives the locks back. Safe on a released one. */
void run_directory_release(struct run_directory *run);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_RUN_DIRECTORY_H */
