#include "stages/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "stages/checkpoint/store.h"
#include "stages/metrics_file.h"

static bool has(const struct config *config, const char *name)
{
    char path[FILE_PATH_BYTES];

    return folder_path(config->train.run_dir, name, path) == STATUS_OK && access(path, F_OK) == 0;
}

/* Its checkpoints lie where nothing of another run does. */
static bool owns_checkpoints(const struct config *config)
{
    char path[FILE_PATH_BYTES];

    return folder_path(config->train.run_dir, "checkpoints", path) == STATUS_OK &&
           strcmp(path, config->checkpoint.dir) == 0;
}

/* A run that came to its end is asked for more steps, and can go on to them. */
static bool is_extended(const struct config *config)
{
    char path[FILE_PATH_BYTES];

    return config->checkpoint.resume != RESUME_NEVER && store_has_any(config->checkpoint.dir) &&
           folder_path(config->train.run_dir, "metrics.jsonl", path) == STATUS_OK &&
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
    if (folder_path(config->train.run_dir, "metrics.jsonl", path) == STATUS_OK) {
        last = metrics_file_last(path);
    }
    if (last < config->train.steps) {
        (void)printf("(it has run %lld steps, and there is no checkpoint from which it could go on "
                     "to %lld)\n",
                     (long long)last, (long long)config->train.steps);
    }
}

static enum status refuse_live(const char *key, const char *directory)
{
    return status_fail(STATUS_ERR_REFUSED,
                       "%s: another run is alive in %s; choose another --%s, or wait for its end",
                       key, directory, key);
}

/* Whether a run holds the lock of `directory`. Asked for in passing and never kept. */
static bool is_live(const char *directory)
{
    char path[FILE_PATH_BYTES];
    int lock = -1;
    bool live = false;

    if (folder_path(directory, "lock", path) == STATUS_OK) {
        lock = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (lock >= 0) {
        live = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        (void)close(lock);
    }
    return live;
}

enum status run_directory_check_free(const struct config *config)
{
    if (is_live(config->train.run_dir)) {
        return refuse_live("train.run_dir", config->train.run_dir);
    }
    return is_live(config->checkpoint.dir) ? refuse_live("checkpoint.dir", config->checkpoint.dir)
                                           : STATUS_OK;
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

/* A run that begins, and would find those of another run among its own later. */
static enum status refuse_checkpoints(const struct config *config)
{
    return status_fail(
        STATUS_ERR_REFUSED,
        "checkpoint.dir: %s has checkpoints of another run, from which this one does not go on "
        "(%s); choose another --checkpoint.dir, or remove them%s",
        config->checkpoint.dir, config->train.overwrite ? "--overwrite" : "checkpoint.resume never",
        config->train.overwrite ? ": the run directory alone is what --overwrite empties" : "");
}

enum status run_directory_check(const struct config *config, bool resumes)
{
    TRY(run_directory_check_free(config));
    if (run_directory_state(config) == RUN_INCOMPLETE && !resumes) {
        return refuse_incomplete(config);
    }
    return !resumes && !owns_checkpoints(config) && store_has_any(config->checkpoint.dir)
               ? refuse_checkpoints(config)
               : STATUS_OK;
}

/* Removes `name`, a file or a folder; what is not there is fine. */
static enum status clear(const struct config *config, const char *name)
{
    char path[FILE_PATH_BYTES];

    TRY(folder_path(config->train.run_dir, name, path));
    return folder_remove(path);
}

static enum status take_lock(const char *key, const char *directory, int *lock_out)
{
    char path[FILE_PATH_BYTES];

    TRY(file_make_directories(directory));
    TRY(folder_path(directory, "lock", path));
    *lock_out = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*lock_out < 0) {
        return status_fail(STATUS_ERR_IO, "%s: cannot open %s: %s", key, path, strerror(errno));
    }
    if (flock(*lock_out, LOCK_EX | LOCK_NB) != 0) {
        (void)close(*lock_out);
        *lock_out = -1;
        return refuse_live(key, directory);
    }
    return STATUS_OK;
}

static bool is_same(const char *first, const char *second)
{
    struct stat a;
    struct stat b;

    return stat(first, &a) == 0 && stat(second, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Two runs in two directories may have been given one for their checkpoints; a run may have been given
 * one for everything. */
static enum status take_locks(const struct config *config, struct run_directory *run)
{
    TRY(take_lock("train.run_dir", config->train.run_dir, &run->lock));
    return is_same(config->train.run_dir, config->checkpoint.dir)
               ? STATUS_OK
               : take_lock("checkpoint.dir", config->checkpoint.dir, &run->checkpoint_lock);
}

static enum status print_config(const void *context, FILE *out)
{
    const struct config *config = context;

    return config_write_yaml(config, out);
}

static enum status write_config(const struct config *config)
{
    char path[FILE_PATH_BYTES];

    TRY(folder_path(config->train.run_dir, "config.yaml", path));
    return file_print(path, print_config, config);
}

void run_directory_stamp(const struct config *config, struct run_directory_stamp *stamp_out)
{
    char path[FILE_PATH_BYTES];
    struct stat info;

    *stamp_out = (struct run_directory_stamp){.there = false};
    if (folder_path(config->train.run_dir, "config.yaml", path) == STATUS_OK &&
        stat(path, &info) == 0) {
        *stamp_out = (struct run_directory_stamp){
            .there = true,
            .inode = info.st_ino,
            .modified_ns = info.st_mtim.tv_sec * CLOCK_SECOND + info.st_mtim.tv_nsec,
        };
    }
}

bool run_directory_changed(const struct config *config, const struct run_directory_stamp *before)
{
    struct run_directory_stamp now;

    run_directory_stamp(config, &now);
    return now.there &&
           (!before->there || now.inode != before->inode || now.modified_ns != before->modified_ns);
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

    TRY(folder_path(config->train.run_dir, "trace", trace));
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
        TRY(folder_path(config->train.run_dir, folders[i], path));
        TRY(file_make_directories(path));
    }
    return STATUS_OK;
}

enum status run_directory_go_on(const struct config *config)
{
    TRY(clear(config, "model/config.json"));
    TRY(put_traces_aside(config));
    TRY(make_folders(config));
    return write_config(config);
}

enum status run_directory_open(const struct config *config, bool resumes, struct run_directory *run)
{
    *run = (struct run_directory){.lock = -1, .checkpoint_lock = -1};
    (void)snprintf(run->path, sizeof(run->path), "%s", config->train.run_dir);
    TRY(run_directory_check(config, resumes));
    TRY(take_locks(config, run));
    if (resumes) {
        return STATUS_OK;
    }
    TRY(remove_leftovers(config));
    TRY(make_folders(config));
    return write_config(config);
}

static void release_lock(int *lock)
{
    if (*lock >= 0) {
        (void)close(*lock);
    }
    *lock = -1;
}

void run_directory_release(struct run_directory *run)
{
    release_lock(&run->checkpoint_lock);
    release_lock(&run->lock);
}
