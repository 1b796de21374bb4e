/*
 * calibration -- the job that measures one point of the cost table.
 *
 * It runs the point's grid, micro-batch size and recompute with as many chunks a rank as three
 * virtual stages take, and few micro-batches, so that embedding, head and layer can be told apart
 * and a step is short.
 */
#ifndef STAGES_TUNE_CALIBRATION_H
#define STAGES_TUNE_CALIBRATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/tune/candidate.h"
#include "stages/tune/cost_table.h"
#include "stages/tune/job.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune_calibration {
    const struct tune_base *base; /* borrows */
    struct tune_jobs *jobs;       /* borrows */
    int64_t limit_bytes;          /* of a rank; 0: none */
    int64_t steps;
    double timeout_s;
};

/* How many it takes where memory allows: a step of small ones has as many sequences as one of a few of the
 * configured size, so that it is no shorter, and as steady. Never more than the run's own. */
int64_t tune_calibration_microbatches(const struct tune_base *base, const struct tune_point *point);

/* What it would run. The caller releases the list, which has one candidate. */
enum status tune_calibration_candidate(const struct tune_base *base, const struct tune_point *point,
                                       int64_t microbatches, struct tune_candidates *list_out);

/* Measures `point` and puts it into `table`. *possible_out false: no such job is legal or fits; nothing has
 * run then. *seconds_out is what the job took. */
enum status tune_calibrate(const struct tune_calibration *calibration,
                           const struct tune_point *point, struct tune_cost_table *table,
                           bool *possible_out, double *seconds_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_CALIBRATION_H */
