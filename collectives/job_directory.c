#include "collectives/job_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"

#define LOCK_PATIENCE_S 2.0 /* a dying rank 0 of an earlier attempt may still hold the lock */
#define RETRY_NS        (10 * CLOCK_MS)
#define ID_MOST_BYTES   48
#define PATH_BYTES      256 /* of a file inside, and of a path too long to be used */

/* Held by rank 0 alone, for as long as it lives: the right to the directory. */
#define LOCK_NAME "lock"
/* Locked before it gets its name, so whoever sees it with a lock sees a directory that is ready.
 * Only this file is ever probed, so that no probe can be taken for an owner. */
#define JOB_NAME "job"

struct job_directory {
    char parent[PATH_BYTES];
    char path[PATH_BYTES];
    int lock_fd; /* -1 for ranks other than 0 */
    int job_fd;  /* -1 likewise */
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Writes the job's ID, or refuses a WEIR_JOB that is no file name. */
static enum status choose_id(char *id, size_t id_bytes)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *job = env_text(ENV_JOB);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char parent[32];

    if (job[0] != '\0') {
        if (strspn(job, allowed) != strlen(job) || job[0] == '.' || strlen(job) > ID_MOST_BYTES) {
            return status_fail(STATUS_ERR_REFUSED,
                               "%s is '%s': expected at most %d letters, digits, '_', '-' and '.', "
                               "the first no '.'",
                               env_name(ENV_JOB), job, ID_MOST_BYTES);
        }
        (void)snprintf(id, id_bytes, "%s", job);
        return STATUS_OK;
    }
    if (env_is_set(ENV_MASTER_ADDR) || env_is_set(ENV_MASTER_PORT)) {
        hash = hash_text(hash, env_text(ENV_MASTER_ADDR));
        hash = hash_text(hash, ":");
        hash = hash_text(hash, env_text(ENV_MASTER_PORT));
    } else {
        (void)snprintf(parent, sizeof(parent), "parent %ld", (long)getppid());
        hash = hash_text(hash, parent);
    }
    (void)snprintf(id, id_bytes, "%016" PRIx64, hash);
    return STATUS_OK;
}

static enum status choose_path(struct job_directory *directory)
{
    char id[ID_MOST_BYTES + 1];
    const char *base = env_text(ENV_TMPDIR);
    size_t base_bytes = strlen(base);

    TRY(choose_id(id, sizeof(id)));
    while (base_bytes > 1 && base[base_bytes - 1] == '/') {
        base_bytes--;
    }
    if (base[0] != '/') {
        return status_fail(STATUS_ERR_REFUSED, "%s is '%s': expected an absolute path",
                           env_name(ENV_TMPDIR), base);
    }
    (void)snprintf(directory->parent, sizeof(directory->parent), "%.*s/weir-%lu", (int)base_bytes,
                   base, (unsigned long)geteuid());
    int bytes = snprintf(directory->path, sizeof(directory->path), "%.*s/weir-%lu/%s",
                         (int)base_bytes, base, (unsigned long)geteuid(), id);

    if (bytes < 0 || bytes > JOB_DIRECTORY_MOST_BYTES) {
        return status_fail(STATUS_ERR_REFUSED,
                           "job directory '%s/weir-%lu/%s': %d bytes, at most %d may be used; "
                           "choose a shorter %s or %s",
                           base, (unsigned long)geteuid(), id, bytes, JOB_DIRECTORY_MOST_BYTES,
                           env_name(ENV_TMPDIR), env_name(ENV_JOB));
    }
    if (access(base, X_OK) != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s is '%s': expected a directory that can be used: %s",
                           env_name(ENV_TMPDIR), base, strerror(errno));
    }
    return STATUS_OK;
}

/* A directory of this user that nobody else can enter, and no link to one. */
static enum status check_level(const char *path)
{
    struct stat info;

    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? STATUS_IN_PROGRESS
                               : status_fail(STATUS_ERR_REFUSED, "job directory '%s': %s", path,
                                             strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 07777) != 0700) {
        return status_fail(STATUS_ERR_REFUSED,
                           "job directory '%s': expected a directory of user %lu with mode 0700, "
                           "found %s of user %lu with mode %04o",
                           path, (unsigned long)geteuid(),
                           S_ISDIR(info.st_mode) ? "a directory" : "something else",
                           (unsigned long)info.st_uid, (unsigned)(info.st_mode & 07777));
    }
    return STATUS_OK;
}

static enum status make_level(const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return errno == ENOENT && access(path, F_OK) != 0
                   ? STATUS_IN_PROGRESS
                   : status_fail(STATUS_ERR_REFUSED, "cannot make the job directory '%s': %s", path,
                                 strerror(errno));
    }
    return check_level(path);
}

static void name_file(const struct job_directory *directory, const char *name, char *path)
{
    (void)snprintf(path, PATH_BYTES, "%.*s/%s", JOB_DIRECTORY_MOST_BYTES, directory->path, name);
}

/* Tries once to become the directory's owner. STATUS_IN_PROGRESS where somebody else holds the lock
 * or removed the directory meanwhile. */
static enum status take_lock(struct job_directory *directory)
{
    char path[PATH_BYTES];
    struct stat held;
    struct stat named;

    name_file(directory, LOCK_NAME, path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return errno == ENOENT
                   ? STATUS_IN_PROGRESS
                   : status_fail(STATUS_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    }
    /* The name may have moved on to another file between the open and the lock. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &held) != 0 || stat(path, &named) != 0 ||
        held.st_ino != named.st_ino) {
        (void)close(fd);
        return STATUS_IN_PROGRESS;
    }
    directory->lock_fd = fd;
    return STATUS_OK;
}

/* Removes every entry but the lock; directories are not ours and stay. */
static void sweep(const struct job_directory *directory)
{
    DIR *entries = opendir(directory->path);

    if (entries == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (strcmp(entry->d_name, LOCK_NAME) != 0) {
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
        }
    }
    (void)closedir(entries);
}

/* Puts the sign up that the directory is ready and its job alive. */
static enum status announce(struct job_directory *directory)
{
    char fresh[PATH_BYTES];
    char path[PATH_BYTES];
    char text[32];

    name_file(directory, JOB_NAME ".new", fresh);
    name_file(directory, JOB_NAME, path);
    int bytes = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

    directory->job_fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (directory->job_fd < 0 || flock(directory->job_fd, LOCK_EX | LOCK_NB) != 0 ||
        write(directory->job_fd, text, (size_t)bytes) != bytes || rename(fresh, path) != 0) {
        return status_fail(STATUS_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    }
    return STATUS_OK;
}

/* Reads the number of the process that holds the directory; 0 where it does not say. */
static long read_owner(const struct job_directory *directory)
{
    char path[PATH_BYTES];
    char text[32] = "";

    name_file(directory, JOB_NAME, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0) {
        ssize_t bytes = read(fd, text, sizeof(text) - 1);

        text[bytes > 0 ? bytes : 0] = '\0';
        (void)close(fd);
    }
    return strtol(text, NULL, 10);
}

static enum status become_owner(struct job_directory *directory, const struct cancel *cancel)
{
    int64_t deadline_ns = clock_deadline(LOCK_PATIENCE_S);

    for (;;) {
        enum status status = make_level(directory->parent);

        if (status == STATUS_OK) {
            status = make_level(directory->path);
        }
        if (status == STATUS_OK) {
            status = take_lock(directory);
        }
        if (status == STATUS_OK) {
            sweep(directory);
            return announce(directory);
        }
        if (status < 0) {
            return status;
        }
        status = cancel_check(cancel, deadline_ns);
        if (status == STATUS_ERR_CANCELLED) {
            return status_note(status, "job directory '%s': cancelled", directory->path);
        }
        if (status < 0) {
            return status_fail(STATUS_ERR_REFUSED,
                               "job directory '%s' belongs to a job that is running (process %ld); "
                               "choose another %s or wait for its end",
                               directory->path, read_owner(directory), env_name(ENV_JOB));
        }
        clock_sleep_ns(RETRY_NS);
    }
}

/* Whether a living rank 0 has announced the directory. */
static bool is_announced(const struct job_directory *directory)
{
    char path[PATH_BYTES];

    name_file(directory, JOB_NAME, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0) {
        return false;
    }
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;

    (void)close(fd);
    return held;
}

static enum status await_owner(struct job_directory *directory, const struct cancel *cancel,
                               int64_t deadline_ns)
{
    for (;;) {
        enum status status = check_level(directory->parent);

        if (status == STATUS_OK) {
            status = check_level(directory->path);
        }
        if (status < 0 || (status == STATUS_OK && is_announced(directory))) {
            return status;
        }
        status = cancel_check(cancel, deadline_ns);
        if (status == STATUS_ERR_TIMEOUT) {
            return status_fail(status,
                               "job directory '%s': rank 0 did not come; does it run on this host, "
                               "with the same %s, %s and %s?",
                               directory->path, env_name(ENV_TMPDIR), env_name(ENV_JOB),
                               env_name(ENV_MASTER_PORT));
        }
        if (status < 0) {
            return status_note(status, "job directory '%s': cancelled", directory->path);
        }
        clock_sleep_ns(RETRY_NS);
    }
}

/* Removes what jobs left that were killed as a whole, launcher included: their locks are free. A job
 * that is just starting finds its lock's name gone and begins again. */
static void sweep_neighbours(const struct job_directory *directory)
{
    DIR *entries = opendir(directory->parent);

    if (entries == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        struct job_directory *neighbour = calloc(1, sizeof(*neighbour));
        int used = 0;

        if (neighbour == NULL) {
            break;
        }
        *neighbour = *directory;
        neighbour->lock_fd = -1;
        neighbour->job_fd = -1;
        used = snprintf(neighbour->path, sizeof(neighbour->path), "%s/%s", directory->parent,
                        entry->d_name);
        if (entry->d_name[0] == '.' || strcmp(neighbour->path, directory->path) == 0 || used < 0 ||
            (size_t)used >= sizeof(neighbour->path)) {
            free(neighbour);
            continue;
        }
        job_directory_remove(&neighbour);
    }
    (void)closedir(entries);
}

enum status job_directory_open(int32_t rank, const struct cancel *cancel, int64_t deadline_ns,
                               struct job_directory **directory_out)
{
    struct job_directory *directory = calloc(1, sizeof(*directory));
    enum status status = STATUS_OK;

    if (directory == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "job directory: %zu bytes", sizeof(*directory));
    }
    directory->lock_fd = -1;
    directory->job_fd = -1;
    TRY_OR(fail, status, choose_path(directory));
    if (rank == 0) {
        TRY_OR(fail, status, become_owner(directory, cancel));
        sweep_neighbours(directory);
    } else {
        TRY_OR(fail, status, await_owner(directory, cancel, deadline_ns));
    }
    *directory_out = directory;
    return STATUS_OK;

fail:
    if (directory->lock_fd >= 0) {
        job_directory_remove(&directory);
    }
    free(directory);
    return status;
}

const char *job_directory_path(const struct job_directory *directory)
{
    return directory->path;
}

void job_directory_sweep(void)
{
    struct job_directory none = {.lock_fd = -1, .job_fd = -1};

    if (choose_path(&none) == STATUS_OK) {
        none.path[0] = '\0';
        sweep_neighbours(&none);
    }
}

void job_directory_remove(struct job_directory **directory)
{
    struct job_directory *gone = *directory;
    char path[PATH_BYTES];

    if (gone == NULL) {
        return;
    }
    /* A lock that another rank can take is one whose owner is dead. A directory that is gone
     * already is not made again. */
    name_file(gone, LOCK_NAME, path);
    if (gone->lock_fd >= 0 || (access(path, F_OK) == 0 && take_lock(gone) == STATUS_OK)) {
        sweep(gone);
        (void)unlink(path);
        (void)rmdir(gone->path);
        (void)rmdir(gone->parent);
    }
    if (gone->job_fd >= 0) {
        (void)close(gone->job_fd);
    }
    if (gone->lock_fd >= 0) {
        (void)close(gone->lock_fd);
    }
    free(gone);
    *directory = NULL;
}
