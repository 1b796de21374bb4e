#include "stages/train.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "collectives/job_directory.h"
#include "scheduler/plan_text.h"
#include "stages/backends.h"
#include "stages/checkpoint/weights.h"
#include "stages/data/fingerprint.h"
#include "stages/data_parts.h"
#include "stages/engine.h"
#include "stages/ideal_bubble.h"
#include "stages/launch_env.h"
#include "stages/metrics.h"
#include "stages/resume.h"
#include "stages/run_directory.h"
#include "stages/run_trace.h"
#include "stages/stop_signal.h"

/* Everything of one run; zero is "not there". */
struct train {
    struct config config; /* settled */
    struct resume resume; /* owns */
    struct launch_env env;
    struct cancel cancel;
    struct job_directory *job;
    struct run_directory run;
    struct engine *engine;
    int64_t skipped; /* of the whole run */
    int64_t skipped_in_a_row;
    int64_t saved;             /* step of the last checkpoint that this process has written */
    struct metrics *metrics;   /* rank 0 */
    struct ideal_bubble ideal; /* beside it */
    struct run_trace trace;
    struct stop_signal *stop;
};

static bool is_first(const struct train *train)
{
    return train->env.rank == 0;
}

static enum status print_plan(const void *context, FILE *out)
{
    const struct plan *plan = context;

    return plan_text_print(plan, PLAN_TEXT_CSV, out);
}

static enum status write_plan(const struct train *train)
{
    char path[FILE_PATH_BYTES];

    TRY(folder_path(train->config.train.run_dir, "plan.csv", path));
    return file_print(path, print_plan, train->engine->plan);
}

/* What a run begins with, where it does not go on from a checkpoint. */
static enum status check_import(const struct config *config)
{
    const struct config_checkpoint *checkpoint = &config->checkpoint;
    struct model_shape shape;

    if (checkpoint->import[0] == '\0') {
        return STATUS_OK;
    }
    model_shape_of(config, 0, &shape);
    return weights_check_import(checkpoint->import, checkpoint->import_prefix, &shape);
}

static enum status check_all(const struct config *config, bool resumes, int32_t local_ranks)
{
    TRY(engine_check(config, local_ranks, true));
    TRY(run_directory_check(config, resumes));
    TRY(data_parts_check(config));
    return resumes ? STATUS_OK : check_import(config);
}

/* Finds where the run goes on and settles the configuration by it. */
static enum status settle(struct config *config, struct resume *resume, bool tells)
{
    TRY(resume_find(config, resume));
    TRY(resume_judge(resume, config, tells));
    resume_settle(resume, config);
    return STATUS_OK;
}

/* Rank 0 makes the run directory, before anybody else needs it; nothing is made of a run that
 * cannot begin. The others look at what does not depend on the directory, so that where all are
 * started alike none waits for a rank 0 that has refused. */
static enum status open_run(struct train *train)
{
    bool resumes = false;

    TRY(settle(&train->config, &train->resume, is_first(train)));
    resumes = train->resume.place.found;
    if (!is_first(train)) {
        return engine_check(&train->config, train->env.local_world, false);
    }
    TRY(check_all(&train->config, resumes, train->env.local_world));
    return run_directory_open(&train->config, resumes, &train->run);
}

/* Where it was this build's to choose. */
static void tell_device(const struct config *config)
{
    char text[384];

    backend_explain(config, text, sizeof(text));
    if (text[0] != '\0') {
        log_info("%s", text);
    }
}

static enum status join_job(struct train *train)
{
    struct engine_options options = {
        .config = &train->config,
        .rank = train->env.rank,
        .world = train->env.world,
        .local_ranks = train->env.local_world,
        .job_directory = "",
        .cancel = &train->cancel,
        .resume = train->resume.place.found ? &train->resume : NULL,
        .ordinal = backend_ordinal(train->env.local_rank),
        .gpus = backend_gpus(),
        .open_nccl = backend_nccl(),
    };

    TRY(backend_choose(&train->config, &options.backend));
    if (is_first(train)) {
        tell_device(&train->config);
    }

    if (train->env.world > 1) {
        TRY(job_directory_open(train->env.rank, &train->cancel,
                               clock_deadline(train->config.control.start_timeout_s), &train->job));
        options.job_directory = job_directory_path(train->job);
    }
    return engine_open(&options, &train->engine);
}

/* Before anything is made or waited for: the ranks that somebody started are the ones that the
 * configuration asks for. */
static enum status check_world(const struct train *train)
{
    struct grid_shape shape = config_grid_shape(&train->config);
    struct grid grid;

    return grid_init(&grid, &shape, train->env.rank, train->env.world);
}

/* Rank 0, where the run goes on. */
static enum status open_metrics(struct train *train)
{
    const struct resume *resume = &train->resume;
    const struct metrics_past past = {
        .step = resume->manifest.step,
        .skipped = resume->manifest.skipped,
    };

    TRY(metrics_open(&train->config, &train->engine->shape, resume->place.found ? &past : NULL,
                     &train->metrics));
    if (resume->place.found) {
        metrics_print_resumed(train->metrics, past.step, resume->place.path);
    }
    return STATUS_OK;
}

/* Nothing of the run so far is touched before every rank has its part of the checkpoint, and no rank
 * writes a trace before those of the last attempt are put aside. */
static enum status go_on(struct train *train)
{
    if (!train->resume.place.found) {
        return STATUS_OK;
    }
    TRY(is_first(train) ? run_directory_go_on(&train->config) : STATUS_OK);
    return engine_meet(train->engine, "GO-ON");
}

static enum status begin(struct train *train)
{
    TRY(stop_signal_open(&train->cancel, &train->stop));
    TRY(open_run(train));
    TRY(join_job(train));
    TRY(go_on(train));
    stop_signal_attach(train->stop, train->engine->control);
    if (is_first(train)) {
        TRY(open_metrics(train));
        TRY(write_plan(train));
    }
    train->skipped = train->resume.manifest.skipped;
    train->skipped_in_a_row = train->resume.manifest.skipped_in_a_row;
    train->saved = train->engine->attempts;
    return run_trace_open(&train->trace, &train->config, train->engine);
}

/* What the plan itself leaves idle at this step's mean costs. */
static enum status ideal_bubble(struct train *train, double *bubble_out)
{
    const struct update_outcome *outcome = &train->engine->update.outcome;
    struct plan_costs costs = {.F = outcome->F, .I = outcome->I, .W = outcome->W};

    *bubble_out = 0.0;
    return outcome->empty
               ? STATUS_OK
               : ideal_bubble_next(&train->ideal, train->engine->plan, &costs, bubble_out);
}

/* An order to stop leaves no time for it; and a run that goes on has its held-out losses at the steps
 * of an unbroken one. */
static bool evaluates_after(const struct train *train, int64_t step)
{
    const struct config_train *config = &train->config.train;

    return config->eval_every > 0 && train->engine->update.outcome.stop_signal == 0 &&
           (step == config->steps || step % config->eval_every == 0);
}

static enum status tell(struct train *train, int64_t step, double seconds, bool has_valid,
                        double valid_loss)
{
    struct metrics_step line = {
        .step = step,
        .update = train->engine->update.updates,
        .consumed_samples = train->engine->consumed,
        .seconds = seconds,
        .has_valid = has_valid,
        .valid_loss = valid_loss,
        .outcome = &train->engine->update.outcome,
    };

    if (train->metrics == NULL) {
        return STATUS_OK;
    }
    TRY(ideal_bubble(train, &line.bubble_ideal));
    TRY(metrics_put(train->metrics, &line));
    if (has_valid) {
        metrics_print_held_out(train->metrics, "valid", step, valid_loss);
    }
    metrics_tick(train->metrics, step);
    return STATUS_OK;
}

/* All ranks count alike, so all end alike. */
static enum status check_skips(struct train *train, int64_t step)
{
    const struct update_outcome *outcome = &train->engine->update.outcome;
    int64_t most = train->config.precision.max_skipped_in_a_row;

    train->skipped += outcome->skipped ? 1 : 0;
    if (outcome->empty) {
        return STATUS_OK;
    }
    train->skipped_in_a_row = outcome->skipped ? train->skipped_in_a_row + 1 : 0;
    if (train->skipped_in_a_row >= most) {
        return status_fail(STATUS_ERR_NUMERIC,
                           "step %lld: %lld steps skipped in a row "
                           "(precision.max_skipped_in_a_row); the last because %s",
                           (long long)step, (long long)train->skipped_in_a_row, outcome->cause);
    }
    return STATUS_OK;
}

/* When it is time, and where a signal ends the run. */
static enum status save(struct train *train, int64_t step)
{
    const struct config_checkpoint *checkpoint = &train->config.checkpoint;
    const struct engine_save saving = {
        .directory = checkpoint->dir,
        .keep = checkpoint->keep,
        .skipped = train->skipped,
        .skipped_in_a_row = train->skipped_in_a_row,
    };
    bool due = checkpoint->every > 0 && step % checkpoint->every == 0;

    if (step == train->saved || (!due && train->engine->update.outcome.stop_signal == 0)) {
        return STATUS_OK;
    }
    /* What the checkpoint says has happened, the metrics have too. */
    TRY(train->metrics != NULL ? metrics_sync(train->metrics) : STATUS_OK);
    TRY(engine_save(train->engine, &saving));
    train->saved = step;
    return STATUS_OK;
}

static enum status run_step(struct train *train, int64_t step, bool *last_out)
{
    int64_t begin_ns = clock_now_ns();
    double seconds = 0.0;
    double valid_loss = 0.0;
    bool evaluates = false;

    TRY(engine_step(train->engine));
    seconds = (double)(clock_now_ns() - begin_ns) * 1e-9;
    *last_out = step == train->config.train.steps || train->engine->update.outcome.stop_signal != 0;
    TRY(run_trace_keep(&train->trace, step));
    evaluates = evaluates_after(train, step);
    if (evaluates) {
        begin_ns = clock_now_ns();
        TRY(engine_evaluate(train->engine, SPLIT_VALID, &valid_loss));
        TRY(run_trace_keep_evaluation(&train->trace, step, begin_ns));
    }
    TRY(tell(train, step, seconds, evaluates, valid_loss));
    TRY(check_skips(train, step));
    return save(train, step);
}

static enum status finish(struct train *train)
{
    char path[FILE_PATH_BYTES];
    double loss = 0.0;

    if (train->engine->sets[SPLIT_TEST].batches > 0) {
        TRY(engine_evaluate(train->engine, SPLIT_TEST, &loss));
        if (train->metrics != NULL) {
            metrics_print_held_out(train->metrics, "test", train->config.train.steps, loss);
        }
    }
    TRY(folder_path(train->config.train.run_dir, "model", path));
    return engine_export(train->engine, path);
}

static enum status loop(struct train *train, int32_t *signal_out)
{
    int64_t done = train->engine->attempts;
    bool last = done >= train->config.train.steps;

    for (int64_t step = done + 1; !last; step++) {
        TRY(run_step(train, step, &last));
        *signal_out = train->engine->update.outcome.stop_signal;
    }
    (void)fault_strike(&train->engine->worker.fault, train->env.rank, FAULT_STEP_END, 0,
                       &train->cancel);
    TRY(run_trace_end(&train->trace));
    TRY(engine_settle(train->engine));
    TRY(engine_summarize(train->engine));
    return *signal_out == 0 ? finish(train) : STATUS_OK;
}

static enum status end(struct train *train, enum status status)
{
    enum status closed = run_trace_close(&train->trace);

    metrics_close(&train->metrics);
    stop_signal_close(&train->stop);
    status = engine_close(&train->engine, status < 0 ? status : closed);
    job_directory_remove(&train->job);
    run_directory_release(&train->run);
    resume_release(&train->resume);
    return status;
}

/* Of a run that goes on: before any process starts; its rank 0 looks again. */
static enum status check_content(const struct config *config, const struct resume *resume)
{
    struct manifest_sum data;

    if (!resume->place.found) {
        return STATUS_OK;
    }
    TRY(fingerprint_file(config->data.train, &data));
    return resume_judge_data(resume, config, &data, false);
}

enum status train_check(const struct config *config, int32_t local_ranks)
{
    struct config settled = *config;
    struct resume resume;
    enum status status = STATUS_OK;

    TRY(run_directory_check_free(config));
    status = settle(&settled, &resume, false);
    if (status >= 0) {
        status = check_all(&settled, resume.place.found, local_ranks);
    }
    if (status >= 0) {
        status = check_content(&settled, &resume);
    }
    resume_release(&resume);
    return status;
}

enum status train_run(const struct config *config, int32_t *signal_out)
{
    struct train train = {.config = *config, .run = {.lock = -1, .checkpoint_lock = -1}};
    enum status status = STATUS_OK;

    *signal_out = 0;
    TRY(launch_env_read(&train.env));
    TRY(check_world(&train));
    TRY(is_first(&train) ? run_directory_check_free(config) : STATUS_OK);
    if (run_directory_state(config) == RUN_FINISHED) {
        if (is_first(&train)) {
            run_directory_print_finished(config);
        }
        return STATUS_OK;
    }
    status = begin(&train);
    if (status >= 0) {
        status = loop(&train, signal_out);
    }
    if (status < 0 && stop_signal_start_ended_by(train.stop) != 0) {
        *signal_out = stop_signal_start_ended_by(train.stop);
    }
    return end(&train, status);
}
