#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder.h"

/* Between two syncs of a file that is being written: often enough that none lasts long, and too seldom to
 * cost anything. */
#define DRAIN_SYNC_NS CLOCK_SECOND

/* A system call's failure; `error` is its errno. */
static enum status fail_system(const char *doing, const char *path, int error)
{
    char cause[128];
    enum status code = STATUS_ERR_IO;

    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
    case ENAMETOOLONG:
        code = STATUS_ERR_REFUSED;
        break;
    case ENOMEM:
        code = STATUS_ERR_NO_MEMORY;
        break;
    default:
        break;
    }
    return status_fail(code, "%s %s: %s", doing, path, strerror_r(error, cause, sizeof(cause)));
}

/* Opens a regular file; *bytes_out is what it holds now. */
static enum status open_regular(const char *path, int *fd_out, size_t *bytes_out)
{
    struct stat info;
    /* O_NONBLOCK so that a named pipe without a writer is refused below and not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return fail_system("reading", path, errno);
    }
    if (fstat(fd, &info) != 0) {
        int error = errno;

        (void)close(fd);
        return fail_system("reading", path, error);
    }
    if (!S_ISREG(info.st_mode)) {
        (void)close(fd);
        return status_fail(STATUS_ERR_REFUSED, "reading %s: expected a regular file, found %s",
                           path,
                           S_ISDIR(info.st_mode) ? "a directory" : "a pipe, socket or device");
    }
    *fd_out = fd;
    *bytes_out = (size_t)info.st_size;
    return STATUS_OK;
}

/* Fills `bytes` from the start of the file; stops early where the file ends early. */
static ssize_t read_fully(int fd, char *bytes, size_t count)
{
    size_t done = 0;

    while (done < count) {
        ssize_t got = read(fd, bytes + done, count - done);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (ssize_t)done;
}

enum status file_read(const char *path, size_t most, char **bytes_out, size_t *count_out)
{
    enum status status = STATUS_OK;
    char *bytes = NULL;
    size_t count = 0;
    ssize_t got = 0;
    int fd = -1;

    TRY(open_regular(path, &fd, &count));
    if (count > most) {
        status =
            status_fail(STATUS_ERR_REFUSED, "reading %s: expected at most %zu bytes, found %zu",
                        path, most, count);
        goto done;
    }
    bytes = malloc(count + 1);
    if (bytes == NULL) {
        status =
            status_fail(STATUS_ERR_NO_MEMORY, "reading %s: no memory for %zu bytes", path, count);
        goto done;
    }
    got = read_fully(fd, bytes, count);
    if (got < 0) {
        status = fail_system("reading", path, errno);
        goto done;
    }
    bytes[got] = '\0';
    *bytes_out = bytes;
    *count_out = (size_t)got;
    bytes = NULL;
done:
    free(bytes);
    (void)close(fd);
    return status;
}

enum status file_map_open(const char *path, struct file_map *map_out)
{
    void *data = NULL;
    size_t bytes = 0;
    int fd = -1;
    int error = 0;

    TRY(open_regular(path, &fd, &bytes));
    if (bytes > 0) {
        data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        error = errno;
    }
    (void)close(fd);
    if (data == MAP_FAILED) {
        return fail_system("mapping", path, error);
    }
    map_out->data = data;
    map_out->bytes = bytes;
    return STATUS_OK;
}

void file_map_close(struct file_map *map)
{
    if (map->data != NULL) {
        (void)munmap(map->data, map->bytes);
    }
    memset(map, 0, sizeof(*map));
}

enum status file_writer_open(const char *path, struct file_writer *writer)
{
    memset(writer, 0, sizeof(*writer));
    (void)snprintf(writer->path, sizeof(writer->path), "%s", path);
    /* The clock makes the name new in this process, the id among processes. */
    int used = snprintf(writer->temporary, sizeof(writer->temporary), "%s.tmp-%ld-%lld", path,
                        (long)getpid(), (long long)clock_now_ns());
    if (used < 0 || (size_t)used >= sizeof(writer->temporary)) {
        return fail_system("writing", path, ENAMETOOLONG);
    }
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        return fail_system("writing", writer->temporary, errno);
    }
    writer->open = true;
    writer->synced_ns = clock_now_ns();
    return STATUS_OK;
}

enum status file_writer_put(struct file_writer *writer, const void *bytes, size_t count)
{
    const char *next = bytes;
    size_t left = count;

    while (left > 0) {
        ssize_t put = write(writer->fd, next, left);

        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return fail_system("writing", writer->temporary, errno);
        }
        next += put;
        left -= (size_t)put;
    }
    return STATUS_OK;
}

/* What the disk has failed to write is said once, here or in a later sync, so that it counts here. That the
 * file system has no such call does not: a sync is still to come. */
static bool hand_over(int fd)
{
    return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE) == 0 ||
           errno == ENOSYS || errno == EINVAL || errno == EPERM || errno == EOPNOTSUPP;
}

/* A disk may take what it is handed into a cache of its own, which only a sync empties. */
static enum status drain(int fd, const char *path, int64_t *synced_ns)
{
    if (!hand_over(fd)) {
        return fail_system("writing", path, errno);
    }
    if (clock_now_ns() - *synced_ns < DRAIN_SYNC_NS) {
        return STATUS_OK;
    }
    if (fdatasync(fd) != 0) {
        return fail_system("writing", path, errno);
    }
    *synced_ns = clock_now_ns();
    return STATUS_OK;
}

enum status file_writer_drain(struct file_writer *writer)
{
    return drain(writer->fd, writer->temporary, &writer->synced_ns);
}

/* Makes the new name in the directory of `path` last through a power cut. */
static enum status sync_directory(const char *path)
{
    char directory[FILE_PATH_BYTES];
    char *slash = NULL;

    (void)snprintf(directory, sizeof(directory), "%s", path);
    slash = strrchr(directory, '/');
    if (slash == NULL) {
        (void)snprintf(directory, sizeof(directory), ".");
    } else if (slash == directory) {
        slash[1] = '\0';
    } else {
        *slash = '\0';
    }
    return folder_sync(directory);
}

enum status file_writer_commit(struct file_writer *writer)
{
    int error = fsync(writer->fd) != 0 ? errno : 0;

    if (close(writer->fd) != 0 && error == 0) {
        error = errno;
    }
    writer->open = false;
    if (error == 0 && rename(writer->temporary, writer->path) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(writer->temporary);
        return fail_system("writing", writer->path, error);
    }
    return sync_directory(writer->path);
}

void file_writer_discard(struct file_writer *writer)
{
    if (writer->open) {
        (void)close(writer->fd);
        (void)unlink(writer->temporary);
        writer->open = false;
    }
}

enum status file_write(const char *path, const void *bytes, size_t count)
{
    struct file_writer writer;
    enum status status = STATUS_OK;

    TRY(file_writer_open(path, &writer));
    TRY_OR(fail, status, file_writer_put(&writer, bytes, count));
    return file_writer_commit(&writer);
fail:
    file_writer_discard(&writer);
    return status;
}

enum status file_print(const char *path, file_print_fn print, const void *context)
{
    char *text = NULL;
    size_t count = 0;
    FILE *memory = open_memstream(&text, &count);
    enum status status = STATUS_OK;

    if (memory == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "writing %s: no memory for its text", path);
    }
    status = print(context, memory);
    if (fclose(memory) != 0 && status >= 0) {
        status = status_fail(STATUS_ERR_NO_MEMORY, "writing %s: no memory for its text", path);
    }
    if (status >= 0) {
        status = file_write(path, text, count);
    }
    free(text);
    return status;
}

static enum status shared_name(const char *path, char *temporary, size_t temporary_bytes)
{
    int used = snprintf(temporary, temporary_bytes, "%s.tmp", path);

    if (used < 0 || (size_t)used >= temporary_bytes) {
        return fail_system("writing", path, ENAMETOOLONG);
    }
    return STATUS_OK;
}

/* Gives `fd` its size, and the disk's blocks where the file system can promise them: a full disk
 * shows here and not in the middle. */
static int give_room(int fd, size_t bytes)
{
    if (ftruncate(fd, (off_t)bytes) != 0) {
        return errno;
    }
    if (bytes > 0 && fallocate(fd, 0, 0, (off_t)bytes) != 0 && errno == ENOSPC) {
        return errno;
    }
    return 0;
}

enum status file_shared_create(const char *path, size_t bytes)
{
    char temporary[FILE_PATH_BYTES];
    int error = 0;
    int fd = -1;

    TRY(shared_name(path, temporary, sizeof(temporary)));
    /* Not cut short but replaced: whoever still has an old one open writes into nothing. */
    (void)unlink(temporary);
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail_system("writing", temporary, errno);
    }
    error = give_room(fd, bytes);
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(temporary);
        return fail_system("writing", temporary, error);
    }
    return STATUS_OK;
}

enum status file_shared_open(const char *path, size_t bytes, struct file_shared *file_out)
{
    struct stat info;

    memset(file_out, 0, sizeof(*file_out));
    TRY(shared_name(path, file_out->temporary, sizeof(file_out->temporary)));
    file_out->fd = open(file_out->temporary, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file_out->fd < 0) {
        return fail_system("writing", file_out->temporary, errno);
    }
    if (fstat(file_out->fd, &info) != 0 || !S_ISREG(info.st_mode) ||
        (size_t)info.st_size != bytes) {
        (void)close(file_out->fd);
        return status_fail(STATUS_ERR_IO,
                           "writing %s: expected a file of %zu bytes that was made for it",
                           file_out->temporary, bytes);
    }
    file_out->open = true;
    file_out->synced_ns = clock_now_ns();
    return STATUS_OK;
}

enum status file_shared_put(const struct file_shared *file, size_t at, const void *bytes,
                            size_t count)
{
    size_t done = 0;

    while (done < count) {
        ssize_t put =
            pwrite(file->fd, (const char *)bytes + done, count - done, (off_t)(at + done));

        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return fail_system("writing", file->temporary, errno);
        }
        done += (size_t)put;
    }
    return STATUS_OK;
}

enum status file_shared_get(const struct file_shared *file, size_t at, void *bytes, size_t count)
{
    size_t done = 0;

    while (done < count) {
        ssize_t got = pread(file->fd, (char *)bytes + done, count - done, (off_t)(at + done));

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fail_system("reading", file->temporary, got < 0 ? errno : EIO);
        }
        done += (size_t)got;
    }
    return STATUS_OK;
}

enum status file_shared_drain(struct file_shared *file)
{
    return drain(file->fd, file->temporary, &file->synced_ns);
}

enum status file_shared_close(struct file_shared *file)
{
    int error = 0;

    if (!file->open) {
        return STATUS_OK;
    }
    error = fsync(file->fd) != 0 ? errno : 0;
    if (close(file->fd) != 0 && error == 0) {
        error = errno;
    }
    file->open = false;
    return error != 0 ? fail_system("writing", file->temporary, error) : STATUS_OK;
}

enum status file_shared_publish(const char *path)
{
    struct file_writer writer = {.open = true};

    TRY(shared_name(path, writer.temporary, sizeof(writer.temporary)));
    (void)snprintf(writer.path, sizeof(writer.path), "%s", path);
    writer.fd = open(writer.temporary, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (writer.fd < 0) {
        return fail_system("writing", writer.temporary, errno);
    }
    return file_writer_commit(&writer);
}

void file_shared_remove(const char *path)
{
    char temporary[FILE_PATH_BYTES];

    if (shared_name(path, temporary, sizeof(temporary)) == STATUS_OK) {
        (void)unlink(temporary);
    }
}

/* One directory, whose name lasts through a power cut; fine where it exists. */
static enum status make_directory(const char *path)
{
    struct stat info;
    int error = 0;

    if (mkdir(path, 0777) == 0) {
        return sync_directory(path);
    }
    error = errno;
    if (stat(path, &info) != 0) {
        return fail_system("making directory", path, error);
    }
    if (!S_ISDIR(info.st_mode)) {
        return fail_system("making directory", path, ENOTDIR);
    }
    return STATUS_OK;
}

enum status file_make_directories(const char *path)
{
    char part[FILE_PATH_BYTES];
    size_t length = strlen(path);

    if (length == 0 || length >= sizeof(part)) {
        return fail_system("making directory", path, length == 0 ? ENOENT : ENAMETOOLONG);
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i < length; i++) {
        if (part[i] != '/' || part[i - 1] == '/') {
            continue;
        }
        part[i] = '\0';
        TRY(make_directory(part));
        part[i] = '/';
    }
    return make_directory(part);
}
