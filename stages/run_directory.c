#include "stages/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/store.h"
#include "stages/metrics_file.h"

enum status run_directory_path(const struct config *config, const char *name, char *path,
                               size_t path_bytes)
{
    int used = snprintf(path, path_bytes, "%s/%s", config->train.run_dir, name);

    if (used < 0 || (size_t)used >= path_bytes) {
        return status_fail(STATUS_ERR_REFUSED, "train.run_dir: %s/%s is longer than %zu bytes",
                           config->train.run_dir, name, path_bytes - 1);
    }
    return STATUS_OK;
}

static bool has(const struct config *config, const char *name)
{
    char path[FILE_PATH_BYTES];
    int used = snprintf(path, sizeof(path), "%s/%s", config->train.run_dir, name);

    return used > 0 && (size_t)used < sizeof(path) && access(path, F_OK) == 0;
}

/* Its checkpoints lie where nothing of another run does. */
static bool owns_checkpoints(const struct config *config)
{
    char path[FILE_PATH_BYTES];

    return run_directory_path(config, "checkpoints", path, sizeof(path)) == STATUS_OK &&
           strcmp(path, config->checkpoint.dir) == 0;
}

/* A run that came to its end is asked for more steps, and can go on to them. */
static bool is_extended(const struct config *config)
{
    char path[FILE_PATH_BYTES];

    return config->checkpoint.resume != RESUME_NEVER && store_has_any(config->checkpoint.dir) &&
           run_directory_path(config, "metrics.jsonl", path, sizeof(path)) == STATUS_OK &&
           metrics_file_last(path) < config->train.steps;
}

enum run_state run_directory_state(const struct config *config)
{
    if (config->train.overwrite) {
        return RUN_NEW;
    }
    if (has(config, "model/config.json")) {
        return is_extended(config) ? RUN_INCOMPLETE : RUN_FINISHED;
    }
    return has(config, "metrics.jsonl") ||
                   (owns_checkpoints(config) && store_has_any(config->checkpoint.dir))
               ? RUN_INCOMPLETE
               : RUN_NEW;
}

void run_directory_print_finished(const struct config *config)
{
    char path[FILE_PATH_BYTES];
    int64_t last = config->train.steps;

    (void)printf("%s is finished; look at it with `weir trace %s`, or start again with "
                 "--overwrite\n",
                 config->train.run_dir, config->train.run_dir);
    if (run_directory_path(config, "metrics.jsonl", path, sizeof(path)) == STATUS_OK) {
        last = metrics_file_last(path);
    }
    if (last < config->train.steps) {
        (void)printf("(it has run %lld steps, and there is no checkpoint from which it could go on "
                     "to %lld)\n",
                     (long long)last, (long long)config->train.steps);
    }
}

static enum status refuse_live(const struct config *config)
{
    return status_fail(STATUS_ERR_REFUSED,
                       "train.run_dir: another run is alive in %s; choose another "
                       "--train.run_dir, or wait for its end",
                       config->train.run_dir);
}

/* Whether a run holds the lock. Asked for in passing and never kept. */
static bool is_live(const struct config *config)
{
    char path[FILE_PATH_BYTES];
    int used = snprintf(path, sizeof(path), "%s/lock", config->train.run_dir);
    int lock = -1;
    bool live = false;

    if (used > 0 && (size_t)used < sizeof(path)) {
        lock = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (lock >= 0) {
        live = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        (void)close(lock);
    }
    return live;
}

static enum status refuse_incomplete(const struct config *config)
{
    if (config->checkpoint.resume == RESUME_NEVER) {
        return status_fail(STATUS_ERR_REFUSED,
                           "train.run_dir: %s holds a run that did not finish, and "
                           "checkpoint.resume is never; choose another --train.run_dir, or "
                           "--overwrite",
                           config->train.run_dir);
    }
    return status_fail(STATUS_ERR_REFUSED,
                       "train.run_dir: %s holds a run that did not finish, and no checkpoint "
                       "to go on from; choose another --train.run_dir, or --overwrite",
                       config->train.run_dir);
}

enum status run_directory_check(const struct config *config, bool resumes)
{
    if (is_live(config)) {
        return refuse_live(config);
    }
    if (run_directory_state(config) == RUN_INCOMPLETE && !resumes) {
        return refuse_incomplete(config);
    }
    if (config->train.overwrite && !owns_checkpoints(config) &&
        store_has_any(config->checkpoint.dir)) {
        return status_fail(STATUS_ERR_REFUSED,
                           "checkpoint.dir: %s has checkpoints, and lies outside of the run "
                           "directory, which alone is what --overwrite empties; remove them, or "
                           "choose another --checkpoint.dir",
                           config->checkpoint.dir);
    }
    return STATUS_OK;
}

/* Removes `name`, a file or a folder; what is not there is fine. */
static enum status clear(const struct config *config, const char *name)
{
    char path[FILE_PATH_BYTES];

    TRY(run_directory_path(config, name, path, sizeof(path)));
    return folder_remove(path);
}

static enum status take_lock(const struct config *config, struct run_directory *run)
{
    char path[FILE_PATH_BYTES];

    TRY(run_directory_path(config, "lock", path, sizeof(path)));
    run->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (run->lock < 0) {
        return status_fail(STATUS_ERR_IO, "train.run_dir: cannot open %s: %s", path,
                           strerror(errno));
    }
    if (flock(run->lock, LOCK_EX | LOCK_NB) != 0) {
        run_directory_release(run);
        return refuse_live(config);
    }
    return STATUS_OK;
}

static enum status print_config(const void *context, FILE *out)
{
    const struct config *config = context;

    return config_write_yaml(config, out);
}

static enum status write_config(const struct config *config)
{
    char path[FILE_PATH_BYTES];

    TRY(run_directory_path(config, "config.yaml", path, sizeof(path)));
    return file_print(path, print_config, config);
}

/* First what says that a run has finished, so that a start that is cut short between two of them leaves
 * no directory that looks finished. */
static enum status remove_leftovers(const struct config *config)
{
    static const char *const leftovers[] = {"model/config.json", "metrics.jsonl", "timeline.svg",
                                            "plan.csv",          "trace",         "model"};

    for (size_t i = 0; i < sizeof(leftovers) / sizeof(leftovers[0]); i++) {
        TRY(clear(config, leftovers[i]));
    }
    return owns_checkpoints(config) ? store_clear(config->checkpoint.dir) : STATUS_OK;
}

/* Moves one trace of the last attempt into `folder`. */
static enum status put_aside(const char *trace, const char *name, const char *folder)
{
    char from[FILE_PATH_BYTES];
    char to[FILE_PATH_BYTES];

    TRY(folder_path(trace, name, from));
    TRY(folder_path(folder, name, to));
    if (rename(from, to) != 0) {
        return status_fail(STATUS_ERR_IO, "moving %s into %s: %s", from, folder, strerror(errno));
    }
    return STATUS_OK;
}

/* trace/attempt-N, for the smallest N from 1 that is free. */
static enum status next_attempt(const char *trace, char *folder)
{
    char name[32];
    int attempt = 1;

    do {
        (void)snprintf(name, sizeof(name), "attempt-%d", attempt++);
        TRY(folder_path(trace, name, folder));
    } while (access(folder, F_OK) == 0);
    return STATUS_OK;
}

/* Each attempt has traces of its own; those of the last one lie in trace/. */
static enum status put_traces_aside(const struct config *config)
{
    char trace[FILE_PATH_BYTES];
    char folder[FILE_PATH_BYTES];
    DIR *directory = NULL;
    const struct dirent *entry = NULL;
    enum status status = STATUS_OK;

    TRY(run_directory_path(config, "trace", trace, sizeof(trace)));
    TRY(next_attempt(trace, folder));
    directory = opendir(trace);
    while (directory != NULL && status >= 0 && (entry = readdir(directory)) != NULL) {
        if (strncmp(entry->d_name, "rank-", 5) == 0) {
            status = file_make_directories(folder);
            status = status < 0 ? status : put_aside(trace, entry->d_name, folder);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return status;
}

static enum status make_folders(const struct config *config)
{
    static const char *const folders[] = {"trace", "model"};
    char path[FILE_PATH_BYTES];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        TRY(run_directory_path(config, folders[i], path, sizeof(path)));
        TRY(file_make_directories(path));
    }
    return STATUS_OK;
}

/* What an earlier attempt of the run, or an earlier run, has left. */
static enum status tidy(const struct config *config, bool resumes)
{
    if (!resumes) {
        return remove_leftovers(config);
    }
    TRY(clear(config, "model/config.json"));
    return put_traces_aside(config);
}

enum status run_directory_open(const struct config *config, bool resumes, struct run_directory *run)
{
    *run = (struct run_directory){.lock = -1};
    (void)snprintf(run->path, sizeof(run->path), "%s", config->train.run_dir);
    TRY(run_directory_check(config, resumes));
    TRY(file_make_directories(config->train.run_dir));
    TRY(take_lock(config, run));
    TRY(tidy(config, resumes));
    TRY(make_folders(config));
    return write_config(config);
}

void run_directory_release(struct run_directory *run)
{
    if (run->lock >= 0) {
        (void)close(run->lock);
    }
    run->lock = -1;
}
