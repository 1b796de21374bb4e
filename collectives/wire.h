/*
 * wire -- the one door to ZeroMQ: sockets that carry letters of one or two parts.
 *
 * A hub is a ZeroMQ context with its own input/output thread; a wire is one socket of it. Two kinds
 * are needed: a ROUTER, which knows its peers by name and talks to each, and a DEALER, which has
 * one peer. A letter has a body (a message) and, where the wire allows it, an attachment: raw bytes
 * that go out without a copy. A wire that is watched tells when its connection was there and is
 * gone, which between processes of one host is the first sign of a death.
 *
 * Every wire has a bound on what it accepts and queues, and nothing here waits but wire_poll() and
 * wire_hub_close(). A name that is taken stays with the peer that has it: a second connection of
 * the same name is not heard, so that nobody can take a rank's place.
 *
 * Threads: one owner thread for a hub and all its wires. The thread inside inherits the owner's
 * blocked signals. A hub does not survive fork().
 */
#ifndef COLLECTIVES_WIRE_H
#define COLLECTIVES_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WIRE_NAME_BYTES     64
#define WIRE_ENDPOINT_BYTES 128
#define WIRE_PATH_MOST      107 /* bytes of a unix socket's path */

struct wire_hub;
struct wire;

enum status wire_hub_open(struct wire_hub **hub_out);

/* All its wires must be closed. Waits until what they still had to say is said, at most for the
 * longest linger. Nulls the caller's pointer; NULL is fine. */
void wire_hub_close(struct wire_hub **hub);

enum wire_kind {
    WIRE_ROUTER,
    WIRE_DEALER
};

struct wire_config {
    enum wire_kind kind;
    const char *name;     /* DEALER: by which a ROUTER knows it, "" where no ROUTER is there */
    size_t most_bytes;    /* of one part; a peer that sends more is disconnected */
    int32_t most_letters; /* that wait in each direction for each peer */
    bool attachments;     /* letters may have a second part */
    bool watched;         /* wire_lost() is wanted */
};

/* STATUS_ERR_IO with ZeroMQ's reason. */
enum status wire_open(struct wire_hub *hub, const struct wire_config *config,
                      struct wire **wire_out);

/* "ipc://PATH" or "inproc://NAME". A bind replaces a socket file that lies there, so the caller
 * must own the place (job_directory.h). A connect returns at once and goes on in the background. */
enum status wire_bind(struct wire *wire, const char *endpoint);
enum status wire_connect(struct wire *wire, const char *endpoint);

/* Gives up the wire; what it still has to say is said for at most `linger_ms`, in
 * wire_hub_close(). Nulls the caller's pointer; NULL is fine. */
void wire_close(struct wire **wire, int32_t linger_ms);

struct wire_name {
    unsigned char bytes[WIRE_NAME_BYTES]; /* not a C string */
    size_t size;                          /* 0: none */
};

/* Sends a copy of `size` bytes; `to` names the peer of a ROUTER and is NULL for a DEALER. Does not
 * block: STATUS_IN_PROGRESS where the queue is full and nothing was sent, STATUS_ERR_PEER (noted,
 * not logged) where nobody of that name is connected. */
enum status wire_send(struct wire *wire, const struct wire_name *to, const void *body, size_t size);

/* A DEALER sends `body` and borrows `attachment` until the peer has acknowledged it in its own
 * words or the hub is closed. Else as wire_send(). */
enum status wire_send_attached(struct wire *wire, const void *body, size_t size,
                               const void *attachment, size_t attachment_bytes);

/* Lent by wire_receive() until the next receive or close of the wire. */
struct wire_letter {
    struct wire_name from; /* ROUTER only */
    const void *body;
    size_t size;
    const void *attachment; /* NULL where none */
    size_t attachment_bytes;
    bool whole; /* false: more or fewer parts than the wire allows; a stranger's */
};

/* Takes the next letter; STATUS_IN_PROGRESS where none is there. Does not block. */
enum status wire_receive(struct wire *wire, struct wire_letter *letter);

/* Whether a connection of a watched wire was there and has gone since wire_open(). Letters that
 * came before that are still to be received. */
bool wire_lost(struct wire *wire);

/* What wire_poll() waits for: letters or events of `wire`, or input at `fd` where wire is NULL. */
struct wire_item {
    struct wire *wire;
    int fd;
    bool ready; /* set by wire_poll() */
};

#define WIRE_ITEMS_MOST 6

/* Waits until one item is ready or `timeout_ns` have gone (rounded up to milliseconds; 0 asks and
 * does not wait); at most WIRE_ITEMS_MOST items. */
enum status wire_poll(struct wire_item *items, int32_t count, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_WIRE_H */
