/*
 * comm_nccl_state -- what the files of comm_nccl.h share. Private to them; no header of CUDA or NCCL is in it.
 */
#ifndef COLLECTIVES_CUDA_COMM_NCCL_STATE_H
#define COLLECTIVES_CUDA_COMM_NCCL_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm_ops.h"
#include "collectives/cuda/comm_nccl.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ncclComm;
struct CUstream_st;
struct CUevent_st;

#define NCCL_LINK_NAME_BYTES   128
#define NCCL_FLIGHT_ROOM       256
#define NCCL_FLIGHT_TEXT_BYTES 320

/* Operations of a communicator, one behind the other, that have been put into its stream. */
struct nccl_entry {
    uint64_t first; /* numbers, from 1 */
    uint64_t last;
    uint64_t order;   /* of the first, among all operations of the comm */
    const char *what; /* of the last, as its size; static */
    size_t count;
    struct CUevent_st *began; /* owns; of a group: recorded before the first */
    struct CUevent_st *ended; /* owns; recorded behind the last */
};

/* What a communicator was given and what of it has ended: a ring, whose newest entry grows while there is no room. */
struct nccl_flight {
    struct nccl_entry *entries; /* owns, NCCL_FLIGHT_ROOM of them; NULL: nothing is recorded */
    uint64_t oldest;            /* entries are numbered; those from here */
    uint64_t next;              /* to before here have not been seen to end */
    uint64_t called;
};

/* One communicator. */
struct nccl_link {
    struct nccl_link *next;  /* of the comm, in the order of creation */
    struct ncclComm *handle; /* owns; NULL: not there, or no longer */
    int32_t peer;            /* of a lane: its rank; of a group -1 */
    char name[NCCL_LINK_NAME_BYTES];
    void *registration; /* of the shared block; or NULL */
    struct nccl_flight flight;
};

enum nccl_landing_state {
    NCCL_LANDING_FREE,
    NCCL_LANDING_POSTED, /* the message may come */
    NCCL_LANDING_FULL    /* the compute stream has been told to wait for it */
};

struct nccl_landing {
    enum nccl_landing_state state;
    uint64_t tag;
    struct CUevent_st *free; /* owns both */
    struct CUevent_st *arrived;
};

struct nccl_lane {
    struct lane base;
    struct nccl_lane *next; /* of the comm */
    struct nccl_link link;
    struct CUstream_st *stream; /* owns these */
    struct CUevent_st *written; /* sender: the compute stream has come to the send */
    struct CUevent_st *sent;    /* sender: the message has left */
    bool pending;               /* sender: since the last send nobody waited for it */
    unsigned char
        *memory; /* receiver: landing buffers, each nccl_landing_stride() behind the last */
    struct nccl_landing *landings; /* receiver */
    unsigned char *first_message;  /* lent: what the two ends compare at the start */
};

struct nccl_group {
    struct group base;
    struct nccl_group *next;
    struct nccl_link link;
    bool aside;
    struct CUstream_st *stream; /* owns, where it is aside, these; else that of compute */
    struct CUevent_st *reached; /* the compute stream has come to a call */
    int32_t ranks[COMM_GROUP_MEMBERS];
};

struct comm_nccl {
    struct comm base;
    struct device *device;       /* borrows */
    struct control *control;     /* borrows until connected */
    struct CUstream_st *compute; /* lent by the device */
    int32_t waves;
    int32_t lane_count;
    int32_t group_count;
    struct nccl_lane *lanes;
    struct nccl_group *groups; /* owns; in the order in which they were opened */
    struct nccl_link world;
    struct nccl_link *links; /* all there are, the world last */
    unsigned char *shared;   /* owns; in the device's memory */
    unsigned char *first;    /* owns; what the first uses work in */
    size_t first_bytes;
    size_t reserved_bytes;
    uint64_t order;              /* operations so far */
    const struct cancel *cancel; /* of comm_connect(), while it runs */
    int64_t deadline_ns;
    enum status failed; /* a failure that no call could report, or STATUS_OK */
    int64_t looked_ns;  /* a wait has looked at what it stands at, */
    bool stands;        /* and that was something, in the wait that is under way: */
    char stood_at[NCCL_FLIGHT_TEXT_BYTES];
    int in_call; /* atomic: a call of a group stood in the compute stream then; 0 between waits */
    bool sick;   /* something has failed: what is left is to abort */
    int aborted; /* atomic */
    pthread_mutex_t gate; /* around NCCL's calls */
};

/* ---- comm_nccl_wait.c ---- */

/* For a stretch of NCCL's calls; false where the comm has been aborted, and nothing is to be left then. */
bool nccl_enter(struct comm_nccl *comm);
void nccl_leave(struct comm_nccl *comm);
bool nccl_is_aborted(const struct comm_nccl *comm);

/* Records a failure of `what` and marks the comm sick. `result` is an ncclResult_t, `error` a cudaError_t. */
enum status nccl_failure(struct comm_nccl *comm, struct nccl_link *link, const char *what,
                         int result);
enum status nccl_cuda_failure(struct comm_nccl *comm, const char *what, int error);

/* cudaEventQuery(), a cudaError_t, of a cudaEvent_t: takes "not ready" back, which the runtime would report again at the
 * next launch. */
int nccl_ask_event(struct CUevent_st *event);
enum status nccl_aborted(const struct comm_nccl *comm);

/* What a call on `link` has answered: waits where it is in progress. */
enum status nccl_settle(struct comm_nccl *comm, struct nccl_link *link, const char *what,
                        int result);

/* The stream `waits` goes on when `event`, recorded now where `recorded` is, has ended. */
enum status nccl_order_behind(struct comm_nccl *comm, struct CUstream_st *waits,
                              struct CUevent_st *event, struct CUstream_st *recorded);

enum status nccl_make_event(struct comm_nccl *comm, struct CUevent_st **event_out);

/* Whether all communicators are well and nobody has aborted. */
enum status nccl_check(struct comm_nccl *comm);

/* Whether the compute stream stood in a call when the wait that is under way last looked. Any thread. */
bool nccl_stands(const struct comm *base);

/* Of the device's waits: a device_watch_fn of the comm. */
enum status nccl_watch(void *context, enum status ended);

/* Blocks until the event has ended, of comm_connect() and comm_close(). */
enum status nccl_wait_event(struct comm_nccl *comm, struct CUevent_st *event,
                            const struct nccl_link *link);

/* The same for all that the communicator was given. */
enum status nccl_wait_link(struct comm_nccl *comm, struct nccl_link *link);

/* ---- comm_nccl_connect.c ---- */

enum status nccl_connect(struct comm *base, const struct cancel *cancel, int64_t deadline_ns);

/* ---- comm_nccl_lane.c ---- */

size_t nccl_landing_stride(const struct lane *lane);

/* Streams, events and landing buffers; and, in whatever state it is, all that it holds and the lane itself. */
enum status nccl_lane_make(struct comm_nccl *comm, struct nccl_lane *lane);
void nccl_lane_release(const struct comm_nccl *comm, struct nccl_lane *lane);

/* Both ends: sends, or receives, `bytes` at `memory` behind what is in the compute stream. */
enum status nccl_lane_move(struct nccl_lane *lane, void *memory, size_t bytes);

void *nccl_lane_landing(const struct lane *base, int32_t landing);
enum status nccl_lane_post_send(struct lane *base, int32_t landing, uint64_t tag, const void *data,
                                size_t bytes);
enum status nccl_lane_post_receive(struct lane *base, int32_t landing, uint64_t tag);
bool nccl_lane_sent(const struct lane *base);
enum status nccl_lane_arrived(const struct lane *base, int32_t landing, uint64_t tag);
enum status nccl_lane_wait_arrival(struct lane *base, int32_t landing, uint64_t tag,
                                   const struct cancel *cancel, int64_t deadline_ns);
enum status nccl_lane_wait_sent(struct lane *base, const struct cancel *cancel,
                                int64_t deadline_ns);
void nccl_lane_credit(struct lane *base, int32_t landing);

/* ---- comm_nccl_group.c ---- */

enum status nccl_all_reduce(struct group *base, const struct comm_piece *piece, enum comm_op op,
                            const struct cancel *cancel, int64_t deadline_ns);
enum status nccl_reduce_scatter(struct group *base, const struct comm_piece *pieces, int32_t count,
                                const struct cancel *cancel, int64_t deadline_ns);
enum status nccl_all_gather(struct group *base, const struct comm_piece *pieces, int32_t count,
                            const struct cancel *cancel, int64_t deadline_ns);

/* What a group has streams and events for; and all that it holds, in whatever state, and the group itself. */
enum status nccl_group_make(struct comm_nccl *comm, struct nccl_group *group);
void nccl_group_release(struct nccl_group *group);

enum status nccl_group_join(struct group *base, uint64_t calls);

/* ---- comm_nccl_flight.c ---- */

enum status nccl_flight_make(struct comm_nccl *comm, struct nccl_link *link);
void nccl_flight_release(struct nccl_flight *flight);

/* An operation of a group comes next in `stream`. */
enum status nccl_flight_begin(struct comm_nccl *comm, struct nccl_link *link,
                              struct CUstream_st *stream);

/* Whether the stream has come to an operation of the group that has not ended. */
bool nccl_flight_stands(struct nccl_link *link);

/* An operation has been put into `stream`: `what` of `count`. */
enum status nccl_flight_note(struct comm_nccl *comm, struct nccl_link *link, const char *what,
                             size_t count, struct CUstream_st *stream);

/* The oldest that has not ended, or NULL. */
const struct nccl_entry *nccl_flight_oldest(struct nccl_link *link);

/* The one that operation `number`, or what stands in its place, has ended with; NULL: it has ended. */
const struct nccl_entry *nccl_flight_find(struct nccl_link *link, uint64_t number);

/* Who this rank waits for, as words: of all communicators what is oldest; false where all has ended. */
bool nccl_flight_text(struct comm_nccl *comm, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_CUDA_COMM_NCCL_STATE_H */
