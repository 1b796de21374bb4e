/*
 * comm_shm -- the data plane over shared memory of one host. Private to comm_shm.c, which makes,
 * connects and ends it, and comm_shm_lane.c, which moves messages and waits.
 *
 * The owner thread works on everything; another thread may call abort at any time, which touches
 * `aborted`, `page`, `peer_count` and the peers' `page` only, all atomic.
 */
#ifndef COLLECTIVES_COMM_SHM_H
#define COLLECTIVES_COMM_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm_ops.h"
#include "collectives/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A rank that this one has lanes with. */
struct comm_shm_peer {
    struct segment segment;    /* owns the mapping */
    struct segment_page *page; /* atomic; NULL until it is mapped */
};

struct comm_shm_lane {
    struct lane base;           /* first */
    struct segment_place place; /* in this rank's segment; zero where it sends */

    /* Set at connect; all in the receiver's segment. */
    struct landing_mark *marks; /* base.config.landings of them */
    unsigned char *buffers;     /* landing buffer k at k * stride */
    size_t stride;
    struct segment_page *peer; /* whose doorbell is rung: the other end's */

    /* The last send; on a sending lane only. */
    bool pending;
    int32_t landing;
    uint64_t tag;
    const void *data; /* borrows while pending */
    size_t bytes;
    int64_t copy_begin_ns;
    int64_t copy_end_ns;
};

struct comm_shm {
    struct comm base;          /* first */
    const char *job_directory; /* borrows until connect returns */
    bool crowded;              /* waits do not spin */
    uint32_t aborted;          /* atomic; 1 once an abort by this process has begun */
    size_t landing_bytes;      /* set at connect */

    struct comm_shm_lane **lanes; /* owns array and lanes, in the order of opening */
    int32_t lane_count;
    int32_t pending_count; /* lanes with a pending send */

    struct segment segment;    /* this rank's own */
    struct segment_page *page; /* atomic; NULL until the segment is there */

    struct comm_shm_peer *peers; /* owns */
    int32_t peer_count;          /* atomic; 0 until `peers` is there */
};

static inline struct comm_shm *comm_shm_of(struct comm *base)
{
    return (struct comm_shm *)(void *)base;
}

/* Slots of comm_ops, as comm_ops.h says. */
void *comm_shm_landing(const struct lane *base, int32_t landing);
enum status comm_shm_post_send(struct lane *base, int32_t landing, uint64_t tag, const void *data,
                               size_t bytes);
bool comm_shm_sent(const struct lane *base);
void comm_shm_last_copy(const struct lane *base, int64_t *begin_ns, int64_t *end_ns);
int32_t comm_shm_progress(struct comm *base);
enum status comm_shm_arrived(const struct lane *base, int32_t landing, uint64_t tag);
enum status comm_shm_wait_arrival(struct lane *base, int32_t landing, uint64_t tag,
                                  const struct cancel *cancel, int64_t deadline_ns);
enum status comm_shm_wait_sent(struct lane *base, const struct cancel *cancel, int64_t deadline_ns);
void comm_shm_credit(struct lane *base, int32_t landing);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COMM_SHM_H */
