/*
 * comm_ops -- what an implementation of the data plane fills in. Private to collectives/.
 *
 * comm.c holds the functions of comm.h: each checks what the caller promised (its own bugs) and
 * calls the slot of the same name. An implementation puts `struct comm` and `struct lane` first in
 * structs of its own. What a slot must keep is what comm.h says of the function; below stands
 * what comm.c has made sure of before, and what is the slot's own business.
 */
#ifndef COLLECTIVES_COMM_OPS_H
#define COLLECTIVES_COMM_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm.h"

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

    /* Once. After a failure only abort and close follow. */
    enum status (*connect)(struct comm *comm, const struct cancel *cancel, int64_t deadline_ns);

    /* Receiver, connected, `landing` in range; never NULL. */
    void *(*landing)(const struct lane *lane, int32_t landing);

    /* Sender, connected, nothing pending on this lane, `landing` and `bytes` in range. Never
     * blocks. */
    enum status (*post_send)(struct lane *lane, int32_t landing, uint64_t tag, const void *data,
                             size_t bytes);

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

    /* 0 before connect. */
    size_t (*reserved_bytes)(const struct comm *comm);

    /* Any thread, at any time between open and close, more than once. */
    void (*abort)(struct comm *comm);

    /* Frees the comm and all its lanes, in whatever state it is. */
    void (*close)(struct comm *comm);
};

struct comm {
    const struct comm_ops *ops; /* static */
    int32_t rank;               /* set at open */
    int32_t world;              /* set at open */
    bool connected;             /* private to comm.c */
};

struct lane {
    struct comm *comm;         /* its owner */
    struct lane_config config; /* read-only */
};

/* "F from rank 0 to rank 1"; fits COMM_LANE_NAME_BYTES, returns `text`. */
#define COMM_LANE_NAME_BYTES 64
const char *comm_lane_name(const struct lane *lane, char *text);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COMM_OPS_H */
