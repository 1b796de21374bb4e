/*
 * file -- whole files: read, map, and write, alone or together, so that a name never stands for half
 * a file.
 *
 * Only regular files are read: a pipe or a device could block for ever or never end. A failure
 * names the path and the system's cause; what the user can mend (no such file, no right to read
 * it, a directory, larger than allowed) is STATUS_ERR_REFUSED, the rest STATUS_ERR_IO. Everything
 * here may block on the disk and stays off the step path.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FILE_PATH_BYTES 4096

/* Reads all of `path`, which may hold at most `most` bytes. The text ends with a NUL that is not
 * counted. The caller frees *bytes_out. */
enum status file_read(const char *path, size_t most, char **bytes_out, size_t *count_out);

/* A file that is mapped read-only. Zero is "nothing mapped". */
struct file_map {
    void *data; /* read-only pages; NULL where the file is empty */
    size_t bytes;
};

/* The mapping outlives the file's name; a writer that cuts the file short while it is mapped ends
 * the process, so files that weir writes are replaced, never cut. */
enum status file_map_open(const char *path, struct file_map *map_out);

/* Safe on a zeroed map, and twice. */
void file_map_close(struct file_map *map);

/* A file in the making, under a temporary name beside its target. Zero is closed. */
struct file_writer {
    bool open;
    int fd;
    char path[FILE_PATH_BYTES];      /* the target */
    char temporary[FILE_PATH_BYTES]; /* in the same directory, so that a rename is enough */
    int64_t synced_ns;               /* when it last was: opened, or drained to the disk itself */
};

enum status file_writer_open(const char *path, struct file_writer *writer);

enum status file_writer_put(struct file_writer *writer, const void *bytes, size_t count);

/* Waits for what the call before this one has handed to the disk, hands it what was put since, and syncs
 * where a second has passed without: called every few MiB, no call waits long, and neither does the commit, after
 * which alone the bytes are safe. */
enum status file_writer_drain(struct file_writer *writer);

/* Syncs the bytes, renames them into place and syncs the directory. After a failure the target is
 * as it was and nothing else is left. Closes the writer either way. */
enum status file_writer_commit(struct file_writer *writer);

/* Removes what was written. Safe on a closed writer. */
void file_writer_discard(struct file_writer *writer);

/* The three above for bytes in memory. */
enum status file_write(const char *path, const void *bytes, size_t count);

/* Prints what a file shall hold. */
typedef enum status (*file_print_fn)(const void *context, FILE *out);

/* The same for what `print` writes; where it fails nothing is written. */
enum status file_print(const char *path, file_print_fn print, const void *context);

/*
 * A file that several processes fill together, each at its own places: one creates it, all open,
 * put and close it, and when all are done the one publishes it. Until then it has the name
 * `path`.tmp, the same for all of them; that they take turns is the callers' affair. Zero is
 * closed.
 */
struct file_shared {
    bool open;
    int fd;
    char temporary[FILE_PATH_BYTES];
    int64_t synced_ns;
};

/* Makes it with room for `bytes`, all zero; what a killed process left there is replaced. */
enum status file_shared_create(const char *path, size_t bytes);

/* Fails where it does not hold `bytes`. */
enum status file_shared_open(const char *path, size_t bytes, struct file_shared *file_out);

enum status file_shared_put(const struct file_shared *file, size_t at, const void *bytes,
                            size_t count);

enum status file_shared_get(const struct file_shared *file, size_t at, void *bytes, size_t count);

/* As file_writer_drain(). */
enum status file_shared_drain(struct file_shared *file);

/* Syncs what this process has put. Closes the file either way. */
enum status file_shared_close(struct file_shared *file);

/* Syncs it, renames it into place and syncs the directory. Where that fails, nothing is left. */
enum status file_shared_publish(const char *path);

/* Gives it up, for all: removes what was not published. Fine where there is nothing. */
void file_shared_remove(const char *path);

/* Makes `path` and the directories above it that are missing; one that exists is fine. */
enum status file_make_directories(const char *path);

#ifdef __cplusplus
}
#endif

#endif /* BASE_FILE_H */
