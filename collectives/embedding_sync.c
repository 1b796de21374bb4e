#include "collectives/embedding_sync.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "collectives/comm.h"
#include "collectives/embedding_sync_state.h"

#define SEND_PATIENCE_S 60.0 /* for the transfer before to be acknowledged */

const char *embedding_sync_outgoing(const struct embedding_sync *sync)
{
    return sync->config.role == EMBEDDING_OWNER ? "weights" : "gradient";
}

const char *embedding_sync_incoming(const struct embedding_sync *sync)
{
    return sync->config.role == EMBEDDING_OWNER ? "gradient" : "weights";
}

void embedding_sync_unlock(struct embedding_sync *sync)
{
    (void)pthread_cond_broadcast(&sync->changed);
    (void)pthread_mutex_unlock(&sync->mutex);
}

static void wake(struct embedding_sync *sync)
{
    const uint64_t one = 1;
    ssize_t written = write(sync->wake_fd, &one, sizeof(one));

    (void)written;
}

typedef bool (*reached_fn)(const struct embedding_sync *sync, int64_t number);

static bool has_met(const struct embedding_sync *sync, int64_t number)
{
    (void)number;
    return sync->met;
}

static bool is_sent(const struct embedding_sync *sync, int64_t number)
{
    (void)number;
    return !sync->out.under_way;
}

static bool has_arrived(const struct embedding_sync *sync, int64_t number)
{
    return !sync->out.under_way && !sync->in.under_way && sync->in.number >= number;
}

/* Blocks until `reached`, with the mutex held at the end; `what` and `number` (-1: none) say for
 * what. */
static enum status wait_until(struct embedding_sync *sync, reached_fn reached, const char *what,
                              int64_t number, int64_t deadline_ns)
{
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&sync->mutex);
    while (status == STATUS_OK && sync->failure == STATUS_OK && !reached(sync, number)) {
        int64_t until_ns = clock_now_ns() + CANCEL_POLL_NS;

        until_ns = deadline_ns < until_ns ? deadline_ns : until_ns;
        struct timespec until = {.tv_sec = (time_t)(until_ns / CLOCK_SECOND),
                                 .tv_nsec = (long)(until_ns % CLOCK_SECOND)};

        (void)pthread_cond_timedwait(&sync->changed, &sync->mutex, &until);
        status = cancel_check(sync->config.cancel, deadline_ns);
    }
    if (reached(sync, number)) {
        return STATUS_OK;
    }
    if (sync->failure != STATUS_OK) {
        status_adopt(&sync->record);
        return sync->failure;
    }
    char label[64];

    if (number < 0) {
        (void)snprintf(label, sizeof(label), "%s", what);
    } else {
        (void)snprintf(label, sizeof(label), "%s %" PRId64, what, number);
    }
    return status == STATUS_ERR_CANCELLED
               ? status_note(status, "embedding group %s: cancelled while waiting for %s",
                             sync->name, label)
               : status_fail(status, "embedding group %s: %s did not come in time", sync->name,
                             label);
}

static enum status choose_names(struct embedding_sync *sync,
                                const struct embedding_sync_config *config)
{
    int bytes = snprintf(sync->name, sizeof(sync->name), "%s/embedding-%s", config->job_directory,
                         config->name);

    if (bytes < 0 || bytes > WIRE_PATH_MOST) {
        return status_fail(STATUS_ERR_REFUSED,
                           "embedding group: the path '%s/embedding-%s' has %d bytes, a socket's "
                           "may have %d",
                           config->job_directory, config->name, bytes, WIRE_PATH_MOST);
    }
    (void)snprintf(sync->endpoint, sizeof(sync->endpoint), "ipc://%s", sync->name);
    (void)snprintf(sync->name, sizeof(sync->name), "%s", config->name);
    sync->config.job_directory = NULL;
    sync->config.name = NULL;
    return STATUS_OK;
}

static enum status start_thread(struct embedding_sync *sync)
{
    sigset_t all;
    sigset_t before;

    sync->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sync->wake_fd < 0) {
        return status_fail(STATUS_ERR_IO, "embedding group %s: cannot make an eventfd: %s",
                           sync->name, strerror(errno));
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&sync->thread, NULL, embedding_sync_run, sync);

    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        return status_fail(STATUS_ERR_IO, "embedding group %s: cannot start a thread: %s",
                           sync->name, strerror(code));
    }
    sync->started = true;
    return STATUS_OK;
}

static struct transfer_size size_of(const struct embedding_sync_config *config, bool weights)
{
    size_t bytes = config->elems * (weights ? config->weight_bytes : sizeof(float));
    size_t frames = (bytes + EMBEDDING_FRAME_BYTES - 1) / EMBEDDING_FRAME_BYTES;

    return (struct transfer_size){.bytes = bytes, .frames = frames > 0 ? frames : 1};
}

enum status embedding_sync_open(const struct embedding_sync_config *config,
                                struct embedding_sync **sync_out)
{
    struct embedding_sync *sync = calloc(1, sizeof(*sync));
    enum status status = STATUS_OK;
    pthread_condattr_t attributes;

    ENSURE(config->elems == 0 || config->landing != NULL, "%zu elements land nowhere",
           config->elems);
    ENSURE(config->weight_bytes == 2 || config->weight_bytes == 4, "weights of %zu bytes",
           config->weight_bytes);
    if (sync == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "embedding group: %zu bytes", sizeof(*sync));
    }
    sync->config = *config;
    sync->wake_fd = -1;
    sync->out_size = size_of(config, config->role == EMBEDDING_OWNER);
    sync->in_size = size_of(config, config->role == EMBEDDING_HEAD);
    sync->out.number = -1;
    /* The head's copy is version 0 from the start; steps are counted from 1. */
    sync->in.number = 0;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&sync->mutex, NULL);
    (void)pthread_cond_init(&sync->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    TRY_OR(fail, status, choose_names(sync, config));
    TRY_OR(fail, status, start_thread(sync));
    status = wait_until(sync, has_met, "the other end", -1, config->deadline_ns);
    embedding_sync_unlock(sync);
    if (status < 0) {
        goto fail;
    }
    *sync_out = sync;
    return STATUS_OK;

fail:
    embedding_sync_close(&sync);
    return status;
}

/* The other end reads at the place that it was told, so data elsewhere would not be seen. */
static void check_place(const struct embedding_sync *sync, const void *data)
{
    const struct embedding_sync_config *config = &sync->config;

    if (config->comm != NULL && config->elems > 0) {
        const unsigned char *block = comm_shared(config->comm);

        ENSURE(block != NULL && data == block + config->shared_offset,
               "%s that do not lie at %zu of the shared block", embedding_sync_outgoing(sync),
               config->shared_offset);
    }
}

/* Hands a transfer to the thread, after the one before has been acknowledged. */
static enum status send_data(struct embedding_sync *sync, int64_t number, const void *data)
{
    check_place(sync, data);
    enum status status = wait_until(sync, is_sent, "the acknowledgement before transfer", number,
                                    clock_deadline(SEND_PATIENCE_S));

    if (status == STATUS_OK) {
        ENSURE(number > sync->out.number && number > 0, "%s %lld after %lld",
               embedding_sync_outgoing(sync), (long long)number, (long long)sync->out.number);
        sync->data = data;
        sync->out =
            (struct transfer){.number = number, .under_way = true, .begin_ns = clock_now_ns()};
    }
    embedding_sync_unlock(sync);
    wake(sync);
    return status;
}

enum status embedding_sync_send_gradient(struct embedding_sync *sync, int64_t step,
                                         const float *gradient)
{
    ENSURE(sync->config.role == EMBEDDING_HEAD, "the owner sends no gradient");
    return send_data(sync, step, gradient);
}

enum status embedding_sync_wait_gradient(struct embedding_sync *sync, int64_t step,
                                         int64_t deadline_ns)
{
    ENSURE(sync->config.role == EMBEDDING_OWNER, "the head waits for no gradient");
    enum status status = wait_until(sync, has_arrived, "the gradient of step", step, deadline_ns);
    int64_t found = sync->in.number;

    sync->unread = sync->unread && status != STATUS_OK;
    embedding_sync_unlock(sync);
    if (status == STATUS_OK && found != step) {
        return status_fail(STATUS_ERR_FORMAT,
                           "embedding group %s: expected the gradient of step %" PRId64
                           ", found that of step %" PRId64,
                           sync->name, step, found);
    }
    return status;
}

enum status embedding_sync_send_weights(struct embedding_sync *sync, int64_t version,
                                        const void *weights)
{
    ENSURE(sync->config.role == EMBEDDING_OWNER, "the head sends no weights");
    return send_data(sync, version, weights);
}

enum status embedding_sync_wait_version(struct embedding_sync *sync, int64_t version,
                                        int64_t deadline_ns)
{
    ENSURE(sync->config.role == EMBEDDING_HEAD, "the owner waits for no version");
    enum status status = wait_until(sync, has_arrived, "weights of version", version, deadline_ns);

    embedding_sync_unlock(sync);
    return status;
}

enum status embedding_sync_wait_sent(struct embedding_sync *sync, int64_t deadline_ns)
{
    enum status status = wait_until(sync, is_sent, "the last acknowledgement", -1, deadline_ns);

    embedding_sync_unlock(sync);
    return status;
}

void embedding_sync_last_transfer(const struct embedding_sync *sync, int64_t *begin_ns,
                                  int64_t *end_ns)
{
    struct embedding_sync *shared = (struct embedding_sync *)sync;

    (void)pthread_mutex_lock(&shared->mutex);
    *begin_ns = sync->last_begin_ns;
    *end_ns = sync->last_end_ns;
    embedding_sync_unlock(shared);
}

uint64_t embedding_sync_sent_bytes(const struct embedding_sync *sync)
{
    struct embedding_sync *shared = (struct embedding_sync *)sync;

    (void)pthread_mutex_lock(&shared->mutex);
    uint64_t bytes = sync->sent_bytes;

    embedding_sync_unlock(shared);
    return bytes;
}

void embedding_sync_close(struct embedding_sync **sync)
{
    struct embedding_sync *gone = *sync;

    if (gone == NULL) {
        return;
    }
    if (gone->started) {
        (void)pthread_mutex_lock(&gone->mutex);
        gone->closing = true;
        embedding_sync_unlock(gone);
        wake(gone);
        (void)pthread_join(gone->thread, NULL);
    }
    if (gone->wake_fd >= 0) {
        (void)close(gone->wake_fd);
    }
    (void)pthread_cond_destroy(&gone->changed);
    (void)pthread_mutex_destroy(&gone->mutex);
    free(gone);
    *sync = NULL;
}
