/*
 * job_directory -- the place where the processes of one job on one host find each other.
 *
 * It is `<TMPDIR or /tmp>/weir-UID/ID` and holds the sockets of the control plane, of the data
 * plane's start and of the embedding groups. ID is WEIR_JOB where that is set, else a hash of
 * MASTER_ADDR:MASTER_PORT, else of the parent process, which local ranks of one launcher share.
 * Both levels belong to this user alone (0700); whatever else lies there is refused.
 *
 * Rank 0 makes it and holds a lock in it as long as the job lives, so that a second job of the same
 * ID is refused and what dead ones left, of any ID, is swept away. The other ranks wait for a
 * directory whose lock is held. Rank 0 removes it; where rank 0 is dead, the next rank that leaves
 * does.
 *
 * Threads: any, one owner each.
 */
#ifndef COLLECTIVES_JOB_DIRECTORY_H
#define COLLECTIVES_JOB_DIRECTORY_H

#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define JOB_DIRECTORY_MOST_BYTES 80 /* leaves room for a file name in a unix socket's 107 */

struct job_directory;

/* Rank 0: makes and locks the directory; a live job that holds it is STATUS_ERR_REFUSED after at
 * most two seconds, naming directory and process. Other ranks: blocks until rank 0 has it, the
 * deadline passes (STATUS_ERR_TIMEOUT) or `cancel` is set. A TMPDIR or an ID that cannot be used, a
 * path that is too long and a level that is not ours alone are STATUS_ERR_REFUSED by name. */
enum status job_directory_open(int32_t rank, const struct cancel *cancel, int64_t deadline_ns,
                               struct job_directory **directory_out);

/* Lends the absolute path, without a slash at its end, until the remove. */
const char *job_directory_path(const struct job_directory *directory);

/* Gives the directory up. Rank 0, or any rank once rank 0 is dead, removes it with all that lies in
 * it, as far as that is possible. Call it when everybody's sockets are closed or lost. Does not
 * block; nulls the caller's pointer; NULL is fine. */
void job_directory_remove(struct job_directory **directory);

/* Removes the directories of all dead jobs of this user, as the next job would: for a launcher whose
 * ranks have all ended, killed ones among them. Best effort; says nothing. */
void job_directory_sweep(void);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_JOB_DIRECTORY_H */
