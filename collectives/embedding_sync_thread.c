#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "collectives/embedding_sync_state.h"

#define WORDS_VERSION 2
#define LETTERS_MOST  64                 /* a window, its acknowledgements, and room */
#define FAREWELL_NS   (2 * CLOCK_SECOND) /* of a close, for what is on its way */
#define FAREWELL_MS   500                /* for the last acknowledgements to leave */
#define STARVED_NS    ((int64_t)100000)  /* between two questions for bytes that have not come */

size_t embedding_sync_frame_bytes(const struct transfer_size *size, size_t frame)
{
    size_t left = size->bytes - frame * EMBEDDING_FRAME_BYTES;

    return left < EMBEDDING_FRAME_BYTES ? left : EMBEDDING_FRAME_BYTES;
}

void embedding_sync_begin_letter(struct embedding_sync *sync, const char *kind)
{
    message_pack_begin(sync->pack);
    message_put_int(sync->pack, "version", WORDS_VERSION);
    message_put_text(sync->pack, "kind", kind);
}

enum status embedding_sync_send_letter(struct embedding_sync *sync, const void *data,
                                       size_t data_bytes)
{
    const void *bytes = NULL;
    size_t size = 0;

    TRY(message_pack_end(sync->pack, &bytes, &size));
    return data_bytes > 0 ? wire_send_attached(sync->wire, bytes, size, data, data_bytes)
                          : wire_send(sync->wire, NULL, bytes, size);
}

enum status embedding_sync_confirm(struct embedding_sync *sync)
{
    enum status status = embedding_sync_send_letter(sync, NULL, 0);

    return status == STATUS_IN_PROGRESS
               ? status_note(STATUS_ERR_PEER, "the other end does not take acknowledgements")
               : status;
}

bool embedding_sync_begin_incoming(struct embedding_sync *sync, int64_t number)
{
    if (sync->in.under_way || number <= sync->in.number || sync->unread) {
        return false;
    }
    sync->in = (struct transfer){.number = number, .under_way = true, .begin_ns = clock_now_ns()};
    return true;
}

static void end_transfer(struct embedding_sync *sync, struct transfer *transfer)
{
    transfer->under_way = false;
    sync->last_begin_ns = transfer->begin_ns;
    sync->last_end_ns = clock_now_ns();
}

void embedding_sync_end_outgoing(struct embedding_sync *sync)
{
    end_transfer(sync, &sync->out);
    sync->sent_bytes += sync->out_size.bytes;
}

void embedding_sync_end_incoming(struct embedding_sync *sync)
{
    end_transfer(sync, &sync->in);
    sync->unread = sync->config.role == EMBEDDING_OWNER;
}

static const char *carrier_of(const struct embedding_sync *sync)
{
    return sync->config.comm != NULL ? "data_plane" : "zmq";
}

static enum status say_hello(struct embedding_sync *sync)
{
    embedding_sync_begin_letter(sync, "hello");
    message_put_uint(sync->pack, "elems", sync->config.elems);
    message_put_uint(sync->pack, "weight_bytes", sync->config.weight_bytes);
    message_put_text(sync->pack, "sends", embedding_sync_outgoing(sync));
    message_put_text(sync->pack, "carrier", carrier_of(sync));
    message_put_uint(sync->pack, "offset", sync->config.shared_offset);
    return embedding_sync_send_letter(sync, NULL, 0);
}

/* What the other end has said of itself. */
struct hello {
    uint64_t elems;
    uint64_t weight_bytes;
    uint64_t offset;
    char sends[16];
    char carrier[16];
};

static enum status read_hello(const struct embedding_sync *sync, struct hello *hello)
{
    TRY(message_get_uint(sync->view, "elems", &hello->elems));
    TRY(message_get_uint(sync->view, "weight_bytes", &hello->weight_bytes));
    TRY(message_get_text(sync->view, "sends", hello->sends, sizeof(hello->sends)));
    TRY(message_get_text(sync->view, "carrier", hello->carrier, sizeof(hello->carrier)));
    return message_get_uint(sync->view, "offset", &hello->offset);
}

/* Both ends mean the same transfers. */
static enum status compare_ends(const struct embedding_sync *sync, const struct hello *hello)
{
    if (strcmp(hello->sends, embedding_sync_incoming(sync)) != 0) {
        return status_fail(STATUS_ERR_REFUSED, "embedding group %s: both ends send %s", sync->name,
                           hello->sends);
    }
    if (hello->elems != sync->config.elems) {
        return status_fail(STATUS_ERR_REFUSED,
                           "embedding group %s: this end has %zu elements, the other %" PRIu64,
                           sync->name, sync->config.elems, hello->elems);
    }
    if (hello->weight_bytes != sync->config.weight_bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "embedding group %s: this end has weights of %zu bytes an element, the "
                           "other of %" PRIu64 "; precision.dtype must be the same on all ranks",
                           sync->name, sync->config.weight_bytes, hello->weight_bytes);
    }
    if (strcmp(hello->carrier, carrier_of(sync)) != 0) {
        return status_fail(STATUS_ERR_REFUSED,
                           "embedding group %s: this end has the bytes carried by %s, the other by "
                           "%s; parallel.embedding_sync must be the same on all ranks",
                           sync->name, carrier_of(sync), hello->carrier);
    }
    if (hello->offset > SIZE_MAX - sync->in_size.bytes) {
        return status_fail(STATUS_ERR_REFUSED,
                           "embedding group %s: no shared block holds %zu bytes at %" PRIu64,
                           sync->name, sync->in_size.bytes, hello->offset);
    }
    return STATUS_OK;
}

static enum status hear_hello(struct embedding_sync *sync)
{
    struct hello hello;
    bool was_met = sync->met;

    TRY(read_hello(sync, &hello));
    if (sync->config.role == EMBEDDING_OWNER && !was_met) {
        TRY(say_hello(sync));
    }
    TRY(compare_ends(sync, &hello));
    sync->peer_offset = hello.offset;
    (void)pthread_mutex_lock(&sync->mutex);
    sync->met = true;
    embedding_sync_unlock(sync);
    return STATUS_OK;
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
    bool reads = sync->config.comm != NULL;

    if (reads && strcmp(kind, "ready") == 0) {
        return embedding_sync_hear_ready(sync);
    }
    if (reads && strcmp(kind, "done") == 0) {
        return embedding_sync_hear_done(sync);
    }
    if (!reads && strcmp(kind, "ack") == 0) {
        return embedding_sync_hear_ack(sync);
    }
    if (!reads && strcmp(kind, embedding_sync_incoming(sync)) == 0) {
        return embedding_sync_hear_frame(sync, letter);
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

    if (sync->starved) {
        clock_sleep_ns(STARVED_NS);
    }
    TRY(wire_poll(items, 2, sync->starved || embedding_sync_reads(sync) ? 0 : CANCEL_POLL_NS));
    ssize_t emptied = items[1].ready ? read(sync->wake_fd, &wakes, sizeof(wakes)) : 0;

    (void)emptied;
    TRY(hear_all(sync));
    if (sync->config.comm == NULL) {
        return embedding_sync_send_frames(sync);
    }
    TRY(embedding_sync_send_ready(sync));
    return embedding_sync_reads(sync) ? embedding_sync_read_piece(sync) : STATUS_OK;
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
