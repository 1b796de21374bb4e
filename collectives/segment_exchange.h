/*
 * segment_exchange -- how the ranks of one host hand their segments to one another.
 *
 * Each rank listens on a unix socket `shm-<rank>` in the job directory; of a pair, the higher rank
 * connects to the lower. The connector sends its offer with its segment's descriptor, the listener
 * answers with its own, then both compare. One thread serves all pairs at once and never blocks on
 * one of them, so no order of arrival can deadlock. The socket file is gone when the exchange
 * ends, well or badly; what a killed process has left there is taken over by the next one.
 *
 * Only processes of the same user take part. One thread.
 */
#ifndef COLLECTIVES_SEGMENT_EXCHANGE_H
#define COLLECTIVES_SEGMENT_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/segment_offer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One rank that this rank shares memory with. */
struct segment_peer {
    int32_t rank;                /* set by the caller, each rank once */
    struct segment_offer mine;   /* set by the caller: what this peer is told */
    struct segment_offer theirs; /* filled: agrees with `mine` */
    int fd;                      /* filled: the peer's segment, the caller owns it; -1 before */
};

struct segment_exchange_config {
    const char *directory;   /* borrows until segment_exchange() returns */
    int32_t rank;            /* this rank */
    int segment_fd;          /* this rank's segment; borrows */
    const uint32_t *aborted; /* atomic; not 0: give up with STATUS_ERR_CANCELLED */
};

/* Blocks until every peer has been met, a disagreement shows, the deadline passes (the message
 * names the ranks that are missing) or the job is cancelled. After a failure the descriptors that
 * have come are the caller's all the same. */
enum status segment_exchange(const struct segment_exchange_config *config,
                             struct segment_peer *peers, int32_t peer_count,
                             const struct cancel *cancel, int64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_SEGMENT_EXCHANGE_H */
