/*
 * store -- the folder of a run's checkpoints: what is in it, and how a new one comes into it.
 *
 *     step-00000010/           a whole checkpoint, the one after step 10
 *     step-00000020.partial/   one that is being written, or that a death has left
 *     step-00000020.discarded/ one that has failed, as long as it takes to remove it
 *     latest                   a line: the name of the one to go on from
 *     lock                     held as long as a run lives that saves here (stages/run_directory.h)
 *
 * A checkpoint is filled under its partial name; when all of its files are synced, the manifest
 * last, the folder is renamed and `latest` replaced, each in one move that survives a power cut.
 * So a name without `.partial` stands for a whole checkpoint at every moment, and only what is
 * already replaced is ever removed.
 *
 * One process a run calls what changes something, store_discard() apart. Everything may block on the
 * disk.
 */
#ifndef STAGES_CHECKPOINT_STORE_H
#define STAGES_CHECKPOINT_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STORE_NAME_BYTES 48

/* "step-00000010" */
void store_name(int64_t step, char *name);

/* Where the checkpoint after `step` is written; the folder's path has FILE_PATH_BYTES. */
enum status store_partial_path(const char *directory, int64_t step, char *path);

/* Which checkpoint a run goes on from. */
struct store_place {
    bool found;
    int64_t step;
    char path[FILE_PATH_BYTES]; /* of its folder */
    /* What is not as a run leaves it: `latest` is missing or names what is not there, so that the
     * newest whole one was taken; "" where all is well. */
    char warning[512];
};

/* The one that `latest` names; where it names none that is there, the newest whole one. Not found,
 * and STATUS_OK, where there is none, or no such directory. STATUS_ERR_REFUSED where `latest`
 * cannot be read or is no name of a checkpoint. */
enum status store_find(const char *directory, struct store_place *place_out);

/* Whether there is any, whole or named by `latest`; true, too, where the directory cannot be looked at:
 * store_find() says why. */
bool store_has_any(const char *directory);

/* The newest checkpoint before `step` that can be used, in `path`: its manifest can be read, and its files
 * are there with their sizes. False where there is none. Leaves the last failure of the thread as it is. */
bool store_find_older(const char *directory, int64_t step, char *path);

/* Names of folders that are no checkpoint and were to be one, partial and discarded ones, into `text`, cut to it:
 * "step-00000020.partial"; how many there are. */
int32_t store_partials(const char *directory, char *text, size_t text_bytes);

/* Makes the directory, and in it the empty folder of the checkpoint after `step`; removes what deaths
 * have left. */
enum status store_begin(const char *directory, int64_t step);

/* Every file of it is written and synced: puts it into place, and `latest` on it. */
enum status store_publish(const char *directory, int64_t step);

/* Removes the oldest ones before `step` until, with it, `keep` are there; and never the one that
 * `latest` names. Those after `step` are another attempt's and stay. */
enum status store_prune(const char *directory, int64_t step, int64_t keep);

/* Gives up what store_begin() began, and says nothing; fine where there is nothing, and from several processes.
 * Where another one publishes at the same moment, the checkpoint is either whole there or not there. Files
 * that others still write fail. */
void store_discard(const char *directory, int64_t step);

/* Removes all checkpoints and `latest`, by way of <directory>.removed; other files stay. Fine where there is
 * nothing. */
enum status store_clear(const char *directory);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_STORE_H */
