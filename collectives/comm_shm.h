/*
 * comm_shm -- the data plane over shared memory of one host. Private to comm_shm.c, which makes and
 * ends it, comm_shm_connect.c, which lays out this rank's segment and meets the peers,
 * comm_shm_lane.c, which moves messages, comm_shm_group.c, which combines, and comm_shm_wait.c.
 *
 * The owner thread works on everything but groups that are aside. Another thread may call abort at any time, which touches
 * `aborted`, `page`, `peer_count` and the peers' `page` only, all atomic; and, once connected, read,
 * which touches `peers` only, and nobody changes them then.
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

struct kernel_ops;

/* A rank that this one has lanes or groups with. */
struct comm_shm_peer {
    int32_t rank;
    struct segment segment;      /* owns the mapping */
    struct segment_page *page;   /* atomic; NULL until it is mapped */
    const unsigned char *shared; /* its shared block, NULL where it has none */
    size_t shared_bytes;
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

/* A member of a group, this rank included; all in the member's segment, set at connect. */
struct comm_shm_member {
    struct group_mark *mark;
    struct segment_page *page; /* whose doorbell is rung */
    unsigned char *block;      /* the shared block */
};

struct comm_shm_group {
    struct group base; /* first; base.ranks is `ranks` */
    bool aside;
    int32_t ranks[COMM_GROUP_MEMBERS];
    uint64_t mark;     /* offset of its mark in this rank's segment */
    uint64_t barriers; /* that this rank has arrived at */
    struct comm_shm_member members[COMM_GROUP_MEMBERS];
};

struct comm_shm {
    struct comm base;                 /* first */
    const struct kernel_ops *kernels; /* static */
    const char *job_directory;        /* borrows until connect returns */
    bool crowded;                     /* waits do not spin */
    uint32_t aborted;                 /* atomic; 1 once an abort by this process has begun */
    size_t landing_bytes;             /* set at connect */
    uint64_t shared;                  /* offset of the shared block; set at connect */

    struct comm_shm_lane **lanes; /* owns array and lanes, in the order of opening */
    int32_t lane_count;
    int32_t pending_count; /* lanes with a pending send */

    struct comm_shm_group **groups; /* owns array and groups, in the order of opening */
    int32_t group_count;

    struct segment segment;    /* this rank's own */
    struct segment_page *page; /* atomic; NULL until the segment is there */

    struct comm_shm_peer *peers; /* owns */
    int32_t peer_count;          /* atomic; 0 until `peers` is there */
};

static inline struct comm_shm *comm_shm_of(struct comm *base)
{
    return (struct comm_shm *)(void *)base;
}

static inline const struct comm_shm *comm_shm_of_const(const struct comm *base)
{
    return (const struct comm_shm *)(const void *)base;
}

/* What a wait is for; first in a struct of the waiter's own. */
struct comm_shm_goal {
    bool aside; /* the waiter is not the owner thread and leaves the lanes alone */
    /* STATUS_IN_PROGRESS until it is reached. Never blocks. */
    enum status (*look)(const struct comm_shm_goal *goal);
    /* Says what a wait was for that ended without it; returns `why`, which is STATUS_ERR_TIMEOUT or
     * STATUS_ERR_CANCELLED. */
    enum status (*fail)(const struct comm_shm_goal *goal, enum status why);
};

/* Blocks until the goal is reached, the owner thread retrying the pending sends of all lanes. Spins briefly where
 * the comm is not crowded, then sleeps on the rank's own doorbell, which whoever changes what a goal
 * looks at must ring. */
enum status comm_shm_wait(struct comm_shm *comm, const struct comm_shm_goal *goal,
                          const struct cancel *cancel, int64_t deadline_ns);

/* Slots of comm_ops, as comm_ops.h says. */
enum status comm_shm_connect(struct comm *base, const struct cancel *cancel, int64_t deadline_ns);
void comm_shm_abort(struct comm *base);
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
enum status comm_shm_group_open(struct comm *base, const struct group_config *config,
                                struct group **group_out);
enum status comm_shm_all_reduce(struct group *base, const struct comm_piece *piece, enum comm_op op,
                                const struct cancel *cancel, int64_t deadline_ns);
enum status comm_shm_reduce_scatter(struct group *base, const struct comm_piece *pieces,
                                    int32_t count, const struct cancel *cancel,
                                    int64_t deadline_ns);
enum status comm_shm_all_gather(struct group *base, const struct comm_piece *pieces, int32_t count,
                                const struct cancel *cancel, int64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COMM_SHM_H */
