/*
 * calibrate -- the costs of a run, from its run directory.
 *
 * A traced run has all that is needed: config.yaml says which plan it ran, trace/ what its actions took,
 * metrics.jsonl what its steps took. The first steps touch memory for the first time and do not count.
 * The table is kept as costs.json there, so that plans can be timed when the trace is gone.
 */
#ifndef STAGES_CALIBRATE_H
#define STAGES_CALIBRATE_H

#include "base/status.h"
#include "scheduler/costs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first steps of a run, which do not count where there are others. */
#define CALIBRATE_WARM_STEPS 2

/* From the trace of `run_dir`. STATUS_ERR_REFUSED where it has none, or no config.yaml. The caller
 * releases *costs_out. */
enum status calibrate_run(const char *run_dir, struct costs *costs_out);

/* `path` is a file of costs, or a run directory: its costs.json, or where there is none its trace. The
 * caller releases *costs_out. */
enum status calibrate_load(const char *path, struct costs *costs_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CALIBRATE_H */
