#include "collectives/segment_exchange.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "collectives/segment_socket.h"

/* How soon a peer that does not listen yet is tried again. */
#define RETRY_NS (5 * CLOCK_MS)

/* Connections that have said nothing yet, beyond one for each peer. */
#define GUESTS_SPARE 4

/* Names of missing ranks in a message. */
#define MISSING_BYTES 256

struct exchange {
    const struct segment_exchange_config *config;
    struct segment_peer *peers; /* borrows */
    int32_t peer_count;
    int32_t missing;  /* peers not yet met */
    int *connections; /* one for each peer: the socket to a lower rank, else -1 */
    int *guests;      /* accepted, not yet known; -1 where free */
    int32_t guest_most;
    struct pollfd *polls;                 /* listener, guests, connections, in this order */
    int listener;                         /* -1 where this rank has no higher peer */
    char path[SEGMENT_SOCKET_PATH_BYTES]; /* of the listener */
};

static void exchange_release(struct exchange *exchange)
{
    if (exchange->listener >= 0) {
        (void)unlink(exchange->path);
    }
    segment_socket_close(&exchange->listener);
    for (int32_t i = 0; exchange->connections != NULL && i < exchange->peer_count; i++) {
        segment_socket_close(&exchange->connections[i]);
    }
    for (int32_t i = 0; exchange->guests != NULL && i < exchange->guest_most; i++) {
        segment_socket_close(&exchange->guests[i]);
    }
    free(exchange->connections);
    free(exchange->guests);
    free(exchange->polls);
}

static enum status exchange_init(struct exchange *exchange,
                                 const struct segment_exchange_config *config,
                                 struct segment_peer *peers, int32_t peer_count)
{
    size_t peer_room = (size_t)peer_count;
    size_t guest_room = peer_room + GUESTS_SPARE;
    bool listens = false;

    *exchange = (struct exchange){
        .config = config,
        .peers = peers,
        .peer_count = peer_count,
        .missing = peer_count,
        .connections = malloc(peer_room * sizeof(int)),
        .guests = malloc(guest_room * sizeof(int)),
        .guest_most = peer_count + GUESTS_SPARE,
        .polls = calloc(1 + guest_room + peer_room, sizeof(struct pollfd)),
        .listener = -1,
    };
    if (exchange->connections == NULL || exchange->guests == NULL || exchange->polls == NULL) {
        (void)status_fail(STATUS_ERR_NO_MEMORY, "meeting %" PRId32 " peers", peer_count);
        free(exchange->connections);
        free(exchange->guests);
        exchange->connections = NULL;
        exchange->guests = NULL;
        return STATUS_ERR_NO_MEMORY;
    }
    for (int32_t i = 0; i < peer_count; i++) {
        exchange->connections[i] = -1;
        listens = listens || peers[i].rank > config->rank;
    }
    for (int32_t i = 0; i < exchange->guest_most; i++) {
        exchange->guests[i] = -1;
    }
    TRY(segment_socket_path(config->directory, config->rank, exchange->path));
    return listens
               ? segment_socket_listen(exchange->path, exchange->guest_most, &exchange->listener)
               : STATUS_OK;
}

/* "1, 3 and 5 more" */
static void list_missing(const struct exchange *exchange, char text[MISSING_BYTES])
{
    size_t at = 0;
    int32_t named = 0;

    text[0] = '\0';
    for (int32_t i = 0; i < exchange->peer_count && at + 48 < MISSING_BYTES; i++) {
        if (exchange->peers[i].fd < 0) {
            at += (size_t)snprintf(text + at, MISSING_BYTES - at, "%s%" PRId32,
                                   named > 0 ? ", " : "", exchange->peers[i].rank);
            named++;
        }
    }
    if (named < exchange->missing) {
        (void)snprintf(text + at, MISSING_BYTES - at, " and %" PRId32 " more",
                       exchange->missing - named);
    }
}

static enum status check(const struct exchange *exchange, const struct cancel *cancel,
                         int64_t deadline_ns)
{
    enum status status = cancel_check(cancel, deadline_ns);
    char missing[MISSING_BYTES];

    if (__atomic_load_n(exchange->config->aborted, __ATOMIC_ACQUIRE) != 0) {
        status = STATUS_ERR_CANCELLED;
    }
    if (status == STATUS_OK) {
        return STATUS_OK;
    }
    list_missing(exchange, missing);
    if (status == STATUS_ERR_TIMEOUT) {
        return status_fail(status,
                           "rank %" PRId32 " waits for shared memory of its peers in %s: nothing "
                           "has come from rank %s before the deadline",
                           exchange->config->rank, exchange->config->directory, missing);
    }
    return status_note(status, "rank %" PRId32 " was waiting for shared memory of rank %s",
                       exchange->config->rank, missing);
}

/* Takes what a peer has sent; both ends have told each other by now, so both can compare. */
static enum status meet(struct exchange *exchange, struct segment_peer *peer,
                        const struct segment_offer *offer, int segment_fd)
{
    peer->theirs = *offer;
    peer->fd = segment_fd;
    exchange->missing--;
    return segment_offer_agree(&peer->mine, &peer->theirs);
}

static enum status connect_to_lower(struct exchange *exchange)
{
    for (int32_t i = 0; i < exchange->peer_count; i++) {
        struct segment_peer *peer = &exchange->peers[i];
        char path[SEGMENT_SOCKET_PATH_BYTES];
        enum status status;

        if (peer->rank > exchange->config->rank || peer->fd >= 0 || exchange->connections[i] >= 0) {
            continue;
        }
        TRY(segment_socket_path(exchange->config->directory, peer->rank, path));
        status = segment_socket_connect(path, &exchange->connections[i]);
        if (status == STATUS_IN_PROGRESS) {
            continue;
        }
        TRY(status);
        TRY(segment_socket_send(exchange->connections[i], &peer->mine,
                                exchange->config->segment_fd));
    }
    return STATUS_OK;
}

static enum status serve_connection(struct exchange *exchange, int32_t index)
{
    struct segment_peer *peer = &exchange->peers[index];
    struct segment_offer offer;
    int segment_fd = -1;
    enum status status;

    switch (segment_socket_receive(exchange->connections[index], &offer, &segment_fd)) {
    case SEGMENT_NOTHING:
        return STATUS_OK;
    case SEGMENT_CLOSED:
        return status_fail(STATUS_ERR_PEER,
                           "rank %" PRId32 " has gone before rank %" PRId32
                           " had its shared memory",
                           peer->rank, exchange->config->rank);
    case SEGMENT_ALIEN:
        return status_fail(STATUS_ERR_FORMAT,
                           "what serves the socket of rank %" PRId32
                           " does not speak the exchange of shared memory",
                           peer->rank);
    case SEGMENT_OFFER:
        break;
    }
    status = meet(exchange, peer, &offer, segment_fd);
    segment_socket_close(&exchange->connections[index]);
    return status;
}

static struct segment_peer *find_peer(const struct exchange *exchange, int32_t rank)
{
    for (int32_t i = 0; i < exchange->peer_count; i++) {
        if (exchange->peers[i].rank == rank) {
            return &exchange->peers[i];
        }
    }
    return NULL;
}

/* A rank with which this one has neither lane nor group is told so, and the two disagree at both ends. */
static enum status answer_stranger(const struct exchange *exchange, int guest,
                                   const struct segment_offer *offer, int segment_fd)
{
    struct segment_offer mine;
    enum status status;

    segment_offer_init(&mine, exchange->peers[0].mine.world, exchange->config->rank, offer->from,
                       (size_t)exchange->peers[0].mine.segment_bytes);
    status = segment_socket_send(guest, &mine, exchange->config->segment_fd);
    if (status >= 0) {
        status = segment_offer_agree(&mine, offer);
    }
    if (status >= 0) {
        status = status_fail(STATUS_ERR_REFUSED,
                             "rank %" PRId32 " offers shared memory to rank %" PRId32
                             ", and neither has a lane or a group with the other",
                             offer->from, exchange->config->rank);
    }
    (void)close(segment_fd);
    return status;
}

static enum status serve_guest(struct exchange *exchange, int *guest)
{
    struct segment_offer offer;
    struct segment_peer *peer;
    int segment_fd = -1;
    enum status status;

    switch (segment_socket_receive(*guest, &offer, &segment_fd)) {
    case SEGMENT_NOTHING:
        return STATUS_OK;
    case SEGMENT_ALIEN:
        log_warn("something that is no rank has spoken at %s; dropped", exchange->path);
        segment_socket_close(guest);
        return STATUS_OK;
    case SEGMENT_CLOSED:
        segment_socket_close(guest);
        return STATUS_OK;
    case SEGMENT_OFFER:
        break;
    }
    peer = find_peer(exchange, offer.from);
    if (peer == NULL) {
        status = answer_stranger(exchange, *guest, &offer, segment_fd);
    } else if (peer->fd >= 0 || peer->rank < exchange->config->rank) {
        (void)close(segment_fd);
        status = status_fail(STATUS_ERR_REFUSED,
                             "rank %" PRId32 " offers shared memory to rank %" PRId32
                             " twice: two processes have the same rank",
                             offer.from, exchange->config->rank);
    } else {
        status = segment_socket_send(*guest, &peer->mine, exchange->config->segment_fd);
        if (status < 0) {
            (void)close(segment_fd);
        } else {
            status = meet(exchange, peer, &offer, segment_fd);
        }
    }
    segment_socket_close(guest);
    return status;
}

static enum status accept_guests(struct exchange *exchange)
{
    for (int32_t i = 0; i < exchange->guest_most; i++) {
        if (exchange->guests[i] < 0) {
            enum status status = segment_socket_accept(exchange->listener, &exchange->guests[i]);

            if (status != STATUS_OK) {
                return status < 0 ? status : STATUS_OK;
            }
        }
    }
    return STATUS_OK;
}

static enum status serve_guests(struct exchange *exchange)
{
    for (int32_t i = 0; i < exchange->guest_most; i++) {
        if (exchange->guests[i] < 0) {
            continue;
        }
        TRY(serve_guest(exchange, &exchange->guests[i]));
    }
    return STATUS_OK;
}

static enum status serve_connections(struct exchange *exchange)
{
    for (int32_t i = 0; i < exchange->peer_count; i++) {
        if (exchange->connections[i] < 0) {
            continue;
        }
        TRY(serve_connection(exchange, i));
    }
    return STATUS_OK;
}

/* One look at everything; blocks on nothing. */
static enum status serve(struct exchange *exchange)
{
    if (exchange->listener >= 0) {
        TRY(accept_guests(exchange));
        TRY(serve_guests(exchange));
    }
    TRY(connect_to_lower(exchange));
    return serve_connections(exchange);
}

/* Sleeps until a socket has something, a peer is to be tried again, or CANCEL_POLL_NS is over. */
static void rest(struct exchange *exchange)
{
    nfds_t count = 0;
    bool all_connected = true;
    bool room = false;

    for (int32_t i = 0; i < exchange->guest_most; i++) {
        room = room || exchange->guests[i] < 0;
        exchange->polls[count++] = (struct pollfd){.fd = exchange->guests[i], .events = POLLIN};
    }
    /* Where no guest can be taken in, a knock at the door must not end the rest at once. */
    exchange->polls[count++] =
        (struct pollfd){.fd = room ? exchange->listener : -1, .events = POLLIN};
    for (int32_t i = 0; i < exchange->peer_count; i++) {
        const struct segment_peer *peer = &exchange->peers[i];

        exchange->polls[count++] =
            (struct pollfd){.fd = exchange->connections[i], .events = POLLIN};
        all_connected = all_connected && (peer->fd >= 0 || exchange->connections[i] >= 0 ||
                                          peer->rank > exchange->config->rank);
    }
    /* Interrupted and timed out alike: the caller looks at everything again. */
    (void)poll(exchange->polls, count,
               (int)((all_connected ? CANCEL_POLL_NS : RETRY_NS) / CLOCK_MS));
}

enum status segment_exchange(const struct segment_exchange_config *config,
                             struct segment_peer *peers, int32_t peer_count,
                             const struct cancel *cancel, int64_t deadline_ns)
{
    struct exchange exchange;
    enum status status;

    for (int32_t i = 0; i < peer_count; i++) {
        peers[i].fd = -1;
    }
    if (peer_count == 0) {
        return STATUS_OK;
    }
    status = exchange_init(&exchange, config, peers, peer_count);
    if (status >= 0) {
        status = serve(&exchange);
    }
    while (status >= 0 && exchange.missing > 0) {
        status = check(&exchange, cancel, deadline_ns);
        if (status >= 0) {
            rest(&exchange);
            status = serve(&exchange);
        }
    }
    exchange_release(&exchange);
    return status;
}
