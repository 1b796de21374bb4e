#include "stages/metrics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "stages/console.h"
#include "stages/metrics_file.h"

struct metrics {
    FILE *file; /* owns */
    struct console console;
    int64_t steps;
    int64_t log_every;
    int64_t tokens_per_step;
    int64_t seq_len;
    double flops_per_step;
    int32_t ranks;
    bool dynamic; /* the loss scale is */
    bool scales;  /* the loss scale may be another than 1 */
    int64_t skipped;
    int64_t first;    /* step that this process runs first */
    int64_t begin_ns; /* of its steps, for the time that is left */
};

/* What of an earlier attempt does not fit to where this one goes on. */
static void tell_cut(const char *path, int64_t step)
{
    int64_t last = metrics_file_last(path);

    if (last > step) {
        log_warn("%s: the earlier attempt came to step %lld; from step %lld on it is cut off and "
                 "run again",
                 path, (long long)last, (long long)step + 1);
    } else if (last > 0 && last < step) {
        log_warn("%s: the lines of steps %lld to %lld are missing", path, (long long)last + 1,
                 (long long)step);
    }
}

/* The configuration, and, of a run that goes on, its lines so far. */
static enum status begin_file(const char *path, const struct config *config,
                              const struct metrics_past *past)
{
    char *header = NULL;
    enum status status = STATUS_OK;

    TRY(config_write_json(config, &header));
    if (past != NULL) {
        tell_cut(path, past->step);
    }
    status = metrics_file_cut(path, header, past != NULL ? past->step : 0);
    free(header);
    return status;
}

enum status metrics_open(const struct config *config, const struct model_shape *shape,
                         const struct metrics_past *past, struct metrics **metrics_out)
{
    char path[FILE_PATH_BYTES];
    struct metrics *metrics = NULL;
    enum status status = STATUS_OK;

    TRY(folder_path(config->train.run_dir, "metrics.jsonl", path));
    TRY(begin_file(path, config, past));
    metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "metrics");
    }
    metrics->steps = config->train.steps;
    metrics->log_every = config->train.log_every;
    metrics->seq_len = config->model.seq_len;
    metrics->tokens_per_step = config->train.global_batch_size * config->model.seq_len;
    metrics->flops_per_step = model_flops_per_token(shape) * (double)metrics->tokens_per_step;
    metrics->ranks = (int32_t)(config->parallel.pp * config->parallel.tp * config->parallel.dp);
    metrics->first = past != NULL ? past->step + 1 : 1;
    metrics->skipped = past != NULL ? past->skipped : 0;
    metrics->dynamic = config->precision.dynamic_scale;
    metrics->scales = config->precision.dynamic_scale || config->precision.loss_scale != 1.0;
    metrics->begin_ns = clock_now_ns();
    console_init(&metrics->console, stdout);
    metrics->file = fopen(path, "ae");
    if (metrics->file == NULL) {
        status = status_fail(STATUS_ERR_IO, "cannot write %s: %s", path, strerror(errno));
        metrics_close(&metrics);
        return status;
    }
    *metrics_out = metrics;
    return STATUS_OK;
}

/* JSON has no NaN; what is not finite is null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *step_object(const struct metrics *metrics, const struct metrics_step *step)
{
    const struct update_outcome *outcome = step->outcome;
    double tokens_per_s = (double)metrics->tokens_per_step / step->seconds;
    json_t *object = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I}", "step",
        (json_int_t)step->step, "update", (json_int_t)step->update, "loss", number(outcome->loss),
        "grad_norm", number(outcome->grad_norm), "lr", number(outcome->lr), "loss_scale",
        number(outcome->loss_scale), "skipped", outcome->skipped ? 1 : 0, "consumed_samples",
        (json_int_t)step->consumed_samples, "consumed_tokens",
        (json_int_t)step->consumed_samples * metrics->seq_len, "step_ms",
        number(step->seconds * 1e3), "tokens_per_s", number(tokens_per_s), "tflops",
        number(metrics->flops_per_step / step->seconds * 1e-12), "bubble", number(outcome->bubble),
        "bubble_ideal", number(step->bubble_ideal), "mem_bytes", (json_int_t)outcome->mem_bytes);

    if (object != NULL && outcome->has_num_zeros) {
        (void)json_object_set_new(object, "num_zeros",
                                  json_integer((json_int_t)outcome->num_zeros));
    }
    if (object != NULL && outcome->has_params_norm) {
        (void)json_object_set_new(object, "params_norm", number(outcome->params_norm));
    }
    if (object != NULL && step->has_valid) {
        (void)json_object_set_new(object, "valid_loss", number(step->valid_loss));
    }
    if (object != NULL && outcome->skipped) {
        (void)json_object_set_new(object, "cause", json_string(outcome->cause));
        if (metrics->dynamic) {
            (void)json_object_set_new(object, "hysteresis_left",
                                      json_integer(outcome->hysteresis_left));
        }
    }
    return object;
}

/* "scale 65536 skip 2", or what of it there is to say. */
static void add_scale(const struct metrics *metrics, const struct update_outcome *outcome,
                      struct console_line *line)
{
    char scale[40] = "";
    char skip[40] = "";

    if (metrics->scales) {
        (void)snprintf(scale, sizeof(scale), "scale %.10g", outcome->loss_scale);
    }
    if (metrics->skipped > 0) {
        (void)snprintf(skip, sizeof(skip), "skip %lld", (long long)metrics->skipped);
    }
    if (scale[0] != '\0' || skip[0] != '\0') {
        console_line_add(line, "%s%s%s", scale, scale[0] != '\0' && skip[0] != '\0' ? " " : "",
                         skip);
    }
}

static void print_line(struct metrics *metrics, const struct metrics_step *step)
{
    const struct update_outcome *outcome = step->outcome;
    struct console_line line;
    double passed = (double)(clock_now_ns() - metrics->begin_ns) * 1e-9;
    double done = (double)(step->step - metrics->first + 1);
    double left = passed / done * (double)(metrics->steps - step->step);

    console_line_begin(&line);
    console_line_add(&line, "step %lld/%lld", (long long)step->step, (long long)metrics->steps);
    console_line_add(&line, "loss %.4f", outcome->loss);
    console_line_add(&line, "gnorm %.2f", outcome->grad_norm);
    console_line_add(&line, "lr %.1e", outcome->lr);
    console_line_add(&line, "%.0f ms", step->seconds * 1e3);
    console_line_add_rate(&line, (double)metrics->tokens_per_step / step->seconds, "tok/s");
    console_line_add(&line, "%.1f GFLOP/s/rank",
                     metrics->flops_per_step / step->seconds * 1e-9 / metrics->ranks);
    console_line_add(&line, "bubble %.1f%% (ideal %.1f%%)", outcome->bubble * 100.0,
                     step->bubble_ideal * 100.0);
    console_line_add_bytes(&line, "mem ", outcome->mem_bytes);
    if (outcome->has_num_zeros) {
        console_line_add(&line, "zeros %.0f", outcome->num_zeros);
    }
    if (outcome->has_params_norm) {
        console_line_add(&line, "pnorm %.4f", outcome->params_norm);
    }
    add_scale(metrics, outcome, &line);
    console_line_add_time(&line, "eta ", left);
    console_print(&metrics->console, &line);
    if (outcome->skipped) {
        console_line_begin(&line);
        console_line_add(&line, "step %lld skipped: %s", (long long)step->step, outcome->cause);
        console_print(&metrics->console, &line);
    }
}

enum status metrics_put(struct metrics *metrics, const struct metrics_step *step)
{
    json_t *object = NULL;
    char *text = NULL;
    bool failed = false;

    metrics->skipped += step->outcome->skipped ? 1 : 0;
    object = step_object(metrics, step);
    text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    failed = text == NULL || fprintf(metrics->file, "%s\n", text) < 0 || fflush(metrics->file) != 0;
    free(text);
    json_decref(object);
    if (failed) {
        return status_fail(STATUS_ERR_IO, "writing metrics.jsonl, step %lld: %s",
                           (long long)step->step, strerror(errno));
    }
    if (step->step == metrics->first || step->step == metrics->steps || step->outcome->skipped ||
        step->step % metrics->log_every == 0) {
        print_line(metrics, step);
    }
    return STATUS_OK;
}

void metrics_tick(struct metrics *metrics, int64_t step)
{
    console_bar(&metrics->console, step, metrics->steps);
}

void metrics_print_held_out(struct metrics *metrics, const char *set, int64_t step, double loss)
{
    struct console_line line;

    console_line_begin(&line);
    console_line_add(&line, "step %lld", (long long)step);
    console_line_add(&line, "%s loss %.4f", set, loss);
    console_print(&metrics->console, &line);
}

void metrics_print_resumed(struct metrics *metrics, int64_t step, const char *path)
{
    struct console_line line;

    console_line_begin(&line);
    console_line_add(&line, "resumed from step %lld", (long long)step);
    console_line_add(&line, "%s", path);
    console_print(&metrics->console, &line);
}

enum status metrics_sync(struct metrics *metrics)
{
    if (fsync(fileno(metrics->file)) != 0 && errno != EINVAL) {
        return status_fail(STATUS_ERR_IO, "syncing metrics.jsonl: %s", strerror(errno));
    }
    return STATUS_OK;
}

void metrics_close(struct metrics **metrics)
{
    if (*metrics == NULL) {
        return;
    }
    console_end(&(*metrics)->console);
    if ((*metrics)->file != NULL) {
        (void)fclose((*metrics)->file);
    }
    free(*metrics);
    *metrics = NULL;
}
