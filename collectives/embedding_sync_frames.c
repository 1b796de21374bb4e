/* embedding_sync_frames -- the bytes of an embedding group over ZeroMQ: a window of frames. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "collectives/embedding_sync_state.h"

#define WINDOW_FRAMES 8

/* Whether bytes to `end` of what goes out are there. */
static enum status ask_bytes(struct embedding_sync *sync, size_t frame, size_t end)
{
    sync->starved = false;
    if (sync->config.come == NULL) {
        return STATUS_OK;
    }
    sync->come_bytes = frame == 0 ? 0 : sync->come_bytes; /* another transfer begins */
    if (sync->come_bytes < end) {
        TRY(sync->config.come(sync->config.come_context, &sync->come_bytes));
    }
    sync->starved = sync->come_bytes < end;
    return STATUS_OK;
}

enum status embedding_sync_send_frames(struct embedding_sync *sync)
{
    for (;;) {
        (void)pthread_mutex_lock(&sync->mutex);
        size_t frame = sync->out.sent;
        int64_t number = sync->out.number;
        const unsigned char *data = sync->data;
        bool may_send = sync->met && sync->out.under_way && frame < sync->out_size.frames &&
                        frame - sync->out.acked < WINDOW_FRAMES;

        embedding_sync_unlock(sync);
        if (!may_send) {
            sync->starved = false;
            return STATUS_OK;
        }
        size_t bytes = embedding_sync_frame_bytes(&sync->out_size, frame);

        TRY(ask_bytes(sync, frame, frame * EMBEDDING_FRAME_BYTES + bytes));
        if (sync->starved) {
            return STATUS_OK;
        }
        embedding_sync_begin_letter(sync, embedding_sync_outgoing(sync));
        message_put_int(sync->pack, "number", number);
        message_put_uint(sync->pack, "frame", frame);
        enum status status = embedding_sync_send_letter(
            sync, bytes > 0 ? data + frame * EMBEDDING_FRAME_BYTES : NULL, bytes);

        if (status != STATUS_OK) {
            return status < 0 ? status : STATUS_OK;
        }
        (void)pthread_mutex_lock(&sync->mutex);
        sync->out.sent = frame + 1;
        embedding_sync_unlock(sync);
    }
}

enum status embedding_sync_hear_ack(struct embedding_sync *sync)
{
    int64_t number = 0;
    uint64_t frame = 0;

    TRY(message_get_int(sync->view, "number", 0, INT64_MAX, &number));
    TRY(message_get_uint(sync->view, "frame", &frame));
    (void)pthread_mutex_lock(&sync->mutex);
    bool good = sync->out.under_way && number == sync->out.number && frame == sync->out.acked &&
                frame < sync->out.sent;

    if (good && ++sync->out.acked == sync->out_size.frames) {
        embedding_sync_end_outgoing(sync);
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
    if (!sync->in.under_way && (frame != 0 || !embedding_sync_begin_incoming(sync, number))) {
        return false;
    }
    return number == sync->in.number && frame == sync->in.sent;
}

enum status embedding_sync_hear_frame(struct embedding_sync *sync, const struct wire_letter *letter)
{
    int64_t number = 0;
    uint64_t frame = 0;

    TRY(message_get_int(sync->view, "number", 0, INT64_MAX, &number));
    TRY(message_get_uint(sync->view, "frame", &frame));
    (void)pthread_mutex_lock(&sync->mutex);
    int64_t before = sync->in.number;
    bool good = sync->met && frame < sync->in_size.frames && expect_frame(sync, number, frame) &&
                letter->attachment_bytes == embedding_sync_frame_bytes(&sync->in_size, frame);

    embedding_sync_unlock(sync);
    if (!good) {
        return status_note(STATUS_ERR_FORMAT,
                           "frame %" PRIu64 " (%zu bytes) of %s %" PRId64
                           " does not follow what came before (%s %" PRId64 ")",
                           frame, letter->attachment_bytes, embedding_sync_incoming(sync), number,
                           embedding_sync_incoming(sync), before);
    }
    if (letter->attachment_bytes > 0) {
        memcpy((unsigned char *)sync->config.landing + frame * EMBEDDING_FRAME_BYTES,
               letter->attachment, letter->attachment_bytes);
    }
    embedding_sync_begin_letter(sync, "ack");
    message_put_int(sync->pack, "number", number);
    message_put_uint(sync->pack, "frame", frame);
    enum status status = embedding_sync_confirm(sync);

    (void)pthread_mutex_lock(&sync->mutex);
    if (++sync->in.sent == sync->in_size.frames) {
        embedding_sync_end_incoming(sync);
    }
    embedding_sync_unlock(sync);
    return status;
}
