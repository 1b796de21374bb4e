/*
 * pieces -- large files are moved in pieces, and whoever watches is told after each.
 *
 * Whoever bounds how long a rank may stand still has nothing to measure a whole file by: it takes as
 * long as the disk needs. A piece is small enough to be bounded on any disk.
 */
#ifndef STAGES_CHECKPOINT_PIECES_H
#define STAGES_CHECKPOINT_PIECES_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;

/* Moved at a time: small enough to be still in a cache when it is used again. */
#define PIECE_BYTES ((size_t)1 << 20)

/* Written before what is written is handed to the disk, so that the last sync has little to wait for. */
#define PIECES_DRAIN_BYTES ((size_t)8 << 20)

struct piece_watch {
    void (*moved)(void *context); /* on the thread that moves */
    void *context;
};

/* A piece was read, written, summed or synced. NULL: nobody watches. */
void pieces_tell(const struct piece_watch *watch);

/* Reads memory of a device piece by piece. Zeroed, and with a device of NULL or one whose tensors are the
 * host's, it lends the memory itself. */
struct piece_reader {
    struct device *device; /* borrows */
    void *staging; /* owns, of DEVICE_HOST; PIECE_BYTES, taken by the first piece that needs it */
};

/* Lends `bytes` <= PIECE_BYTES of what lies at `from`, until the next call. May block until the device's stream has
 * come to it. STATUS_ERR_NO_MEMORY without room to stage. */
enum status piece_read(struct piece_reader *reader, const void *from, size_t bytes,
                       const void **bytes_out);

/* Safe on a zeroed reader, and twice. */
void piece_reader_release(struct piece_reader *reader);

/* Of `left` bytes, those that make up the next piece. */
size_t pieces_next(size_t left);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_CHECKPOINT_PIECES_H */
