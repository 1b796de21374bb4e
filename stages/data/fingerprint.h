/*
 * fingerprint -- what a data file is: its size, and an XXH3 sum of what is in it.
 *
 * A checkpoint keeps that of the training set's file, so that a run does not go on with another
 * text under the same name. A file of up to 64 MiB is summed whole. Of a larger one 1024 blocks of
 * 64 KiB are, in their order: block k begins at k · ⌊(size - 64 KiB) / 1023⌋, and the last one ends with
 * the file. So the first and the last block are among them, and a start reads 64 MiB at most; what changes in
 * place between the blocks of a large file is not seen.
 */
#ifndef STAGES_DATA_FINGERPRINT_H
#define STAGES_DATA_FINGERPRINT_H

#include <stddef.h>

#include "base/status.h"
#include "stages/checkpoint/manifest.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FINGERPRINT_BLOCK_BYTES ((size_t)64 << 10)
#define FINGERPRINT_BLOCKS      ((size_t)1024)
#define FINGERPRINT_WHOLE_BYTES (FINGERPRINT_BLOCKS * FINGERPRINT_BLOCK_BYTES)

/* Of a file's bytes in memory. */
enum status fingerprint_of(const void *bytes, size_t count, struct manifest_sum *print_out);

/* Maps the file; blocks on the disk. Fails as file_map_open(). */
enum status fingerprint_file(const char *path, struct manifest_sum *print_out);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_DATA_FINGERPRINT_H */
