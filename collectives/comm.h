/*
 * comm -- the data plane: what carries activations and gradients between ranks, and sums what
 * several ranks have.
 *
 * A lane is an ordered channel for one pair of ranks and one direction (F, B or that of a tied embedding). Its receiver
 * owns the landing buffers, numbered 0 … landings-1; a message goes straight from the sender's
 * out buffer into the landing buffer that the plan names, in one copy, and stays there until the
 * receiver gives the credit back. A landing buffer is full or free, nothing else; the tag of what
 * it holds is checked at arrival, so a message in the wrong place is an error and not a wrong
 * number. One send a lane may be pending, because a lane has one out buffer.
 *
 * A group is a set of ranks that combine numbers. These lie in the shared block of each member, at
 * the same offset, and are worked on in place: a member reads and writes the blocks of the others
 * directly, so nothing is copied besides. Calls on a group are numbered by their order: all members
 * make the same calls on it, with the same offset and size, which is checked in each call.
 * A call can work on many pieces of the block at once, at the price of one.
 *
 * Life: comm_open, comm_share, comm_lane_open for every lane (both ends name the same sizes),
 * comm_group_open for every group, comm_connect (now memory is reserved and exchanged), sends,
 * receives and collectives, comm_close. After comm_connect nothing here allocates or makes a
 * syscall but the futex of a wait.
 *
 * Threads: one owner thread; comm_abort() and comm_read() from any thread. After comm_connect() the calls
 * on a group that was opened `aside` may come from another thread, one for each such group, while the owner
 * goes on: their waits retry no sends. Where calls block nobody (collectives/cuda/comm_nccl.h) the owner makes those too,
 * and they run on a stream of the group's. comm_ops is filled by each implementation, and callers use the functions below
 * it.
 *
 * Where tensors lie in a device's memory (collectives/comm_staged.h, collectives/cuda/comm_nccl.h), all of this is
 * meant in the order of the device's stream.
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
struct group;

struct comm_config {
    const char *job_directory; /* borrows until comm_connect() returns; 0700, exists */
    int32_t rank;
    int32_t world;
    bool crowded; /* more ranks than cores on this host: waits do not spin */
};

struct lane_config {
    int32_t peer;         /* rank at the other end; never this rank */
    int32_t direction;    /* 0 F, 1 B, or COMM_TIED; with `peer` and `sends` it names the lane */
    bool sends;           /* this rank is the sender */
    int32_t landings;     /* landing buffers at the receiver, >= 1 */
    size_t landing_bytes; /* of each */
    int32_t wave; /* lanes of one share no rank but as ends of a pair; 0 where nobody asks */
};

/* Beside the two directions of a pipeline: between the ends of a tied embedding. */
#define COMM_TIED       2
#define COMM_DIRECTIONS 3

#define COMM_GROUP_MEMBERS 64 /* of a group, at most */

struct group_config {
    const int32_t *ranks; /* borrows during the call; ascending, this rank among them */
    int32_t count;        /* 2 … COMM_GROUP_MEMBERS */
    bool aside;           /* its calls run beside the owner's work, see Threads */
};

enum comm_op {
    COMM_SUM, /* in ascending order of ranks: ((a0 + a1) + a2) + … */
    COMM_MAX  /* a NaN anywhere gives NaN; of two zeros that of the lower rank stays */
};

enum comm_collective {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_COLLECTIVES
};

/* Some elements in the shared block that a call works on, together with others. */
struct comm_piece {
    void *data; /* at the same offset at every member, best at a multiple of 128 bytes */
    size_t elems;
    size_t elem_bytes; /* 4, or, where the call allows it, 2; `data` is a multiple of it */
};

/* What has travelled so far. */
struct comm_traffic {
    uint64_t calls; /* messages of a lane, collectives of one kind of a group */
    uint64_t bytes;
};

/* Shared memory between the processes of one host: a memfd a rank, passed over unix sockets in
 * the job directory, reserved with fallocate before the start. No name exists in any file system
 * after comm_connect(), so nothing is left behind by any death. */
enum status comm_shm_open(const struct comm_config *config, struct comm **comm_out);

/* Declares a lane; before comm_connect(). The comm owns it; *lane_out is valid until comm_close().
 */
enum status comm_lane_open(struct comm *comm, const struct lane_config *config,
                           struct lane **lane_out);

/* Declares, before comm_connect() and at most once, that this rank shares a block of `bytes` with
 * every rank that it has a lane or a group with. 0: none. */
enum status comm_share(struct comm *comm, size_t bytes);

/* Declares a group before comm_connect(). Members open the groups that they have in common in the
 * same order; two ranks can have 8. The comm owns it; *group_out is valid until comm_close(). */
enum status comm_group_open(struct comm *comm, const struct group_config *config,
                            struct group **group_out);

/* Reserves this rank's landing buffers and shared block, exchanges them with all peers and checks
 * that both ends of every lane agree (direction, landings, bytes), and all members on every group
 * (members, order), naming both where they do not. Memory that
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

/* Receiver: has come to where the message `tag` may land in `landing`, which is free by then; before it waits for it,
 * and in the order in which the messages of the lane are sent. What a plane that must be told needs; others ignore it. */
enum status comm_post_receive(struct lane *lane, int32_t landing, uint64_t tag);

/* Whether the lane's last send has been copied (true before the first). Does not retry. */
bool comm_sent(const struct lane *lane);

/* When the lane's last copy began and ended; both 0 before the first, and where the host does not know. */
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

/* After comm_connect(): the block that this rank shares, zeroed, aligned to a page, at the same
 * address all along; NULL where it has none. Whole pages are the rank's own. */
void *comm_shared(const struct comm *comm);

/* Whether comm_read() is possible: not where blocks lie in the memory of a device. */
bool comm_reads(const struct comm *comm);

/* Copies `bytes` at `offset` of a peer's shared block to `data`. Any thread, after connect; the
 * caller knows that they are there. A peer without such bytes is STATUS_ERR_INVALID with both. */
enum status comm_read(struct comm *comm, int32_t peer, size_t offset, void *data, size_t bytes);

/* Pure: the part of `elems` elements that member `index` of `count` owns: equal parts of a multiple
 * of 16 elements, the last ones shorter or empty. In floats that are whole cache lines. */
void comm_slice(size_t elems, int32_t count, int32_t index, size_t *first_out, size_t *elems_out);

/* The collectives. `data` lies in this rank's shared block, at the same offset at every member, best
 * at a multiple of 128 bytes; where the members differ in call, offset or size, all of them get
 * STATUS_ERR_FORMAT with both. Each blocks until all members have called and ended, retries
 * pending sends of all lanes meanwhile, and waits as comm_wait_arrival() does; the message of a
 * deadline names the group and who has not come. A group on which a call has failed is broken, and
 * every later call on it fails with the same status. */

/* Afterwards every member has the same bits: the sum or the maximum, element by element. */
enum status comm_all_reduce(struct group *group, float *data, size_t elems, enum comm_op op,
                            const struct cancel *cancel, int64_t deadline_ns);

/* Afterwards the comm_slice() of this member holds the sum, with the bits of comm_all_reduce(); the
 * rest of its data is as it was. */
enum status comm_reduce_scatter(struct group *group, float *data, size_t elems,
                                const struct cancel *cancel, int64_t deadline_ns);

/* Each member has filled its comm_slice(); afterwards all have all. Bytes move unchanged, so that
 * anything of whole four bytes may stand in `data`. */
enum status comm_all_gather(struct group *group, float *data, size_t elems,
                            const struct cancel *cancel, int64_t deadline_ns);

/* The same for `count` >= 0 pieces in one call, in which everybody waits as often as in one of a
 * single piece: of each piece, by itself, its comm_slice() of this member becomes the sum, or each
 * member has filled its comm_slice() and all get all. Pieces do not overlap, and may be empty; the
 * members differ where one piece differs. reduce_scatter_pieces takes floats, all_gather_pieces
 * elements of 2 or 4 bytes. `pieces` is read during the call only. */
enum status comm_reduce_scatter_pieces(struct group *group, const struct comm_piece *pieces,
                                       int32_t count, const struct cancel *cancel,
                                       int64_t deadline_ns);
enum status comm_all_gather_pieces(struct group *group, const struct comm_piece *pieces,
                                   int32_t count, const struct cancel *cancel, int64_t deadline_ns);

/* Calls on the group so far. */
uint64_t comm_group_calls(const struct group *group);

/* Of a group aside whose calls run on a stream: what is put into the device's stream from here on comes behind the end of the
 * group's first `calls` calls. Nothing where calls have ended when they return. */
enum status comm_group_join(struct group *group, uint64_t calls);

/* Whether the plane is well: a failure that no call has reported yet is one here. Never blocks. */
enum status comm_check(struct comm *comm);

/* Of a landing buffer. */
size_t comm_lane_bytes(const struct lane *lane);

/* Whether this rank's device, when it was last looked at, stood in a call of a group whose other members had not come: while
 * the owner waits for the device. Any thread, after connect; false where calls have ended when they return. */
bool comm_stands(const struct comm *comm);

/* For accounting. A sender counts a message when it is copied, its receiver when it gives the credit
 * back; a collective counts once a call, with the bytes of its elements, when it has ended well. */
struct comm_traffic comm_lane_traffic(const struct lane *lane);
struct comm_traffic comm_group_traffic(const struct group *group, enum comm_collective collective);

/* Bytes that this rank has reserved for landing buffers, known after comm_connect(). The shared
 * block is not among them. */
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
