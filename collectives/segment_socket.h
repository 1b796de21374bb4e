/*
 * segment_socket -- the unix sockets that segment_exchange speaks over: one record a message, a
 * descriptor beside it. Nothing here blocks. Private to segment_exchange.
 */
#ifndef COLLECTIVES_SEGMENT_SOCKET_H
#define COLLECTIVES_SEGMENT_SOCKET_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "collectives/segment_offer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SEGMENT_SOCKET_PATH_BYTES 108 /* what the system takes, with the final zero */

/* Writes the path of `rank`'s socket; STATUS_ERR_REFUSED with both lengths where it is too long. */
enum status segment_socket_path(const char *directory, int32_t rank,
                                char path[SEGMENT_SOCKET_PATH_BYTES]);

/* Listens at `path`. A socket file that nobody serves any more is replaced; one that somebody
 * serves is STATUS_ERR_REFUSED. */
enum status segment_socket_listen(const char *path, int32_t backlog, int *fd_out);

/* STATUS_IN_PROGRESS where nobody listens at `path` yet. Another user's process there is
 * STATUS_ERR_REFUSED. */
enum status segment_socket_connect(const char *path, int *fd_out);

/* STATUS_IN_PROGRESS where nobody waits, or who waited was another user's process and has been
 * turned away. */
enum status segment_socket_accept(int listener, int *fd_out);

/* Sends the offer and the descriptor, as one record that a fresh socket has room for. */
enum status segment_socket_send(int fd, const struct segment_offer *offer, int segment_fd);

/* What a look at a socket has found. */
enum segment_arrival {
    SEGMENT_NOTHING, /* not yet */
    SEGMENT_OFFER,   /* an offer and a descriptor, which the caller owns now */
    SEGMENT_CLOSED,  /* the other end is gone */
    SEGMENT_ALIEN    /* something that is no offer; has been dropped */
};

enum segment_arrival segment_socket_receive(int fd, struct segment_offer *offer, int *segment_fd);

/* Closes and sets -1; nothing where it is -1. */
void segment_socket_close(int *fd);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_SEGMENT_SOCKET_H */
