#include "stages/tune/measure.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"

#define METRICS_BYTES_MOST ((size_t)64 << 20)

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return a < b ? -1 : a > b;
}

double tune_quantile(double *samples, int64_t count, double share)
{
    double place = share * (double)(count - 1);
    int64_t below = (int64_t)place;
    int64_t above = below + 1 < count ? below + 1 : below;
    double part = place - (double)below;

    qsort(samples, (size_t)count, sizeof(*samples), compare);
    return samples[below] * (1.0 - part) + samples[above] * part;
}

/* step_ms of a line of metrics.jsonl into *ms_out; false for one without, as the first. */
static bool read_step(const char *line, size_t bytes, int64_t *step_out, double *ms_out)
{
    json_t *object = json_loadb(line, bytes, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    const json_t *ms = json_object_get(object, "step_ms");
    bool is_step = json_is_integer(step) && json_is_number(ms);

    if (is_step) {
        *step_out = json_integer_value(step);
        *ms_out = json_number_value(ms);
    }
    json_decref(object);
    return is_step;
}

static enum status take_steps(const char *path, const char *text, struct tune_measure *measure)
{
    const char *at = text;
    int32_t lines = 1;

    for (const char *c = text; *c != '\0'; c++) {
        lines += *c == '\n' ? 1 : 0;
    }
    measure->step_s = calloc((size_t)lines, sizeof(*measure->step_s));
    if (measure->step_s == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: %d steps", path, lines);
    }
    while (*at != '\0') {
        size_t bytes = strcspn(at, "\n");
        int64_t step = 0;
        double ms = 0.0;

        if (read_step(at, bytes, &step, &ms) && step > TUNE_WARM_STEPS) {
            measure->step_s[measure->steps++] = ms * 1e-3;
        }
        at += bytes + (at[bytes] == '\n' ? 1 : 0);
    }
    if (measure->steps == 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s: no step after the first %d, which do not count; more --steps", path,
                           TUNE_WARM_STEPS);
    }
    return STATUS_OK;
}

static enum status read_steps(const char *run_dir, struct tune_measure *measure)
{
    char path[FILE_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    double *sorted = NULL;
    enum status status = STATUS_OK;

    TRY(folder_path(run_dir, "metrics.jsonl", path));
    TRY(file_read(path, METRICS_BYTES_MOST, &text, &bytes));
    status = take_steps(path, text, measure);
    free(text);
    if (status < 0) {
        return status;
    }
    sorted = malloc((size_t)(measure->steps > 0 ? measure->steps : 1) * sizeof(*sorted));
    if (sorted == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%s: %d steps", path, measure->steps);
    }
    memcpy(sorted, measure->step_s, (size_t)measure->steps * sizeof(*sorted));
    measure->median_s = tune_quantile(sorted, measure->steps, 0.5);
    measure->spread =
        (tune_quantile(sorted, measure->steps, 0.9) - measure->median_s) / measure->median_s;
    free(sorted);
    return STATUS_OK;
}

static double seconds(double ms)
{
    return ms * 1e-3;
}

static enum status take_chunks(const struct costs *costs, struct tune_measure *measure)
{
    size_t stages = (size_t)costs->stages;

    measure->stages = costs->stages;
    for (int c = 0; c < TUNE_COSTS; c++) {
        measure->typical[c] = calloc(stages, sizeof(double));
        measure->p90[c] = calloc(stages, sizeof(double));
        if (measure->typical[c] == NULL || measure->p90[c] == NULL) {
            return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: costs of %zu virtual stages",
                               stages);
        }
        for (size_t s = 0; s < stages; s++) {
            measure->typical[c][s] = seconds(costs->compute[c][s].typical);
            measure->p90[c][s] = seconds(costs->compute[c][s].p90);
        }
    }
    return STATUS_OK;
}

/* A mean over all that were waited for. */
static double latency_of(const struct costs *costs)
{
    double sum = 0.0;
    double count = 0.0;

    for (int direction = 0; direction < LANE_DIRECTIONS; direction++) {
        for (int32_t s = 0; s < costs->stages; s++) {
            const struct cost_stat *latency = &costs->latency[direction][s];

            sum += (double)latency->count * latency->typical;
            count += (double)latency->count;
        }
    }
    return count > 0.0 ? sum / count : 0.0;
}

static enum status read_costs(const char *run_dir, struct tune_measure *measure)
{
    struct costs costs = {.stages = 0};
    double outside_ms = 0.0;
    enum status status = calibrate_run(run_dir, &costs);

    if (status >= 0) {
        status = take_chunks(&costs, measure);
    }
    if (status >= 0) {
        outside_ms = costs.rest.typical - costs.optimizer.typical;
        measure->send_s = seconds(costs.send.typical);
        measure->message_s = seconds(latency_of(&costs));
        measure->gather_s = seconds(costs.gather.typical);
        measure->action_s = seconds(costs.action.typical);
        measure->optimizer_s = seconds(costs.optimizer.typical);
        measure->outside_s = outside_ms > 0.0 ? seconds(outside_ms) : 0.0;
    }
    costs_release(&costs);
    return status;
}

enum status tune_measure_read(const char *run_dir, bool traced, struct tune_measure *measure_out)
{
    *measure_out = (struct tune_measure){.steps = 0};
    TRY(read_steps(run_dir, measure_out));
    return traced ? read_costs(run_dir, measure_out) : STATUS_OK;
}

void tune_measure_release(struct tune_measure *measure)
{
    for (int c = 0; c < TUNE_COSTS; c++) {
        free(measure->typical[c]);
        free(measure->p90[c]);
    }
    free(measure->step_s);
    *measure = (struct tune_measure){.steps = 0};
}
