/*
 * segment -- the piece of memory that a rank shares with the ranks it has lanes with.
 *
 * A segment is a memfd: it has no name in any file system, so it is gone when the last process
 * that holds it is, however that ends, and the size of /dev/shm does not matter. It is reserved
 * and mapped whole before the start, so that no later access can fail, and sealed, so that nobody
 * can shrink it under a reader.
 *
 *     page        magic, version, rank, bytes; the abort word; the owner's doorbell
 *     for each lane that the owner receives on:
 *         marks   one landing_mark for each landing buffer, each on cache lines of its own
 *         buffers the landing buffers, each at a multiple of SEGMENT_ALIGN_BYTES
 *     for each group that the owner is a member of: one group_mark
 *     the shared block, on pages of its own
 *
 * Knows nothing of lanes, groups and peers but the sizes. Any thread; one owner for each struct segment.
 */
#ifndef COLLECTIVES_SEGMENT_H
#define COLLECTIVES_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/doorbell.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEGMENT_MAGIC       UINT64_C(0x7765697220736567)
#define SEGMENT_VERSION     4
#define SEGMENT_ALIGN_BYTES 128 /* two cache lines, which processors fetch as a pair */
#define SEGMENT_PAGE_BYTES  4096

/* The first bytes of every segment; zero where not set. */
struct segment_page {
    uint64_t magic;   /* set at create */
    uint32_t version; /* set at create */
    int32_t rank;     /* of the owner; set at create */
    uint64_t bytes;   /* of the whole; set at create */
    uint8_t padding[SEGMENT_ALIGN_BYTES - 24];
    struct doorbell doorbell; /* the owner sleeps on it, all others ring */
    uint32_t aborted;         /* atomic; 1 once the job is given up */
    uint8_t tail[SEGMENT_ALIGN_BYTES - 4];
};

#define LANDING_FREE 0u
#define LANDING_FULL 1u

/* What a landing buffer holds. The sender writes buffer and tag and then releases LANDING_FULL; the
 * receiver acquires it, reads, and then releases LANDING_FREE, which the sender acquires. */
struct landing_mark {
    uint32_t state; /* atomic */
    uint32_t zero;
    uint64_t tag;   /* of the message; valid while full */
    uint64_t bytes; /* of the message; valid while full */
    uint8_t padding[SEGMENT_ALIGN_BYTES - 24];
};

/* What a member of a group says of itself, and, in the first member's segment, the count that all
 * wait for. Counts only grow, so nothing is ever reset. */
struct group_mark {
    uint64_t arrivals; /* atomic; of all members at all barriers; in the first member's only */
    uint8_t padding[SEGMENT_ALIGN_BYTES - 8];
    uint64_t barriers; /* atomic; barriers that the owner has arrived at */
    /* The owner's call, written before it arrives at the call's first barrier. */
    uint64_t offset; /* of the first piece of data in the shared block */
    uint64_t elems;  /* of all pieces */
    uint64_t bytes;  /* of all pieces */
    uint64_t hash;   /* of the whole list */
    uint32_t kind;
    int32_t pieces;
    uint8_t tail[SEGMENT_ALIGN_BYTES - 48];
};

struct segment {
    unsigned char *base; /* owns the mapping; NULL where there is none */
    size_t bytes;
};

/* Where a lane lies in the receiver's segment. */
struct segment_place {
    uint64_t marks;   /* offset of its first landing_mark */
    uint64_t buffers; /* offset of its first landing buffer */
};

/* The distance of one landing buffer from the next. */
size_t segment_stride(size_t landing_bytes);

/* Adds a lane to a layout of `*bytes` (0 at first) and tells its place; false where the sizes do
 * not fit into a size_t, and then changes nothing. */
bool segment_place_lane(size_t *bytes, int32_t landings, size_t landing_bytes,
                        struct segment_place *place_out);

/* Adds a block at a multiple of `align` (a power of two) to the layout; false where it does not
 * fit, and then changes nothing. */
bool segment_place_block(size_t *bytes, size_t block_bytes, size_t align, uint64_t *offset_out);

/* Whether a block that a peer has told lies inside `bytes`, aligned and behind the page. */
bool segment_block_fits(uint64_t offset, uint64_t block_bytes, size_t align, size_t bytes);

/* Whether a place that a peer has told lies inside `bytes`, aligned and behind the page. */
bool segment_place_fits(const struct segment_place *place, int32_t landings, size_t landing_bytes,
                        size_t bytes);

/* Makes and maps this rank's segment of at least `bytes`, all of it backed by memory, zero but for
 * the page. *fd_out is for others to attach to; the caller owns it. STATUS_ERR_NO_MEMORY, with
 * bytes wanted and available, where the host or a limit has too little. */
enum status segment_create(int32_t rank, size_t bytes, struct segment *segment, int *fd_out);

/* Maps the segment of `rank` that has come as `fd`, which the caller keeps. Checks seals, size and
 * page: STATUS_ERR_FORMAT with what was expected and found. */
enum status segment_attach(int32_t rank, int fd, size_t bytes, struct segment *segment);

/* Lends the page; NULL where the segment is not mapped. */
struct segment_page *segment_page(const struct segment *segment);

/* Sets the abort word and rings. */
void segment_page_abort(struct segment_page *page);

/* Unmaps; safe on a zeroed segment, and twice. */
void segment_release(struct segment *segment);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_SEGMENT_H */
