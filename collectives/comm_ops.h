/*
 * comm_ops -- what an implementation of the data plane fills in. Private to collectives/.
 *
 * comm.c and comm_group.c hold the functions of comm.h: each checks what the caller promised (its own bugs) and
 * calls the slot of the same name. An implementation puts `struct comm`, `struct lane` and
 * `struct group` first in structs of its own. What a slot must keep is what comm.h says of the
 * function; below stands what has been made sure of before, and what is the slot's own business.
 */
#ifndef COLLECTIVES_COMM_OPS_H
#define COLLECTIVES_COMM_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/rank_list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct comm_ops {
    /* Before connect; the configuration is in range and names no lane that exists. The slot fills
     * all of `struct lane` but nothing may be reserved yet. */
    enum status (*lane_open)(struct comm *comm, const struct lane_config *config,
                             struct lane **lane_out);

    /* Whether the comm has a lane with this peer, direction and `sends`. Before and after connect.
     */
    bool (*lane_exists)(const struct comm *comm, const struct lane_config *config);

    /* Before connect; ranks are ascending, in range, and this rank is among them. The slot fills
     * all of `struct group`, with a copy of the ranks. */
    enum status (*group_open)(struct comm *comm, const struct group_config *config,
                              struct group **group_out);

    /* Once. comm->shared_bytes says how large a block is to be. After a failure only abort and
     * close follow. */
    enum status (*connect)(struct comm *comm, const struct cancel *cancel, int64_t deadline_ns);

    /* Receiver, connected, `landing` in range; never NULL. */
    void *(*landing)(const struct lane *lane, int32_t landing);

    /* Sender, connected, nothing pending on this lane, `landing` and `bytes` in range. Never
     * blocks. */
    enum status (*post_send)(struct lane *lane, int32_t landing, uint64_t tag, const void *data,
                             size_t bytes);

    /* Receiver, connected, `landing` in range; NULL: there is nothing to do. */
    enum status (*post_receive)(struct lane *lane, int32_t landing, uint64_t tag);

    /* Sender; a look, no retry. */
    bool (*sent)(const struct lane *lane);

    /* Sender; times of base/clock. */
    void (*last_copy)(const struct lane *lane, int64_t *begin_ns, int64_t *end_ns);

    /* Connected; never blocks. */
    int32_t (*progress)(struct comm *comm);

    /* Receiver, connected, `landing` in range; never blocks. */
    enum status (*arrived)(const struct lane *lane, int32_t landing, uint64_t tag);

    /* The same, blocking; must retry pending sends of all lanes, and must see cancel, deadline and
     * abort within CANCEL_POLL_NS. */
    enum status (*wait_arrival)(struct lane *lane, int32_t landing, uint64_t tag,
                                const struct cancel *cancel, int64_t deadline_ns);

    /* Sender, connected; the same duties. */
    enum status (*wait_sent)(struct lane *lane, const struct cancel *cancel, int64_t deadline_ns);

    /* Receiver, connected, `landing` in range. That it is full is the slot's to check. */
    void (*credit)(struct lane *lane, int32_t landing);

    /* Connected, and shared_bytes is not 0; never NULL. */
    void *(*shared)(const struct comm *comm);

    /* NULL where blocks cannot be read: comm_reads(). Connected. Whether the peer has such bytes is the slot's to check. Any thread. */
    enum status (*read)(struct comm *comm, int32_t peer, size_t offset, void *data, size_t bytes);

    /* Connected, the group is whole, and the data lies in this rank's block. Whether the members
     * agree is the slot's to check. The same duties as wait_arrival. Floats are summed. A call of one piece
     * comes as a list of one. Where a wire has no slices of its own, a piece is a reduction, or a broadcast, of
     * each member's comm_slice(), and the whole list is one group of these (ncclGroupStart). */
    enum status (*all_reduce)(struct group *group, const struct comm_piece *piece, enum comm_op op,
                              const struct cancel *cancel, int64_t deadline_ns);
    enum status (*reduce_scatter)(struct group *group, const struct comm_piece *pieces,
                                  int32_t count, const struct cancel *cancel, int64_t deadline_ns);
    enum status (*all_gather)(struct group *group, const struct comm_piece *pieces, int32_t count,
                              const struct cancel *cancel, int64_t deadline_ns);

    /* NULL: calls have ended when they return. Connected, `calls` were made, more than 0. */
    enum status (*join)(struct group *group, uint64_t calls);

    /* Connected; NULL: calls report all that fails. */
    enum status (*check)(struct comm *comm);

    /* NULL: never. Any thread. */
    bool (*stands)(const struct comm *comm);

    /* 0 before connect. */
    size_t (*reserved_bytes)(const struct comm *comm);

    /* Any thread, at any time between open and close, more than once. */
    void (*abort)(struct comm *comm);

    /* Frees the comm and all its lanes and groups, in whatever state it is. */
    void (*close)(struct comm *comm);
};

struct comm {
    const struct comm_ops *ops; /* static */
    int32_t rank;               /* set at open */
    int32_t world;              /* set at open */
    size_t shared_bytes;        /* set before connect; 0 where this rank shares no block */
    bool shares;                /* comm_share() has been called; private to comm.c */
    bool connected;             /* set by comm.c */
};

struct lane {
    struct comm *comm;           /* its owner */
    struct lane_config config;   /* read-only */
    struct comm_traffic traffic; /* kept by the implementation, or, */
    const struct lane *beneath;  /* where it is not NULL, by the one beneath it */
};

struct group {
    struct comm *comm;    /* its owner */
    const int32_t *ranks; /* ascending; the implementation's */
    int32_t count;
    int32_t index;                                 /* of this rank among them */
    struct comm_traffic traffic[COMM_COLLECTIVES]; /* kept by comm_group.c */
    uint64_t calls;                                /* of all kinds; kept by comm_group.c */
    enum status broken; /* how a call has failed; private to comm_group.c */
};

/* F, B, and E of a tied embedding. */
char comm_direction_letter(int32_t direction);

/* "F from rank 0 to rank 1"; fits COMM_LANE_NAME_BYTES, returns `text`. */
#define COMM_LANE_NAME_BYTES 64
const char *comm_lane_name(const struct lane *lane, char *text);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COMM_OPS_H */
