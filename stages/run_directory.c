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

enum run_state run_directory_state(const struct config *config)
{
    if (config->train.overwrite) {
        return RUN_NEW;
    }
    if (has(config, "model/config.json")) {
        return RUN_FINISHED;
    }
    return has(config, "metrics.jsonl") ? RUN_INCOMPLETE : RUN_NEW;
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

enum status run_directory_check(const struct config *config)
{
    if (is_live(config)) {
        return refuse_live(config);
    }
    if (run_directory_state(config) == RUN_INCOMPLETE) {
        return status_fail(STATUS_ERR_REFUSED,
                           "train.run_dir: %s holds a run that did not finish, and no checkpoint "
                           "to go on from; choose another --train.run_dir, or --overwrite",
                           config->train.run_dir);
    }
    return STATUS_OK;
}

/* Removes the files of `name` (no folders in it), or the file `name`; what is not there is fine. */
static void clear(const struct config *config, const char *name)
{
    char path[FILE_PATH_BYTES];
    DIR *directory = NULL;
    const struct dirent *entry = NULL;

    if (run_directory_path(config, name, path, sizeof(path)) < 0 || unlink(path) == 0) {
        return;
    }
    directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    while ((entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    (void)closedir(directory);
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

enum status run_directory_open(const struct config *config, struct run_directory *run)
{
    static const char *const folders[] = {"trace", "model"};
    /* First what says that a run has finished, so that a start that is cut short between two of
     * them leaves no directory that looks finished. */
    static const char *const leftovers[] = {"model/config.json", "metrics.jsonl", "timeline.svg",
                                            "plan.csv",          "trace",         "model"};
    char path[FILE_PATH_BYTES];

    *run = (struct run_directory){.lock = -1};
    (void)snprintf(run->path, sizeof(run->path), "%s", config->train.run_dir);
    TRY(run_directory_check(config));
    TRY(file_make_directories(config->train.run_dir));
    TRY(take_lock(config, run));
    for (size_t i = 0; i < sizeof(leftovers) / sizeof(leftovers[0]); i++) {
        clear(config, leftovers[i]);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        TRY(run_directory_path(config, folders[i], path, sizeof(path)));
        TRY(file_make_directories(path));
    }
    return write_config(config);
}

void run_directory_release(struct run_directory *run)
{
    if (run->lock >= 0) {
        (void)close(run->lock);
    }
    run->lock = -1;
}
