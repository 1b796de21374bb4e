/*
 * measure -- what a short job tells: how long its steps took, and what took the time.
 *
 * Read from the run directory that the job left: step_ms of metrics.jsonl, and, where it was
 * traced, the costs of its actions (stages/calibrate.h). The first steps do not count: memory is touched
 * for the first time in them, and the optimizer's moments in the first update.
 *
 * Times are in seconds. Costs are typical ones (scheduler/costs.h), so that a rank that was held up now
 * and then does not move them.
 */
#ifndef STAGES_TUNE_MEASURE_H
#define STAGES_TUNE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/calibrate.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUNE_WARM_STEPS CALIBRATE_WARM_STEPS /* of a job, that do not count */

#define TUNE_COSTS COST_KINDS /* F, I, W */

struct tune_measure {
    double *step_s; /* owns; of the steps that count */
    int32_t steps;
    double median_s; /* of step_s */
    double spread;   /* (p90 - median) / median of step_s */

    /* Where it was traced; else `stages` is 0. */
    int32_t stages;              /* virtual stages */
    double *typical[TUNE_COSTS]; /* owns; [virtual stage]; of one micro-batch */
    double *p90[TUNE_COSTS];     /* owns; as `typical` */
    double send_s;               /* the copy of one message, 0 where none was sent */
    double message_s;            /* from its end to where the message can be used */
    double gather_s;             /* of the weights before F or I, 0 where none is */
    double action_s;             /* between what an action waits for and its begin */
    double optimizer_s;          /* a rank and step */
    double
        outside_s; /* a step, what is neither between the first and the last action nor optimizer_s */
};

/* Reads RUN_DIR. The caller releases, after a failure too. STATUS_ERR_FORMAT where a file is not
 * what a job writes, STATUS_ERR_REFUSED where too few steps are there. */
enum status tune_measure_read(const char *run_dir, bool traced, struct tune_measure *measure_out);

/* Safe on a zeroed one, and twice. */
void tune_measure_release(struct tune_measure *measure);

/* The `share`-th of sorted copies of `count` > 0 samples: 0.5 is the median, between two the mean of
 * them weighted. Sorts `samples`. */
double tune_quantile(double *samples, int64_t count, double share);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_MEASURE_H */
