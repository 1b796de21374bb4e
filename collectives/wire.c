#include "collectives/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/check.h"
#include "base/clock.h"

#define PARTS_MOST       3 /* name, body, attachment */
#define RECONNECT_MS     50
#define WAITING_CONNECTS 4096
#define CONTEXT_SOCKETS  64
#define HEAD_MOST_BYTES  4096 /* a body before an attachment */

struct wire_hub {
    void *context;
    int32_t watches; /* made so far: each needs an address of its own */
};

struct wire {
    struct wire_config config; /* its name is not kept */
    void *socket;
    void *events; /* a PAIR that tells what becomes of the connection; NULL where not watched */
    bool lost;
    zmq_msg_t parts[PARTS_MOST]; /* of the letter that is lent */
    int32_t held;                /* how many of them */
};

static enum status fail(const char *what, const char *object)
{
    int code = zmq_errno();

    return status_fail(STATUS_ERR_IO, "control plane: %s %s: %s", what, object, zmq_strerror(code));
}

enum status wire_hub_open(struct wire_hub **hub_out)
{
    struct wire_hub *hub = calloc(1, sizeof(*hub));

    if (hub == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "control plane: %zu bytes", sizeof(*hub));
    }
    hub->context = zmq_ctx_new();
    if (hub->context == NULL || zmq_ctx_set(hub->context, ZMQ_MAX_SOCKETS, CONTEXT_SOCKETS) != 0) {
        enum status status = fail("cannot make", "a context");

        wire_hub_close(&hub);
        return status;
    }
    *hub_out = hub;
    return STATUS_OK;
}

void wire_hub_close(struct wire_hub **hub)
{
    if (*hub == NULL) {
        return;
    }
    while ((*hub)->context != NULL && zmq_ctx_term((*hub)->context) != 0 && zmq_errno() == EINTR) {
    }
    free(*hub);
    *hub = NULL;
}

static enum status set_int(struct wire *wire, int option, int value, const char *what)
{
    if (zmq_setsockopt(wire->socket, option, &value, sizeof(value)) != 0) {
        return fail("cannot set", what);
    }
    return STATUS_OK;
}

static enum status set_options(struct wire *wire)
{
    int64_t most_bytes = (int64_t)wire->config.most_bytes;

    if (zmq_setsockopt(wire->socket, ZMQ_MAXMSGSIZE, &most_bytes, sizeof(most_bytes)) != 0) {
        return fail("cannot set", "the message size");
    }
    TRY(set_int(wire, ZMQ_LINGER, 0, "linger"));
    TRY(set_int(wire, ZMQ_SNDHWM, wire->config.most_letters, "the send queue"));
    TRY(set_int(wire, ZMQ_RCVHWM, wire->config.most_letters, "the receive queue"));
    if (wire->config.kind == WIRE_ROUTER) {
        TRY(set_int(wire, ZMQ_ROUTER_MANDATORY, 1, "mandatory routing"));
        return set_int(wire, ZMQ_BACKLOG, WAITING_CONNECTS, "the backlog");
    }
    TRY(set_int(wire, ZMQ_RECONNECT_IVL, RECONNECT_MS, "the reconnect interval"));
    if (wire->config.name[0] != '\0' &&
        zmq_setsockopt(wire->socket, ZMQ_ROUTING_ID, wire->config.name,
                       strlen(wire->config.name)) != 0) {
        return fail("cannot set the name", wire->config.name);
    }
    return STATUS_OK;
}

static enum status watch(struct wire_hub *hub, struct wire *wire)
{
    char endpoint[WIRE_ENDPOINT_BYTES];

    (void)snprintf(endpoint, sizeof(endpoint), "inproc://watch-%d", (int)hub->watches++);
    if (zmq_socket_monitor(wire->socket, endpoint, ZMQ_EVENT_DISCONNECTED) != 0) {
        return fail("cannot watch", endpoint);
    }
    wire->events = zmq_socket(hub->context, ZMQ_PAIR);
    if (wire->events == NULL || zmq_connect(wire->events, endpoint) != 0) {
        return fail("cannot listen to", endpoint);
    }
    return STATUS_OK;
}

enum status wire_open(struct wire_hub *hub, const struct wire_config *config,
                      struct wire **wire_out)
{
    struct wire *wire = calloc(1, sizeof(*wire));
    enum status status = STATUS_OK;

    if (wire == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "control plane: %zu bytes", sizeof(*wire));
    }
    wire->config = *config;
    wire->socket = zmq_socket(hub->context, config->kind == WIRE_ROUTER ? ZMQ_ROUTER : ZMQ_DEALER);
    if (wire->socket == NULL) {
        status = fail("cannot make", "a socket");
        goto fail;
    }
    TRY_OR(fail, status, set_options(wire));
    if (config->watched) {
        TRY_OR(fail, status, watch(hub, wire));
    }
    wire->config.name = "";
    *wire_out = wire;
    return STATUS_OK;

fail:
    wire_close(&wire, 0);
    return status;
}

enum status wire_bind(struct wire *wire, const char *endpoint)
{
    return zmq_bind(wire->socket, endpoint) == 0 ? STATUS_OK : fail("cannot bind", endpoint);
}

enum status wire_connect(struct wire *wire, const char *endpoint)
{
    return zmq_connect(wire->socket, endpoint) == 0 ? STATUS_OK
                                                    : fail("cannot connect to", endpoint);
}

static void drop_letter(struct wire *wire)
{
    for (int32_t i = 0; i < wire->held; i++) {
        (void)zmq_msg_close(&wire->parts[i]);
    }
    wire->held = 0;
}

void wire_close(struct wire **wire, int32_t linger_ms)
{
    int linger = linger_ms;

    if (*wire == NULL) {
        return;
    }
    drop_letter(*wire);
    if ((*wire)->socket != NULL) {
        (void)zmq_socket_monitor((*wire)->socket, NULL, 0);
        (void)zmq_setsockopt((*wire)->socket, ZMQ_LINGER, &linger, sizeof(linger));
        (void)zmq_close((*wire)->socket);
    }
    if ((*wire)->events != NULL) {
        linger = 0;
        (void)zmq_setsockopt((*wire)->events, ZMQ_LINGER, &linger, sizeof(linger));
        (void)zmq_close((*wire)->events);
    }
    free(*wire);
    *wire = NULL;
}

/* What a send that did not work means. */
static enum status send_failure(const char *object)
{
    int code = zmq_errno();

    if (code == EAGAIN || code == EINTR) {
        return STATUS_IN_PROGRESS;
    }
    if (code == EHOSTUNREACH) {
        return status_note(STATUS_ERR_PEER, "control plane: nobody of that name is connected");
    }
    return fail("cannot send", object);
}

enum status wire_send(struct wire *wire, const struct wire_name *to, const void *body, size_t size)
{
    if (to != NULL && zmq_send(wire->socket, to->bytes, to->size, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
        return send_failure("a name");
    }
    if (zmq_send(wire->socket, body, size, ZMQ_DONTWAIT) < 0) {
        return send_failure("a message");
    }
    return STATUS_OK;
}

/* ZeroMQ calls this when it has no more use for an attachment, which is not ours to free. */
static void keep(void *data, void *hint)
{
    (void)data;
    (void)hint;
}

enum status wire_send_attached(struct wire *wire, const void *body, size_t size,
                               const void *attachment, size_t attachment_bytes)
{
    zmq_msg_t part;
    void *lent = NULL;

    ENSURE(size <= HEAD_MOST_BYTES, "a body of %zu bytes before an attachment", size);
    if (zmq_send(wire->socket, body, size, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
        return send_failure("a message");
    }
    /* ZeroMQ only reads it, but its interface asks for a pointer that is not const. */
    memcpy(&lent, &attachment, sizeof(lent));
    if (zmq_msg_init_data(&part, lent, attachment_bytes, keep, NULL) != 0) {
        return fail("cannot send", "an attachment");
    }
    /* The queue counts whole letters: after a first part that was taken the second one is. */
    if (zmq_msg_send(&part, wire->socket, 0) < 0) {
        enum status status = fail("cannot send", "an attachment");

        (void)zmq_msg_close(&part);
        return status;
    }
    return STATUS_OK;
}

/* Takes all parts of one letter; those beyond PARTS_MOST are dropped and counted. */
static enum status receive_parts(struct wire *wire, int32_t *parts_out)
{
    int32_t parts = 0;
    int more = 1;

    while (more != 0) {
        zmq_msg_t extra;
        zmq_msg_t *part = parts < PARTS_MOST ? &wire->parts[parts] : &extra;

        (void)zmq_msg_init(part);
        if (zmq_msg_recv(part, wire->socket, ZMQ_DONTWAIT) < 0) {
            int code = zmq_errno();

            (void)zmq_msg_close(part);
            if (code == EINTR && parts > 0) {
                continue;
            }
            return code == EAGAIN || code == EINTR ? STATUS_IN_PROGRESS
                                                   : fail("cannot receive", "a message");
        }
        more = zmq_msg_more(part);
        if (part == &extra) {
            (void)zmq_msg_close(part);
        } else {
            wire->held = parts + 1;
        }
        parts++;
    }
    *parts_out = parts;
    return STATUS_OK;
}

enum status wire_receive(struct wire *wire, struct wire_letter *letter)
{
    int32_t first = wire->config.kind == WIRE_ROUTER ? 1 : 0;
    int32_t parts = 0;

    memset(letter, 0, sizeof(*letter));
    drop_letter(wire);
    enum status status = receive_parts(wire, &parts);

    if (status != STATUS_OK) {
        return status;
    }
    letter->whole = parts == first + 1 || (parts == first + 2 && wire->config.attachments);
    if (first == 1) {
        size_t size = zmq_msg_size(&wire->parts[0]);

        letter->whole = letter->whole && size <= sizeof(letter->from.bytes);
        letter->from.size = letter->whole ? size : 0;
        memcpy(letter->from.bytes, zmq_msg_data(&wire->parts[0]), letter->from.size);
    }
    if (letter->whole) {
        letter->body = zmq_msg_data(&wire->parts[first]);
        letter->size = zmq_msg_size(&wire->parts[first]);
    }
    if (letter->whole && parts == first + 2) {
        letter->attachment = zmq_msg_data(&wire->parts[first + 1]);
        letter->attachment_bytes = zmq_msg_size(&wire->parts[first + 1]);
    }
    return STATUS_OK;
}

/* Each event is two parts, and only one kind of event was asked for. */
bool wire_lost(struct wire *wire)
{
    zmq_msg_t part;

    if (wire->events == NULL) {
        return false;
    }
    (void)zmq_msg_init(&part);
    while (zmq_msg_recv(&part, wire->events, ZMQ_DONTWAIT) >= 0) {
        wire->lost = true;
    }
    (void)zmq_msg_close(&part);
    return wire->lost;
}

enum status wire_poll(struct wire_item *items, int32_t count, int64_t timeout_ns)
{
    zmq_pollitem_t polled[2 * WIRE_ITEMS_MOST];
    int32_t owners[2 * WIRE_ITEMS_MOST];
    int used = 0;

    ENSURE(count <= WIRE_ITEMS_MOST, "%d items", (int)count);
    memset(polled, 0, sizeof(polled));
    for (int32_t i = 0; i < count; i++) {
        items[i].ready = false;
        owners[used] = i;
        polled[used].socket = items[i].wire != NULL ? items[i].wire->socket : NULL;
        polled[used].fd = items[i].fd;
        polled[used++].events = ZMQ_POLLIN;
        if (items[i].wire != NULL && items[i].wire->events != NULL) {
            owners[used] = i;
            polled[used].socket = items[i].wire->events;
            polled[used++].events = ZMQ_POLLIN;
        }
    }
    if (zmq_poll(polled, used, (long)((timeout_ns + CLOCK_MS - 1) / CLOCK_MS)) < 0 &&
        zmq_errno() != EINTR) {
        return fail("cannot wait", "for messages");
    }
    for (int i = 0; i < used; i++) {
        items[owners[i]].ready = items[owners[i]].ready || polled[i].revents != 0;
    }
    return STATUS_OK;
}
