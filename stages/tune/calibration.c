#include "stages/tune/calibration.h"

#include <string.h>

#include "base/log.h"
#include "stages/tune/contender.h"
#include "stages/tune/progress.h"

#define LEAST_STAGES 3

/* Enough for a steady state, few enough for a short step. */
#define FEW_MICROBATCHES 4

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t tune_calibration_microbatches(const struct tune_base *base, const struct tune_point *point)
{
    int64_t configured = base->config->train.micro_batch_size;
    int64_t all = base->config->train.global_batch_size / point->dp / point->micro_batch_size;
    int64_t few = FEW_MICROBATCHES * configured / point->micro_batch_size;

    return least(all, most(few, most(2 * point->pp, FEW_MICROBATCHES)));
}

/* Fewer layers than virtual stages: those in the middle come first, the ends may do without. */
static void give_few(int64_t layers, int64_t stages, int32_t *counts)
{
    memset(counts, 0, (size_t)stages * sizeof(*counts));
    for (int64_t s = 1; s + 1 < stages && layers > 0; s++, layers--) {
        counts[s] = 1;
    }
    counts[0] = layers > 0 ? 1 : 0;
}

enum status tune_calibration_candidate(const struct tune_base *base, const struct tune_point *point,
                                       int64_t microbatches, struct tune_candidates *list_out)
{
    int64_t layers = base->config->model.num_layers;
    int64_t chunks = (LEAST_STAGES + point->pp - 1) / point->pp;
    int64_t stages = point->pp * chunks;
    int32_t counts[CONFIG_STAGES_MOST];
    const struct tune_candidate candidate = {
        .pp = point->pp,
        .tp = point->tp,
        .dp = point->dp,
        .virtual_stages = chunks,
        .schedule = chunks > 1 ? SCHEDULE_INTERLEAVED_1F1B : SCHEDULE_1F1B,
        .micro_batch_size = point->micro_batch_size,
        .num_microbatches = microbatches,
        .recompute = point->recompute,
        .sets_recompute = true,
        .layers = layers < stages ? counts : NULL,
    };

    give_few(layers, stages, counts);
    *list_out = (struct tune_candidates){.all = NULL};
    return tune_candidates_add(list_out, &candidate);
}

/* The job of the point with the most micro-batches, of a few, that fits. */
static enum status open_job(const struct tune_calibration *calibration,
                            const struct tune_point *point, struct tune_contender *contender,
                            bool *possible_out)
{
    int64_t all =
        calibration->base->config->train.global_batch_size / point->dp / point->micro_batch_size;
    int64_t counts[3] = {
        tune_calibration_microbatches(calibration->base, point),
        least(all, point->pp),
        1,
    };

    *possible_out = false;
    for (int i = 0; i < 3 && !*possible_out; i++) {
        struct tune_candidates list;
        size_t need = 0;
        enum status status = tune_calibration_candidate(calibration->base, point, counts[i], &list);

        if (status >= 0) {
            list.all[0].sets_recompute = true;
            status = tune_contender_open(calibration->base, &list.all[0], calibration->limit_bytes,
                                         contender, possible_out, &need);
        }
        /* Another recompute that fits would be another point. */
        if (*possible_out && contender->config->train.recompute[0] != point->recompute) {
            *possible_out = false;
            tune_contender_release(contender);
        }
        tune_candidates_release(&list);
        if (status < 0 && status != STATUS_ERR_REFUSED) {
            return status;
        }
    }
    return STATUS_OK;
}

static enum status take(const struct tune_contender *contender, const struct tune_point *point,
                        const char *run_dir, struct tune_cost_table *table, double *step_s_out)
{
    struct tune_measure measure;
    struct tune_layer_costs costs;
    enum status status = tune_measure_read(run_dir, true, &measure);

    if (status >= 0) {
        status =
            tune_layer_costs_solve(&measure, contender->config->parallel.layers_per_stage, &costs);
    }
    if (status >= 0) {
        costs.parameters = (double)contender->parameters;
        *step_s_out = measure.median_s;
        status = tune_cost_table_put(table, point, &costs);
    }
    tune_measure_release(&measure);
    return status;
}

enum status tune_calibrate(const struct tune_calibration *calibration,
                           const struct tune_point *point, struct tune_cost_table *table,
                           bool *possible_out, double *seconds_out)
{
    struct tune_contender contender;
    struct tune_job job = {
        .steps = calibration->steps, .traced = true, .timeout_s = calibration->timeout_s};
    char run_dir[TUNE_JOB_PATH_BYTES];
    char text[TUNE_CANDIDATE_TEXT_BYTES];
    double step_s = 0.0;
    enum status status = STATUS_OK;

    *seconds_out = 0.0;
    TRY(open_job(calibration, point, &contender, possible_out));
    if (!*possible_out) {
        return STATUS_OK;
    }
    job.candidate = &contender.candidate;
    tune_candidate_print(&contender.candidate, text, sizeof(text));
    tune_progress_show("job %d measures costs: %s", calibration->jobs->started + 1, text);
    status = tune_jobs_run(calibration->jobs, &job, run_dir, seconds_out);
    tune_progress_wipe();
    if (status >= 0) {
        status = take(&contender, point, run_dir, table, &step_s);
        calibration->jobs->keep = calibration->jobs->keep || status < 0;
        tune_jobs_forget(calibration->jobs, run_dir);
    }
    if (status >= 0) {
        log_info("job %d measured costs in %.1f s: %s, %.1f ms a step", calibration->jobs->started,
                 *seconds_out, text, step_s * 1e3);
    }
    tune_contender_release(&contender);
    return status;
}
