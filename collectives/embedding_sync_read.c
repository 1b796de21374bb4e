/* embedding_sync_read -- the bytes of an embedding group over the data plane: the end that sends
 * says READY and leaves them where they are, the other reads them there and says DONE. */
#include <inttypes.h>
#include <pthread.h>

#include "base/cancel.h"
#include "collectives/comm.h"
#include "collectives/embedding_sync_state.h"

static void begin_numbered(struct embedding_sync *sync, const char *kind, int64_t number)
{
    embedding_sync_begin_letter(sync, kind);
    message_put_int(sync->pack, "number", number);
}

enum status embedding_sync_send_ready(struct embedding_sync *sync)
{
    (void)pthread_mutex_lock(&sync->mutex);
    int64_t number = sync->out.number;
    bool may_send = sync->met && sync->out.under_way && sync->out.sent == 0;

    embedding_sync_unlock(sync);
    if (!may_send) {
        return STATUS_OK;
    }
    begin_numbered(sync, "ready", number);
    enum status status = embedding_sync_send_letter(sync, NULL, 0);

    if (status != STATUS_OK) {
        return status < 0 ? status : STATUS_OK;
    }
    (void)pthread_mutex_lock(&sync->mutex);
    sync->out.sent = 1;
    embedding_sync_unlock(sync);
    return STATUS_OK;
}

enum status embedding_sync_hear_done(struct embedding_sync *sync)
{
    int64_t number = 0;

    TRY(message_get_int(sync->view, "number", 0, INT64_MAX, &number));
    (void)pthread_mutex_lock(&sync->mutex);
    bool good = sync->out.under_way && sync->out.sent == 1 && number == sync->out.number;

    if (good) {
        embedding_sync_end_outgoing(sync);
    }
    embedding_sync_unlock(sync);
    return good ? STATUS_OK
                : status_note(STATUS_ERR_FORMAT, "%s %" PRId64 " is done, not ready",
                              embedding_sync_outgoing(sync), number);
}

enum status embedding_sync_hear_ready(struct embedding_sync *sync)
{
    int64_t number = 0;

    TRY(message_get_int(sync->view, "number", 0, INT64_MAX, &number));
    (void)pthread_mutex_lock(&sync->mutex);
    int64_t before = sync->in.number;
    bool good = sync->met && embedding_sync_begin_incoming(sync, number);

    embedding_sync_unlock(sync);
    return good ? STATUS_OK
                : status_note(STATUS_ERR_FORMAT,
                              "%s %" PRId64 " that is ready does not follow what came before (%s "
                              "%" PRId64 ")",
                              embedding_sync_incoming(sync), number, embedding_sync_incoming(sync),
                              before);
}

bool embedding_sync_reads(struct embedding_sync *sync)
{
    (void)pthread_mutex_lock(&sync->mutex);
    bool reads = sync->config.comm != NULL && sync->in.under_way;

    embedding_sync_unlock(sync);
    return reads && !cancel_requested(sync->config.cancel);
}

enum status embedding_sync_read_piece(struct embedding_sync *sync)
{
    size_t piece = sync->in.sent; /* which this thread alone changes while a transfer comes in */
    size_t at = piece * EMBEDDING_FRAME_BYTES;
    size_t bytes = embedding_sync_frame_bytes(&sync->in_size, piece);
    enum status status = STATUS_OK;

    if (bytes > 0) {
        TRY(comm_read(sync->config.comm, sync->config.peer, sync->peer_offset + at,
                      (unsigned char *)sync->config.landing + at, bytes));
    }
    if (piece + 1 == sync->in_size.frames) {
        begin_numbered(sync, "done", sync->in.number);
        status = embedding_sync_confirm(sync);
    }
    (void)pthread_mutex_lock(&sync->mutex);
    if (++sync->in.sent == sync->in_size.frames) {
        embedding_sync_end_incoming(sync);
    }
    embedding_sync_unlock(sync);
    return status;
}
