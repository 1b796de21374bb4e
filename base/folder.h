/*
 * folder -- folders that appear, are replaced and vanish as a whole.
 *
 * A folder whose files belong together is filled under another name, synced, and put into place in
 * one move, so that its name never stands for a part of it. Failures as in base/file.h; everything
 * here may block on the disk and stays off the step path.
 */
#ifndef BASE_FOLDER_H
#define BASE_FOLDER_H

#include <stdbool.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "<folder>/<name>" into `path`, which has FILE_PATH_BYTES; a path that does not fit is
 * STATUS_ERR_REFUSED. */
enum status folder_path(const char *folder, const char *name, char *path);

bool folder_exists(const char *path);

/* Makes the names in it last through a power cut. */
enum status folder_sync(const char *path);

/* Moves the folder `from` to `to`, where nothing or another folder is, on the same file system; the
 * other one is then removed. Where the file system can exchange two names, one of the two folders
 * is whole at `to` at every moment; elsewhere there may be none for an instant, and a `from` that somebody
 * moves away in that instant takes the other one along. The folder that holds both names is the caller's
 * to sync. */
enum status folder_replace(const char *from, const char *to);

/* Removes `path` and what is in it, whatever its kind; links are removed and not followed. Fine
 * where there is nothing. */
enum status folder_remove(const char *path);

/* Removes of it what can be removed, and says nothing: for what has failed already, and where others
 * may still be writing. Whoever of several calls it last leaves nothing. */
void folder_discard(const char *path);

#ifdef __cplusplus
}
#endif

#endif /* BASE_FOLDER_H */
