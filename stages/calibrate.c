#include "stages/calibrate.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "scheduler/costs_file.h"
#include "scheduler/schedule.h"
#include "scheduler/trace_read.h"
#include "stages/config.h"

#define METRICS_BYTES_MOST ((size_t)256 << 20)

/* Step and step_ms of a line of metrics.jsonl; false for one without, as the first. */
static bool read_step(const char *line, size_t bytes, struct costs_step *step_out)
{
    json_t *object = json_loadb(line, bytes, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    const json_t *ms = json_object_get(object, "step_ms");
    bool is_step = json_is_integer(step) && json_is_number(ms) && json_number_value(ms) >= 0.0;

    if (is_step) {
        *step_out = (struct costs_step){json_integer_value(step), json_number_value(ms)};
    }
    json_decref(object);
    return is_step;
}

/* Those of steps first … last. The caller frees *steps_out, which may be NULL. */
static enum status read_steps(const char *run_dir, int32_t first, int32_t last,
                              struct costs_step **steps_out, size_t *count_out)
{
    char path[FILE_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    size_t count = 0;

    *steps_out = NULL;
    *count_out = 0;
    TRY(folder_path(run_dir, "metrics.jsonl", path));
    if (access(path, R_OK) != 0) {
        return STATUS_OK; /* without it the rest of a step is what the trace says */
    }
    TRY(file_read(path, METRICS_BYTES_MOST, &text, &bytes));
    *steps_out = calloc((size_t)(last - first) + 1, sizeof(**steps_out));
    if (*steps_out == NULL) {
        free(text);
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: %d steps", path, last - first + 1);
    }
    for (const char *at = text; *at != '\0' && count <= (size_t)(last - first);) {
        size_t line = strcspn(at, "\n");
        struct costs_step step;

        if (read_step(at, line, &step) && step.step >= first && step.step <= last) {
            (*steps_out)[count++] = step;
        }
        at += line + (at[line] == '\n' ? 1 : 0);
    }
    free(text);
    *count_out = count;
    return STATUS_OK;
}

static enum status read_plan(const char *run_dir, struct costs_plan *plan_out)
{
    struct config *config = NULL;
    struct plan_shape shape;
    char path[FILE_PATH_BYTES];

    TRY(folder_path(run_dir, "config.yaml", path));
    TRY(config_load(path, NULL, 0, &config));
    config_plan_shape(config, &shape);
    config_destroy(&config);
    *plan_out = (struct costs_plan){.ranks = shape.ranks,
                                    .microbatches = shape.microbatches,
                                    .virtual_stages = shape.virtual_stages};
    (void)snprintf(plan_out->schedule, sizeof(plan_out->schedule), "%s",
                   schedule_text(shape.schedule));
    return STATUS_OK;
}

/* `run` loses the steps that do not count. */
static enum status measure(const char *run_dir, const struct costs_plan *plan,
                           struct trace_run *run, struct costs *costs_out)
{
    struct costs_step *steps = NULL;
    size_t count = 0;
    int32_t first = 0;
    int32_t last = 0;
    enum status status;

    TRY(trace_run_steps(run, &first, &last));
    first = first > CALIBRATE_WARM_STEPS ? first : CALIBRATE_WARM_STEPS + 1;
    first = first < last ? first : last;
    trace_run_keep(run, first, last);
    TRY(read_steps(run_dir, first, last, &steps, &count));
    status = costs_measure(run, plan, steps, count, costs_out);
    free(steps);
    return status;
}

enum status calibrate_run(const char *run_dir, struct costs *costs_out)
{
    struct costs_plan plan;
    struct trace_run run;
    enum status status;

    TRY(read_plan(run_dir, &plan));
    TRY(trace_read(run_dir, &run));
    status = measure(run_dir, &plan, &run, costs_out);
    trace_run_release(&run);
    return status;
}

enum status calibrate_load(const char *path, struct costs *costs_out)
{
    char file[FILE_PATH_BYTES];

    if (!folder_exists(path)) {
        return costs_file_read(path, costs_out);
    }
    TRY(folder_path(path, "costs.json", file));
    return access(file, F_OK) == 0 ? costs_file_read(file, costs_out)
                                   : calibrate_run(path, costs_out);
}
