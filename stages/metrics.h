/*
 * metrics -- what a run tells of its steps: metrics.jsonl and the console line.
 *
 * Rank 0 alone has one. metrics.jsonl has the resolved configuration as its first line, then one
 * object a step, flushed as it is written, so that a run that dies leaves whole lines. A run that
 * goes on from a checkpoint goes on with the lines up to it (stages/metrics_file.h). The console line is printed once for the job; on a terminal a progress bar follows it.
 */
#ifndef STAGES_METRICS_H
#define STAGES_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "stages/config.h"
#include "stages/model/shape.h"
#include "stages/update.h"

#ifdef __cplusplus
extern "C" {
#endif

struct metrics;

/* One step as rank 0 saw it. */
struct metrics_step {
    int64_t step;
    int64_t update; /* updates done so far */
    int64_t consumed_samples;
    double seconds;      /* of the step */
    double bubble_ideal; /* the plan at this step's mean costs */
    bool has_valid;
    double valid_loss;
    const struct update_outcome *outcome;
};

/* Where a run stood that goes on. */
struct metrics_past {
    int64_t step;
    int64_t skipped;
};

/* `past` NULL: a run that begins. Else metrics.jsonl is cut back to its step; what is cut off or
 * missing is told. */
enum status metrics_open(const struct config *config, const struct model_shape *shape,
                         const struct metrics_past *past, struct metrics **metrics_out);

/* Writes the line of the step, and prints it where log_every says so (the first one of this process and
 * the last step always). */
enum status metrics_put(struct metrics *metrics, const struct metrics_step *step);

/* Moves the progress bar, nothing else. */
void metrics_tick(struct metrics *metrics, int64_t step);

/* "step 100 | valid loss 2.1034" on a line of its own. */
void metrics_print_held_out(struct metrics *metrics, const char *set, int64_t step, double loss);

/* "resumed from step 10 | runs/x/checkpoints/step-00000010" */
void metrics_print_resumed(struct metrics *metrics, int64_t step, const char *path);

/* Makes the lines so far last through a power cut. */
enum status metrics_sync(struct metrics *metrics);

/* Ends the bar, closes the file; nulls the caller's pointer; NULL is fine. */
void metrics_close(struct metrics **metrics);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_METRICS_H */
