/*
 * contender -- a candidate that fits into memory: its plan, what it is predicted to take, what it took.
 *
 * The prediction is the simulation of the proved plan at the costs of a table, and what a step takes
 * beside it. Memory is what the ranks themselves would plan (engine_measure_job()), so that what
 * does not fit is known without a job.
 */
#ifndef STAGES_TUNE_CONTENDER_H
#define STAGES_TUNE_CONTENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/plan.h"
#include "scheduler/simulate.h"
#include "stages/config.h"
#include "stages/tune/candidate.h"
#include "stages/tune/cost_table.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tune_contender {
    struct tune_candidate candidate; /* owns what it points to */
    struct config *config;           /* owns; resolved */
    struct plan *plan;               /* owns; lowered and proved; NULL while it is put aside */
    bool keeps_plan;                 /* between predictions; else it is put aside after each */
    size_t need_bytes;               /* of the rank that holds most */
    size_t held_bytes;               /* of that, by one stash or gradient set, as a mean */
    size_t parameters;               /* of the rank that has most */

    enum tune_quality quality; /* of the costs of its prediction; TUNE_UNKNOWN: none yet */
    double step_s;
    double span_s;  /* of that, the plan */
    double bare_s;  /* the plan with nothing between its actions, */
    double bound_s; /* and what no order of them can be shorter than */
    double bubble;  /* share of the ranks' time in the plan that they idle */
    double spread;  /* of its costs, relative */

    /* Private to contender.c: the costs of the prediction. */
    double *costs; /* owns */
    struct tune_layer_costs layers;

    double *measured_s;     /* owns; steps of its own jobs */
    int32_t measured_steps; /* 0: never run */
    double measured_median_s;

    bool chosen; /* to really run (tune_field_choose()) */
    int turn;    /* of the tuner, in which it ran last; 0: none */
};

/* Bytes that a rank may have: train.memory_limit, or, where there is none and tensors lie in the
 * host's memory, the rank's part of that. 0: no limit is known. *own_out: the configuration's. */
int64_t tune_memory_limit(const struct config *config, bool *own_out);

/* Loads the candidate, proves its plan and measures its memory. With recompute that it may choose, it
 * takes the least that fits. *fits_out false: it needs *need_out bytes a rank at least, more than
 * `limit`, and *contender_out is empty. STATUS_ERR_REFUSED, recorded and not logged, where it cannot
 * be: no such plan. The caller releases. */
enum status tune_contender_open(const struct tune_base *base,
                                const struct tune_candidate *candidate, int64_t limit,
                                struct tune_contender *contender_out, bool *fits_out,
                                size_t *need_out);

/* Makes the plan again, where it was put aside; puts it aside unless it is kept, as one that was searched for
 * always is. */
enum status tune_contender_take_plan(struct tune_contender *contender);
void tune_contender_drop_plan(struct tune_contender *contender);

/* Virtual stages. */
int32_t tune_contender_stages(const struct tune_contender *contender);

/* The point of the costs that virtual stage `stage` needs. */
void tune_contender_point(const struct tune_contender *contender, int64_t stage,
                          struct tune_point *point_out);

/* What the simulator takes, for the contender's virtual stages. */
struct tune_stage_costs {
    double *values; /* owns; F, then I, then W of each virtual stage */
    struct plan_costs plan;
    struct tune_layer_costs layers; /* of virtual stage 0 */
    enum tune_quality quality;      /* the worst of all; TUNE_UNKNOWN: no costs */
};

/* The caller releases, after a failure too. */
enum status tune_contender_costs(const struct tune_contender *contender,
                                 const struct tune_cost_table *table,
                                 struct tune_stage_costs *costs_out);

/* Safe on a zeroed one, and twice. */
void tune_stage_costs_release(struct tune_stage_costs *costs);

/* Predicts from the table, and does nothing where its costs are those of the last time. Its quality is the worst of all that it needs. */
enum status tune_contender_predict(struct tune_contender *contender,
                                   const struct tune_cost_table *table);

/* Adds the steps of a job. */
enum status tune_contender_measured(struct tune_contender *contender,
                                    const struct tune_measure *measure);

/* What it is ranked by: the measured step, else the predicted one. */
double tune_contender_step_s(const struct tune_contender *contender);

/* Safe on a zeroed one, and twice. */
void tune_contender_release(struct tune_contender *contender);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TUNE_CONTENDER_H */
