/*
 * embedding_sync_state -- what the two threads of an embedding group's end share: the owner's, in
 * embedding_sync.c, which asks and waits, and the one inside, in embedding_sync_thread.c, which
 * hears letters and moves the bytes: embedding_sync_frames.c over ZeroMQ, embedding_sync_read.c over
 * the data plane.
 *
 * Private to them. No other lock is taken while the mutex is held.
 */
#ifndef COLLECTIVES_EMBEDDING_SYNC_STATE_H
#define COLLECTIVES_EMBEDDING_SYNC_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/embedding_sync.h"
#include "collectives/message.h"
#include "collectives/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBEDDING_FRAME_BYTES ((size_t)1 << 20) /* also of a piece that is read at once */

/* What every transfer of one direction is like. */
struct transfer_size {
    size_t bytes;
    size_t frames; /* 1, an empty one, where there are no bytes */
};

/* One direction of traffic. */
struct transfer {
    int64_t number; /* of the step or version that travels, or travelled last; -1 none */
    bool under_way;
    size_t sent;  /* frames; of a transfer that comes in: arrived. Outgoing over the data plane: 1
                     once READY is said */
    size_t acked; /* frames; outgoing only */
    int64_t begin_ns;
};

struct embedding_sync {
    struct embedding_sync_config config; /* its two texts are not kept */
    char endpoint[WIRE_ENDPOINT_BYTES];
    char name[WIRE_PATH_MOST + 1]; /* of the pair, for messages */
    struct transfer_size out_size;
    struct transfer_size in_size;
    int wake_fd;
    bool started;
    pthread_t thread;

    pthread_mutex_t mutex; /* protects what follows, down to the thread's own */
    pthread_cond_t changed;
    bool met;
    bool closing;
    enum status failure; /* STATUS_OK, or what the thread ended with */
    struct status_record record;
    const unsigned char *data; /* that goes out; borrows from the caller */
    struct transfer out;
    struct transfer in;
    bool unread; /* owner: the gradient that lies in landing was not waited for */
    int64_t last_begin_ns;
    int64_t last_end_ns;
    uint64_t sent_bytes; /* of transfers that ended */

    /* the thread's own */
    size_t come_bytes;  /* of the transfer that goes out, what has come */
    bool starved;       /* the next frame's bytes have not */
    size_t peer_offset; /* where the other end's data lies in its shared block */
    struct wire_hub *hub;
    struct wire *wire;
    struct message_pack *pack;
    struct message_view *view;
    int64_t farewell_ns; /* when a close was seen first; 0 before */
};

/* "gradient" or "weights", as the end's role has it. */
const char *embedding_sync_outgoing(const struct embedding_sync *sync);
const char *embedding_sync_incoming(const struct embedding_sync *sync);

/* Unlocks and tells the other thread. */
void embedding_sync_unlock(struct embedding_sync *sync);

/* The body of the thread inside; `argument` is the embedding_sync. */
void *embedding_sync_run(void *argument);

/* What follows is for the thread inside. */

/* Of frame `frame` of such a transfer. */
size_t embedding_sync_frame_bytes(const struct transfer_size *size, size_t frame);

/* Starts a letter; the caller adds its fields. */
void embedding_sync_begin_letter(struct embedding_sync *sync, const char *kind);

/* Sends the letter, with `data_bytes` at `data` attached where they are more than 0.
 * STATUS_IN_PROGRESS where the queue is full. */
enum status embedding_sync_send_letter(struct embedding_sync *sync, const void *data,
                                       size_t data_bytes);

/* The same for a letter that says what has arrived, which always finds room. */
enum status embedding_sync_confirm(struct embedding_sync *sync);

/* With the mutex held: whether a transfer `number` may begin to come in; begins it. */
bool embedding_sync_begin_incoming(struct embedding_sync *sync, int64_t number);

/* With the mutex held: the transfer has ended. */
void embedding_sync_end_outgoing(struct embedding_sync *sync);
void embedding_sync_end_incoming(struct embedding_sync *sync);

/* Sends as many frames as the window admits. */
enum status embedding_sync_send_frames(struct embedding_sync *sync);

/* The letter in the view is a frame; its acknowledgement. */
enum status embedding_sync_hear_frame(struct embedding_sync *sync,
                                      const struct wire_letter *letter);
enum status embedding_sync_hear_ack(struct embedding_sync *sync);

/* Says READY where something is to be read. */
enum status embedding_sync_send_ready(struct embedding_sync *sync);

/* The letter in the view is READY; DONE. */
enum status embedding_sync_hear_ready(struct embedding_sync *sync);
enum status embedding_sync_hear_done(struct embedding_sync *sync);

/* Whether there is something to read now. */
bool embedding_sync_reads(struct embedding_sync *sync);

/* Reads the next piece; after the last one says DONE. */
enum status embedding_sync_read_piece(struct embedding_sync *sync);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_EMBEDDING_SYNC_STATE_H */
