#include "stages/tune/winner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "stages/config_schema.h"
#include "stages/config_write.h"
#include "stages/memory.h"
#include "stages/tune/ranking.h"

#define PLAN_BYTES_MOST ((size_t)1 << 32)

static const char ending[] = "-tuned";

/* The configuration's run directory without a slash at its end, with `suffix` behind it. */
static enum status beside_run(const struct config *config, const char *suffix, char *path,
                              size_t path_bytes)
{
    size_t bytes = strlen(config->train.run_dir);
    int wrote = 0;

    while (bytes > 1 && config->train.run_dir[bytes - 1] == '/') {
        bytes--;
    }
    wrote =
        snprintf(path, path_bytes, "%.*s%s%s", (int)bytes, config->train.run_dir, ending, suffix);
    if (wrote < 0 || (size_t)wrote >= path_bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: train.run_dir: %s is too long for a name with %s%s behind "
                           "it",
                           config->train.run_dir, ending, suffix);
    }
    return STATUS_OK;
}

enum status tune_winner_path(const struct tune_base *base, char *path)
{
    return beside_run(base->config, ".yaml", path, FILE_PATH_BYTES);
}

struct writing {
    const struct tune_base *base;
    const struct tune_result *result;
    const struct config *config; /* what is written */
};

/* Both values of a key as they are written; the caller frees. */
static enum status value_text(const struct config_key *key, const struct config *config,
                              char **text_out)
{
    size_t bytes = 0;
    FILE *stream = open_memstream(text_out, &bytes);
    enum status status = STATUS_OK;

    if (stream == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: the value of %s.%s", key->section,
                           key->name);
    }
    status = config_write_value(key, config, stream);
    (void)fclose(stream);
    if (status < 0) {
        free(*text_out);
        *text_out = NULL;
    }
    return status;
}

static enum status print_change(const struct config_key *key, const struct writing *writing,
                                FILE *out)
{
    char *before = NULL;
    char *now = NULL;
    enum status status = value_text(key, writing->base->config, &before);

    if (status >= 0) {
        status = value_text(key, writing->config, &now);
    }
    if (status >= 0 && strcmp(before, now) != 0) {
        (void)fprintf(out, "#   %s.%s: %s -> %s\n", key->section, key->name, before, now);
    }
    free(before);
    free(now);
    return status;
}

static void print_numbers(const struct writing *writing, FILE *out)
{
    const struct tune_contender *winner = &writing->result->field.all[0];
    struct memory_unit unit = memory_unit_for(winner->need_bytes);
    char gain[TUNE_RANKING_GAIN_BYTES];

    tune_ranking_gain(&writing->result->field, winner, gain);
    if (winner->measured_steps > 0) {
        (void)fprintf(out, "# %.1f ms a step measured over %d steps%s%s; ",
                      winner->measured_median_s * 1e3, winner->measured_steps,
                      gain[0] != '\0' ? ": " : "", gain);
    } else {
        (void)fprintf(out, "# ");
    }
    (void)fprintf(out, "%.1f ms predicted, bubble %.1f %%\n", winner->step_s * 1e3,
                  winner->bubble * 100.0);
    (void)fprintf(out, "# the fullest rank holds %.1f %s\n",
                  (double)winner->need_bytes / unit.bytes, unit.name);
}

/* A file_print_fn. */
static enum status print(const void *context, FILE *out)
{
    const struct writing *writing = context;

    (void)fprintf(out, "# %s as weir tune found it fastest on this machine, of %zu candidates.\n",
                  writing->base->path, writing->result->field.candidates);
    print_numbers(writing, out);
    (void)fprintf(out, "# What differs:\n");
    for (size_t i = 0; i < config_schema_count(); i++) {
        TRY(print_change(config_schema_at(i), writing, out));
    }
    return config_write_yaml(writing->config, out);
}

/* Checkpoints that lay in the run directory follow it. */
static enum status move_run(const struct config *own, struct config *config)
{
    char usual[sizeof(own->checkpoint.dir) + 16];

    TRY(beside_run(own, "", config->train.run_dir, sizeof(config->train.run_dir)));
    (void)snprintf(usual, sizeof(usual), "%s/checkpoints", own->train.run_dir);
    if (strcmp(own->checkpoint.dir, usual) != 0) {
        return STATUS_OK;
    }
    if (snprintf(config->checkpoint.dir, sizeof(config->checkpoint.dir), "%.490s/checkpoints",
                 config->train.run_dir) >= (int)sizeof(config->checkpoint.dir)) {
        return status_fail(STATUS_ERR_REFUSED, "weir tune: train.run_dir: %s is too long",
                           config->train.run_dir);
    }
    return STATUS_OK;
}

/* A plan that has no name lay among the jobs; it goes beside the configuration that names it. */
static enum status keep_plan(const struct tune_candidate *candidate, const char *path,
                             struct config *config)
{
    char *bytes = NULL;
    size_t count = 0;
    int wrote = 0;
    enum status status = STATUS_OK;

    if (candidate->plan_path == NULL) {
        return STATUS_OK;
    }
    wrote = snprintf(config->parallel.schedule_file, sizeof(config->parallel.schedule_file),
                     "%s.plan.csv", path);
    if (wrote < 0 || (size_t)wrote >= sizeof(config->parallel.schedule_file)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "weir tune: %s is too long for the name of a plan beside it", path);
    }
    TRY(file_read(candidate->plan_path, PLAN_BYTES_MOST, &bytes, &count));
    status = file_write(config->parallel.schedule_file, bytes, count);
    free(bytes);
    return status;
}

enum status tune_winner_write(const struct tune_base *base, const struct tune_result *result,
                              const char *path)
{
    struct config *config = malloc(sizeof(*config));
    struct writing writing = {.base = base, .result = result, .config = config};
    enum status status = STATUS_OK;

    if (config == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "weir tune: a configuration");
    }
    *config = *result->field.all[0].config;
    status = move_run(base->config, config);
    if (status >= 0) {
        status = keep_plan(&result->field.all[0].candidate, path, config);
    }
    if (status >= 0) {
        status = file_print(path, print, &writing);
    }
    free(config);
    return status;
}
