/*
 * comm -- the data plane: what carries activations and gradients between ranks.
 *
 * A lane is an ordered channel for one pair of ranks and one direction (F or B). Its receiver
 * owns the landing buffers, numbered 0 … landings-1; a message goes straight from the sender's
 * out buffer into the landing buffer that the plan names, in one copy, and stays there until the
 * receiver gives the credit back. A landing buffer is full or free, nothing else; the tag of what
 * it holds is checked at arrival, so a message in the wrong place is an error and not a wrong
 * number. One send a lane may be pending, because a lane has one out buffer.
 *
 * Life: comm_open, comm_lane_open for every lane (both ends name the same sizes), comm_connect
 * (now memory is reserved and exchanged), sends and receives, comm_close. After comm_connect
 * nothing here allocates or makes a syscall but the futex of a wait.
 *
 * Threads: one owner thread; comm_abort() from any thread. Two implementations are meant (shm,
 * nccl); comm_ops is filled by each, and callers use the functions below it.
 */
#ifndef COLLECTIVES_COMM_H
#define COLLECTIVES_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct comm;
struct lane;

struct comm_config {
    const char *job_directory; /* borrows until comm_connect() returns; 0700, exists */
    int32_t rank;
    int32_t world;
    bool crowded; /* more ranks than cores on this host: waits do not spin */
};

struct lane_config {
    int32_t peer;         /* rank at the other end; never this rank */
    int32_t direction;    /* 0 F, 1 B; with `peer` and `sends` it names the lane */
    bool sends;           /* this rank is the sender */
    int32_t landings;     /* landing buffers at the receiver, >= 1 */
    size_t landing_bytes; /* of each */
};

/* Shared memory between the processes of one host: a memfd a rank, passed over unix sockets in
 * the job directory, reserved with fallocate before the start. No name exists in any file system
 * after comm_connect(), so nothing is left behind by any death. */
enum status comm_shm_open(const struct comm_config *config, struct comm **comm_out);

/* Declares a lane; before comm_connect(). The comm owns it; *lane_out is valid until comm_close().
 */
enum status comm_lane_open(struct comm *comm, const struct lane_config *config,
                           struct lane **lane_out);

/* Reserves this rank's landing buffers, exchanges them with all peers and checks that both ends of
 * every lane agree (direction, landings, bytes), naming both where they do not. Memory that
 * cannot be reserved is STATUS_ERR_NO_MEMORY with the bytes wanted and what the host has. Blocks
 * until all peers are there, the deadline passes (naming the peers that are missing) or the job
 * is cancelled. */
enum status comm_connect(struct comm *comm, const struct cancel *cancel, int64_t deadline_ns);

/* Receiver: lends landing buffer `landing`, aligned to 128 bytes, at the same address all along. */
void *comm_landing(const struct lane *lane, int32_t landing);

/* Sender: hands `bytes` at `data` to landing buffer `landing` under `tag`. Copies at once where
 * it is free; else the send stays pending, and `data` must stay as it is, until comm_sent().
 * A second send while one is pending is our bug (ENSURE). Also rings the receiver. */
enum status comm_post_send(struct lane *lane, int32_t landing, uint64_t tag, const void *data,
                           size_t bytes);

/* Whether the lane's last send has been copied (true before the first). Does not retry. */
bool comm_sent(const struct lane *lane);

/* When the lane's last copy began and ended; both 0 before the first. */
void comm_last_copy(const struct lane *lane, int64_t *begin_ns, int64_t *end_ns);

/* Retries the pending sends of all lanes; returns how many are still pending. Never blocks. */
int32_t comm_progress(struct comm *comm);

/* Receiver: STATUS_OK when landing buffer `landing` holds the message `tag`,
 * STATUS_IN_PROGRESS while it is free; another tag is STATUS_ERR_FORMAT with both tags. */
enum status comm_arrived(const struct lane *lane, int32_t landing, uint64_t tag);

/* The same, blocking; pending sends of all lanes are retried meanwhile. Spins briefly (not when
 * crowded), then sleeps on the rank's own doorbell, which every message and credit to it rings. */
enum status comm_wait_arrival(struct lane *lane, int32_t landing, uint64_t tag,
                              const struct cancel *cancel, int64_t deadline_ns);

/* Sender: blocks until the lane's pending send has been copied; retries all meanwhile. */
enum status comm_wait_sent(struct lane *lane, const struct cancel *cancel, int64_t deadline_ns);

/* Receiver: the last reader of landing buffer `landing` has ended; it is free again. Rings the
 * sender. */
void comm_credit(struct lane *lane, int32_t landing);

/* Bytes that this rank has reserved for landing buffers, known after comm_connect(). */
size_t comm_reserved_bytes(const struct comm *comm);

/* Frees every wait of this rank and of its peers with STATUS_ERR_CANCELLED; the peers are told
 * first, so that a wait that ends here has ended there too. Any thread. */
void comm_abort(struct comm *comm);

/* Unmaps and closes; nulls the caller's pointer; NULL is fine. Does not wait for peers: what they
 * still read is theirs. */
void comm_close(struct comm **comm);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COMM_H */
