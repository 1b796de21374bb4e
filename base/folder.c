#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

/* Descriptors that a walk may have open at once; deeper folders are opened again. */
#define WALK_DESCRIPTORS 16

static enum status fail(const char *doing, const char *path, int error)
{
    char cause[128];

    return status_fail(STATUS_ERR_IO, "%s %s: %s", doing, path,
                       strerror_r(error, cause, sizeof(cause)));
}

enum status folder_path(const char *folder, const char *name, char *path)
{
    int used = snprintf(path, FILE_PATH_BYTES, "%s/%s", folder, name);

    if (used < 0 || used >= FILE_PATH_BYTES) {
        return status_fail(STATUS_ERR_REFUSED,
                           "%s/%s: the path has %d bytes, at most %d are possible", folder, name,
                           used, FILE_PATH_BYTES - 1);
    }
    return STATUS_OK;
}

bool folder_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum status folder_sync(const char *path)
{
    enum status status = STATUS_OK;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return fail("syncing directory", path, errno);
    }
    /* EINVAL: a file system that has no such thing for directories. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        status = fail("syncing directory", path, errno);
    }
    (void)close(fd);
    return status;
}

enum status folder_replace(const char *from, const char *to)
{
    if (rename(from, to) == 0) {
        return STATUS_OK;
    }
    if (errno != EEXIST && errno != ENOTEMPTY) {
        return fail("moving into place", to, errno);
    }
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        return folder_remove(from);
    }
    /* Only where the file system has no exchange: never for a `from` that is gone. */
    if ((errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) || !folder_exists(from)) {
        return fail("moving into place", to, errno);
    }
    TRY(folder_remove(to));
    return rename(from, to) == 0 ? STATUS_OK : fail("moving into place", to, errno);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    /* Somebody else may be removing the same. */
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Goes on whatever comes of one. */
static int discard_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)remove_entry(path, info, kind, place);
    return 0;
}

enum status folder_remove(const char *path)
{
    if (nftw(path, remove_entry, WALK_DESCRIPTORS, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        return fail("removing", path, errno);
    }
    return STATUS_OK;
}

void folder_discard(const char *path)
{
    (void)nftw(path, discard_entry, WALK_DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}
