#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "collectives/embedding_sync_state.h"

#define WORDS_VERSION 1
#define WINDOW_FRAMES 8
#define LETTERS_MOST  64                 /* a window, its acknowledgements, and room */
#define FAREWELL_NS   (2 * CLOCK_SECOND) /* of a close, for what is on its way */
#define FAREWELL_MS   500                /* for the last acknowledgements to leave */

static size_t frame_bytes(const struct embedding_sync *sync, size_t frame)
{
    size_t left = sync->bytes - frame * EMBEDDING_FRAME_BYTES;

    return left < EMBEDDING_FRAME_BYTES ? left : EMBEDDING_FRAME_BYTES;
}

static void begin(struct embedding_sync *sync, const char *kind)
{
    message_pack_begin(sync->pack);
    message_put_int(sync->pack, "version", WORDS_VERSION);
    message_put_text(sync->pack, "kind", kind);
}

static enum status send_words(struct embedding_sync *sync, const void *data, size_t data_bytes)
{
    const void *bytes = NULL;
    size_t size = 0;

    TRY(message_pack_end(sync->pack, &bytes, &size));
    return data != NULL ? wire_send_attached(sync->wire, bytes, size, data, data_bytes)
                        : wire_send(sync->wire, NULL, bytes, size);
}

static enum status say_hello(struct embedding_sync *sync)
{
    begin(sync, "hello");
    message_put_uint(sync->pack, "elems", sync->config.elems);
    message_put_text(sync->pack, "sends", embedding_sync_outgoing(sync));
    return send_words(sync, NULL, 0);
}

/* Sends as many frames as the window admits. */
static enum status send_frames(struct embedding_sync *sync)
{
    for (;;) {
        (void)pthread_mutex_lock(&sync->mutex);
        size_t frame = sync->out.sent;
        int64_t number = sync->out.number;
        const unsigned char *data = sync->data;
        bool may_send = sync->met && sync->out.under_way && frame < sync->frames &&
                        frame - sync->out.acked < WINDOW_FRAMES;

        embedding_sync_unlock(sync);
        if (!may_send) {
            return STATUS_OK;
        }
        begin(sync, embedding_sync_outgoing(sync));
        message_put_int(sync->pack, "number", number);
        message_put_uint(sync->pack, "frame", frame);
        enum status status =
            send_words(sync, data + frame * EMBEDDING_FRAME_BYTES, frame_bytes(sync, frame));

        if (status != STATUS_OK) {
            return status < 0 ? status : STATUS_OK;
        }
        (void)pthread_mutex_lock(&sync->mutex);
        sync->out.sent = frame + 1;
        embedding_sync_unlock(sync);
    }
}

static void end_transfer(struct embedding_sync *sync, struct transfer *transfer)
{
    transfer->under_way = false;
    sync->last_begin_ns = transfer->begin_ns;
    sync->last_end_ns = clock_now_ns();
}

static enum status hear_hello(struct embedding_sync *sync)
{
    char sends[16];
    uint64_t elems = 0;

    TRY(message_get_uint(sync->view, "elems", &elems));
    TRY(message_get_text(sync->view, "sends", sends, sizeof(sends)));
    bool was_met = sync->met;

    if (sync->config.role == EMBEDDING_OWNER && !was_met) {
        TRY(say_hello(sync));
    }
    if (strcmp(sends, embedding_sync_incoming(sync)) != 0) {
        return status_fail(STATUS_ERR_REFUSED, "embedding group %s: both ends send %s", sync->name,
                           sends);
    }
    if (elems != sync->config.elems) {
        return status_fail(STATUS_ERR_REFUSED,
                           "embedding group %s: this end has %zu elements, the other %" PRIu64,
                           sync->name, sync->config.elems, elems);
    }
    (void)pthread_mutex_lock(&sync->mutex);
    sync->met = true;
    embedding_sync_unlock(sync);
    return STATUS_OK;
}

static enum status hear_ack(struct embedding_sync *sync)
{
    int64_t number = 0;
    uint64_t frame = 0;

    TRY(message_get_int(sync->view, "number", 0, INT64_MAX, &number));
    TRY(message_get_uint(sync->view, "frame", &frame));
    (void)pthread_mutex_lock(&sync->mutex);
    bool good = sync->out.under_way && number == sync->out.number && frame == sync->out.acked &&
                frame < sync->out.sent;

    if (good && ++sync->out.acked == sync->frames) {
        end_transfer(sync, &sync->out);
    }
    embedding_sync_unlock(sync);
    return good ? STATUS_OK
                : status_note(STATUS_ERR_FORMAT,
                              "frame %" PRIu64 " of %s %" PRId64 " is acknowledged, not sent",
                              frame, embedding_sync_outgoing(sync), number);
}

/* Whether frame `frame` of `number` is the one to come; starts a transfer with its first. */
static bool expect_frame(struct embedding_sync *sync, int64_t number, uint64_t frame)
{
    struct transfer *in = &sync->in;

    if (!in->under_way) {
        if (frame != 0 || number <= in->number || sync->unread) {
            return false;
        }
        *in = (struct transfer){.number = number, .under_way = true, .begin_ns = clock_now_ns()};
    }
    return number == in->number && frame == in->sent;
}

static enum status hear_frame(struct embedding_sync *sync, const struct wire_letter *letter)
{
    int64_t number = 0;
    uint64_t frame = 0;

    TRY(message_get_int(sync->view, "number", 0, INT64_MAX, &number));
    TRY(message_get_uint(sync->view, "frame", &frame));
    (void)pthread_mutex_lock(&sync->mutex);
    int64_t before = sync->in.number;
    bool good = sync->met && frame < sync->frames && expect_frame(sync, number, frame) &&
                letter->attachment_bytes == frame_bytes(sync, frame);

    embedding_sync_unlock(sync);
    if (!good) {
        return status_note(STATUS_ERR_FORMAT,
                           "frame %" PRIu64 " (%zu bytes) of %s %" PRId64
                           " does not follow what came before (%s %" PRId64 ")",
                           frame, letter->attachment_bytes, embedding_sync_incoming(sync), number,
                           embedding_sync_incoming(sync), before);
    }
    memcpy((unsigned char *)sync->config.landing + frame * EMBEDDING_FRAME_BYTES,
           letter->attachment, letter->attachment_bytes);
    begin(sync, "ack");
    message_put_int(sync->pack, "number", number);
    message_put_uint(sync->pack, "frame", frame);
    enum status status = send_words(sync, NULL, 0);

    (void)pthread_mutex_lock(&sync->mutex);
    if (++sync->in.sent == sync->frames) {
        end_transfer(sync, &sync->in);
        sync->unread = sync->config.role == EMBEDDING_OWNER;
    }
    embedding_sync_unlock(sync);
    return status == STATUS_IN_PROGRESS
               ? status_note(STATUS_ERR_PEER, "the other end does not take acknowledgements")
               : status;
}

static enum status hear_letter(struct embedding_sync *sync, const struct wire_letter *letter)
{
    char kind[16];
    int64_t version = 0;

    if (!letter->whole) {
        return status_note(STATUS_ERR_FORMAT, "a letter of a wrong number of parts");
    }
    TRY(message_view_open(sync->view, letter->body, letter->size, "the other end"));
    TRY(message_get_int(sync->view, "version", WORDS_VERSION, WORDS_VERSION, &version));
    TRY(message_get_text(sync->view, "kind", kind, sizeof(kind)));
    if (strcmp(kind, "hello") == 0) {
        return hear_hello(sync);
    }
    if (strcmp(kind, "ack") == 0) {
        return hear_ack(sync);
    }
    if (strcmp(kind, embedding_sync_incoming(sync)) == 0) {
        return hear_frame(sync, letter);
    }
    return status_note(STATUS_ERR_FORMAT, "unknown kind '%s'", kind);
}

static enum status hear_all(struct embedding_sync *sync)
{
    for (;;) {
        struct wire_letter letter;
        enum status status = wire_receive(sync->wire, &letter);

        if (status != STATUS_OK) {
            return status < 0 ? status : STATUS_OK;
        }
        status = hear_letter(sync, &letter);
        if (status == STATUS_ERR_REFUSED) {
            return status; /* was told where it was found */
        }
        if (status < 0) {
            return status_fail(status, "embedding group %s: %s", sync->name,
                               status_last()->message);
        }
    }
}

static enum status open_wires(struct embedding_sync *sync)
{
    const struct wire_config wire = {.kind = WIRE_DEALER,
                                     .name = "",
                                     .most_bytes = EMBEDDING_FRAME_BYTES,
                                     .most_letters = LETTERS_MOST,
                                     .attachments = true};

    TRY(message_pack_create(&sync->pack));
    TRY(message_view_create(&sync->view));
    TRY(wire_hub_open(&sync->hub));
    TRY(wire_open(sync->hub, &wire, &sync->wire));
    return sync->config.role == EMBEDDING_OWNER ? wire_bind(sync->wire, sync->endpoint)
                                                : wire_connect(sync->wire, sync->endpoint);
}

static bool may_end(struct embedding_sync *sync)
{
    int64_t now_ns = clock_now_ns();

    (void)pthread_mutex_lock(&sync->mutex);
    bool closing = sync->closing;
    bool busy = sync->met && sync->out.under_way;

    embedding_sync_unlock(sync);
    if (closing && sync->farewell_ns == 0) {
        sync->farewell_ns = now_ns;
    }
    return closing && (!busy || cancel_requested(sync->config.cancel) ||
                       now_ns - sync->farewell_ns > FAREWELL_NS);
}

static enum status turn(struct embedding_sync *sync)
{
    struct wire_item items[2] = {{.wire = sync->wire}, {.fd = sync->wake_fd}};
    uint64_t wakes = 0;

    TRY(wire_poll(items, 2, CANCEL_POLL_NS));
    ssize_t emptied = items[1].ready ? read(sync->wake_fd, &wakes, sizeof(wakes)) : 0;

    (void)emptied;
    TRY(hear_all(sync));
    return send_frames(sync);
}

void *embedding_sync_run(void *argument)
{
    struct embedding_sync *sync = argument;
    enum status status = open_wires(sync);

    if (status == STATUS_OK && sync->config.role == EMBEDDING_HEAD) {
        status = say_hello(sync);
    }
    while (status >= 0 && !may_end(sync)) {
        status = turn(sync);
    }
    (void)pthread_mutex_lock(&sync->mutex);
    sync->failure = status < 0 ? status : STATUS_OK;
    if (status < 0) {
        sync->record = *status_last();
    }
    embedding_sync_unlock(sync);
    wire_close(&sync->wire, cancel_requested(sync->config.cancel) ? 0 : FAREWELL_MS);
    wire_hub_close(&sync->hub);
    message_view_destroy(&sync->view);
    message_pack_destroy(&sync->pack);
    return NULL;
}
