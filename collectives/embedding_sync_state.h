/*
 * embedding_sync_state -- what the two threads of an embedding group's end share: the owner's, in
 * embedding_sync.c, which asks and waits, and the one inside, in embedding_sync_thread.c, which
 * moves frames.
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

#define EMBEDDING_FRAME_BYTES ((size_t)1 << 20)

/* One direction of traffic. */
struct transfer {
    int64_t number; /* of the step or version that travels, or travelled last; -1 none */
    bool under_way;
    size_t sent;  /* frames; of a transfer that comes in: arrived */
    size_t acked; /* frames; outgoing only */
    int64_t begin_ns;
};

struct embedding_sync {
    struct embedding_sync_config config; /* its two texts are not kept */
    char endpoint[WIRE_ENDPOINT_BYTES];
    char name[WIRE_PATH_MOST + 1]; /* of the pair, for messages */
    size_t bytes;                  /* of one transfer */
    size_t frames;
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

    /* the thread's own */
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

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_EMBEDDING_SYNC_STATE_H */
