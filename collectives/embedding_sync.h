/*
 * embedding_sync -- the tied word embedding of one pipeline, kept right by its owner.
 *
 * The first virtual stage owns the tied embedding: its main params and moments exist once. The
 * last virtual stage has a copy for the head. Each step the head's gradient travels to the owner
 * from the moment that the head's last F is done, while the pipeline still drains; it lands in a
 * buffer of its own (the owner adds it, so that pp = 1, with two buffers too, gives the same bits).
 * After the update the owner sends the weights back; the head's copy carries the update count, and
 * whoever reads it waits for the version that it needs. A DEALER pair over ipc, on a thread of its
 * own, never through the ROUTER. Gradients are floats; weights are in the model's number format, of
 * which only the size of an element is known here.
 *
 * What carries the bytes is one of two, the same at both ends; either gives the same bits:
 *   ZeroMQ         in frames of 1 MiB with at most 8 unacknowledged, each as soon as its bytes are there
 *   the data plane ZeroMQ carries READY and DONE, and in between the end that receives reads the
 *                  other's shared block, 1 MiB at a time
 *
 * Threads: one owner thread; the thread inside works alone on the buffers while they travel, so
 * the caller must not touch them then.
 */
#ifndef COLLECTIVES_EMBEDDING_SYNC_H
#define COLLECTIVES_EMBEDDING_SYNC_H

#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct comm;
struct embedding_sync;

enum embedding_role {
    EMBEDDING_OWNER,
    EMBEDDING_HEAD
};

struct embedding_sync_config {
    enum embedding_role role;
    const char *job_directory; /* borrows until open returns */
    const char *name;          /* of the pair: "tp0-dp0"; part of the socket's name */
    size_t elems;        /* of the embedding (this shard's and slice's); 0 is a slice too: only
                                  its numbers travel */
    size_t weight_bytes; /* of an element of the weights, 2 or 4; a gradient is of floats */
    /* owner: where the head's gradient lands. head: where updated weights land. Borrows until
     * close. NULL where elems is 0. */
    void *landing;
    /* Connected, with a lane or a group in common with `peer`; borrows until close. NULL: ZeroMQ
     * carries the bytes. */
    struct comm *comm;
    int32_t peer;         /* with comm: the rank at the other end */
    size_t shared_offset; /* with comm: where what this end sends lies in its shared block */
    /* Without comm: how many bytes of what goes out have come to where it lies, from its beginning; asked again and again,
     * on the thread inside, while a transfer waits for them. NULL: it is whole when it is handed over. */
    enum status (*come)(void *context, size_t *bytes_out);
    void *come_context;
    const struct cancel *cancel; /* borrows until close */
    int64_t deadline_ns;         /* for the two ends to find each other */
};

/* Starts the thread; the owner binds, the head connects. Blocks until both ends have met or
 * the deadline passes. Ends that differ in elems, weight_bytes or in what carries the bytes are
 * refused, with both values. */
enum status embedding_sync_open(const struct embedding_sync_config *config,
                                struct embedding_sync **sync_out);

/* Head: starts to send `gradient` (elems) for `step`; returns at once. `gradient` must stay as it
 * is, but for what is still to come to it (config.come), until embedding_sync_wait_version() or the next send_gradient has returned STATUS_OK, or the
 * sync is closed: it is read in place, without a copy. With comm it lies at shared_offset. */
enum status embedding_sync_send_gradient(struct embedding_sync *sync, int64_t step,
                                         const float *gradient);

/* Owner: blocks until the head's gradient of `step` lies in `landing`. The head may send the next
 * one only when the owner has used this one, which the STEP round between them tells it. */
enum status embedding_sync_wait_gradient(struct embedding_sync *sync, int64_t step,
                                         int64_t deadline_ns);

/* Owner: sends `weights` (elems) as `version` (the update count); returns at once. `weights` must
 * not change until the next wait_gradient has returned STATUS_OK, or the sync is closed. With comm
 * they lie at shared_offset. */
enum status embedding_sync_send_weights(struct embedding_sync *sync, int64_t version,
                                        const void *weights);

/* Head: blocks until its copy is `version` or later (0: what it was at the start). Returns at
 * once where it is. */
enum status embedding_sync_wait_version(struct embedding_sync *sync, int64_t version,
                                        int64_t deadline_ns);

/* Blocks until the other end has all that this one has sent, and this one knows it. */
enum status embedding_sync_wait_sent(struct embedding_sync *sync, int64_t deadline_ns);

/* When the last gradient (owner, head) or weights travelled, for the trace; 0 where none has. */
void embedding_sync_last_transfer(const struct embedding_sync *sync, int64_t *begin_ns,
                                  int64_t *end_ns);

/* Bytes that this end has sent and knows the other end to have, for accounting: exact after
 * embedding_sync_wait_sent(). */
uint64_t embedding_sync_sent_bytes(const struct embedding_sync *sync);

/* Ends the thread (waiting at most briefly for what is on its way); nulls the caller's pointer;
 * NULL is fine. */
void embedding_sync_close(struct embedding_sync **sync);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_EMBEDDING_SYNC_H */
