#include "embedding_rig.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <zmq.h>

#include "base/clock.h"

static char directory[64];

int embedding_make_directory(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/weir-test-XXXXXX");
    return mkdtemp(directory) == NULL ? -1 : 0;
}

int embedding_remove_directory(void **state)
{
    char path[96];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/embedding-tp0-dp0", directory);
    (void)unlink(path);
    return rmdir(directory);
}

/* Value of element `i` in what travels as `number`: differs in every frame and every transfer. */
static float value_of(int64_t number, size_t i, float sign)
{
    return sign * (float)(((size_t)number * 7919U + i * 31U) % 1000003U);
}

/* As many of its bits, the upper ones, as an element has. */
static const unsigned char *bits_of(const float *value, size_t elem_bytes)
{
    return (const unsigned char *)value + sizeof(float) - elem_bytes;
}

static void fill(void *values, size_t elems, size_t elem_bytes, int64_t number, float sign)
{
    for (size_t i = 0; i < elems; i++) {
        float value = value_of(number, i, sign);

        memcpy((unsigned char *)values + i * elem_bytes, bits_of(&value, elem_bytes), elem_bytes);
    }
}

static bool holds(const void *values, size_t elems, size_t elem_bytes, int64_t number, float sign)
{
    for (size_t i = 0; i < elems; i++) {
        float value = value_of(number, i, sign);

        if (memcmp((const unsigned char *)values + i * elem_bytes, bits_of(&value, elem_bytes),
                   elem_bytes) != 0) {
            return false;
        }
    }
    return true;
}

static bool is_skipped(const struct embedding_end *end, int64_t step)
{
    return end->skip_every > 0 && step % end->skip_every == 0;
}

/* Stands for the STEP round, in which the owner takes part once it has used the gradient. */
static bool await_step(const struct embedding_end *end, int64_t step)
{
    int64_t deadline_ns = clock_deadline(EMBEDDING_PATIENCE_S);

    while (__atomic_load_n(end->steps_ended, __ATOMIC_ACQUIRE) < step) {
        if (clock_now_ns() > deadline_ns) {
            return false;
        }
        clock_sleep_ns(CLOCK_MS / 4);
    }
    return true;
}

/* The memory of an end. */
struct buffers {
    float *landing; /* owns */
    float *own;     /* owns; what goes out, unless that lies in the shared block */
    float *outgoing;
    struct comm *comm;   /* owns */
    unsigned char *made; /* owns; where what goes out trickles in: all of it, */
    size_t made_bytes;
    size_t come_bytes; /* and how much of it has come */
};

#define TRICKLE_BYTES ((size_t)700001) /* less than a frame, and no part of one */

/* Of embedding_sync_config. */
static enum status trickle(void *context, size_t *bytes_out)
{
    struct buffers *buffers = context;
    size_t left = buffers->made_bytes - buffers->come_bytes;
    size_t more = left < TRICKLE_BYTES ? left : TRICKLE_BYTES;

    memcpy((unsigned char *)buffers->outgoing + buffers->come_bytes,
           buffers->made + buffers->come_bytes, more);
    buffers->come_bytes += more;
    *bytes_out = buffers->come_bytes;
    return STATUS_OK;
}

/* What `number` sends, there or on its way there. */
static void make(const struct embedding_end *end, struct buffers *buffers, size_t elem_bytes,
                 int64_t number, float sign)
{
    if (!end->trickles) {
        fill(buffers->outgoing, end->elems, elem_bytes, number, sign);
        return;
    }
    fill(buffers->made, end->elems, elem_bytes, number, sign);
    buffers->made_bytes = end->elems * elem_bytes;
    buffers->come_bytes = 0;
    memset(buffers->outgoing, 0xFF, buffers->made_bytes);
}

static const char *run_owner(struct embedding_end *end, struct embedding_sync *sync,
                             struct buffers *buffers)
{
    const void *landing = buffers->landing;
    int64_t version = 0;

    for (int64_t step = 1; step <= end->steps; step++) {
        int64_t begin_ns = 0;
        int64_t end_ns = 0;

        if (embedding_sync_wait_gradient(sync, step, clock_deadline(EMBEDDING_PATIENCE_S)) !=
            STATUS_OK) {
            return "the owner waits for the gradient";
        }
        if (!holds(landing, end->elems, sizeof(float), step, 1.0F)) {
            return "the gradient is that of the step";
        }
        embedding_sync_last_transfer(sync, &begin_ns, &end_ns);
        if (begin_ns <= 0 || end_ns < begin_ns) {
            return "the transfer has a begin and an end";
        }
        if (embedding_sync_sent_bytes(sync) != (uint64_t)version * end->elems * end->weight_bytes) {
            return "the weights that were sent are counted";
        }
        __atomic_store_n(end->steps_ended, step, __ATOMIC_RELEASE);
        if (!is_skipped(end, step)) {
            make(end, buffers, end->weight_bytes, ++version, -1.0F);
            if (embedding_sync_send_weights(sync, version, buffers->outgoing) != STATUS_OK) {
                return "the owner sends the weights";
            }
        }
    }
    if (embedding_sync_wait_sent(sync, clock_deadline(EMBEDDING_PATIENCE_S)) != STATUS_OK) {
        return "the owner waits for the last acknowledgement";
    }
    return embedding_sync_sent_bytes(sync) == (uint64_t)version * end->elems * end->weight_bytes
               ? NULL
               : "the last weights that were sent are counted";
}

static const char *run_head(struct embedding_end *end, struct embedding_sync *sync,
                            struct buffers *buffers)
{
    const void *landing = buffers->landing;
    int64_t version = 0;

    for (int64_t step = 1; step <= end->steps; step++) {
        if (embedding_sync_wait_version(sync, version, clock_deadline(EMBEDDING_PATIENCE_S)) !=
            STATUS_OK) {
            return "the head waits for the weights";
        }
        if (version > 0 && !holds(landing, end->elems, end->weight_bytes, version, -1.0F)) {
            return "the weights are those of the version";
        }
        make(end, buffers, sizeof(float), step, 1.0F);
        if (embedding_sync_send_gradient(sync, step, buffers->outgoing) != STATUS_OK) {
            return "the head sends the gradient";
        }
        if (!await_step(end, step)) {
            return "the step ends";
        }
        version += is_skipped(end, step) ? 0 : 1;
    }
    if (embedding_sync_wait_version(sync, version, clock_deadline(EMBEDDING_PATIENCE_S)) !=
            STATUS_OK ||
        !holds(landing, end->elems, end->weight_bytes, version, -1.0F)) {
        return "the last weights come";
    }
    return embedding_sync_sent_bytes(sync) == (uint64_t)end->steps * end->elems * sizeof(float)
               ? NULL
               : "the gradients that were sent are counted";
}

struct embedding_sync_config embedding_configure(enum embedding_role role, size_t elems,
                                                 const struct cancel *cancel)
{
    return (struct embedding_sync_config){.role = role,
                                          .job_directory = directory,
                                          .name = "tp0-dp0",
                                          .elems = elems,
                                          .weight_bytes = sizeof(float),
                                          .cancel = cancel,
                                          .deadline_ns = clock_deadline(EMBEDDING_PATIENCE_S)};
}

size_t embedding_offset(enum embedding_role role)
{
    return role == EMBEDDING_OWNER ? 8192 : 128;
}

enum status embedding_join(enum embedding_role role, size_t bytes, struct comm **comm_out)
{
    static const int32_t ranks[] = {EMBEDDING_OWNER, EMBEDDING_HEAD};
    const struct comm_config config = {
        .job_directory = directory, .rank = (int32_t)role, .world = 2, .crowded = true};
    const struct group_config both = {.ranks = ranks, .count = 2};
    struct group *group = NULL;

    TRY(comm_shm_open(&config, comm_out));
    TRY(comm_share(*comm_out, embedding_offset(role) + bytes));
    TRY(comm_group_open(*comm_out, &both, &group));
    return comm_connect(*comm_out, NULL, clock_deadline(EMBEDDING_PATIENCE_S));
}

static enum status make_buffers(const struct embedding_end *end, struct buffers *buffers)
{
    size_t bytes = end->elems * sizeof(float);

    buffers->landing = calloc(end->elems + 1, sizeof(float));
    buffers->own = calloc(end->elems + 1, sizeof(float));
    buffers->made = calloc(1, bytes + sizeof(float));
    if (buffers->landing == NULL || buffers->own == NULL || buffers->made == NULL) {
        return STATUS_ERR_NO_MEMORY;
    }
    buffers->outgoing = buffers->own;
    if (end->reads) {
        TRY(embedding_join(end->role, bytes, &buffers->comm));
        buffers->outgoing =
            (float *)((unsigned char *)comm_shared(buffers->comm) + embedding_offset(end->role));
    }
    return STATUS_OK;
}

static void *run_end(void *argument)
{
    struct embedding_end *end = argument;
    struct buffers buffers = {0};
    struct embedding_sync_config config = embedding_configure(end->role, end->elems, end->cancel);
    struct embedding_sync *sync = NULL;
    enum status opened = STATUS_OK;

    opened = make_buffers(end, &buffers);
    if (opened == STATUS_OK) {
        config.weight_bytes = end->weight_bytes;
        config.landing = end->elems > 0 ? buffers.landing : NULL;
        config.comm = buffers.comm;
        config.come = end->trickles ? trickle : NULL;
        config.come_context = &buffers;
        config.peer = end->role == EMBEDDING_OWNER ? EMBEDDING_HEAD : EMBEDDING_OWNER;
        config.shared_offset = embedding_offset(end->role);
        opened = embedding_sync_open(&config, &sync);
    }
    end->opened = opened;
    (void)snprintf(end->text, sizeof(end->text), "%s", status_last()->message);
    if (opened == STATUS_OK) {
        end->wrong = end->role == EMBEDDING_OWNER ? run_owner(end, sync, &buffers)
                                                  : run_head(end, sync, &buffers);
    }
    embedding_sync_close(&sync);
    comm_close(&buffers.comm);
    free(buffers.landing);
    free(buffers.own);
    free(buffers.made);
    return NULL;
}

void embedding_run_pair(struct embedding_end *owner, struct embedding_end *head)
{
    pthread_t thread;

    owner->role = EMBEDDING_OWNER;
    head->role = EMBEDDING_HEAD;
    assert_int_equal(pthread_create(&thread, NULL, run_end, head), 0);
    (void)run_end(owner);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void expect(const struct embedding_end *both)
{
    struct cancel cancel = {0};
    int64_t steps_ended = 0;
    struct embedding_end owner = *both;
    struct embedding_end head;

    owner.cancel = &cancel;
    owner.steps_ended = &steps_ended;
    head = owner;
    embedding_run_pair(&owner, &head);
    if (owner.opened != STATUS_OK || head.opened != STATUS_OK || owner.wrong != NULL ||
        head.wrong != NULL) {
        fail_msg("%zu elements: expected that %s, %s", both->elems,
                 owner.wrong != NULL ? owner.wrong : "the owner is well",
                 head.wrong != NULL ? head.wrong : "the head is well");
    }
}

void embedding_expect_steps(bool reads, size_t elems, size_t weight_bytes, int64_t steps,
                            int64_t skip_every)
{
    expect(&(struct embedding_end){.elems = elems,
                                   .weight_bytes = weight_bytes,
                                   .reads = reads,
                                   .steps = steps,
                                   .skip_every = skip_every});
}

void embedding_expect_trickle(size_t elems, size_t weight_bytes, int64_t steps)
{
    expect(&(struct embedding_end){
        .elems = elems, .weight_bytes = weight_bytes, .trickles = true, .steps = steps});
}

void embedding_puppet_open(struct embedding_puppet *puppet, bool binds)
{
    char endpoint[128];
    int linger = 0;
    int patience_ms = (int)(EMBEDDING_PATIENCE_S * 1000.0);

    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s/embedding-tp0-dp0", directory);
    assert_int_equal(message_pack_create(&puppet->pack), STATUS_OK);
    puppet->context = zmq_ctx_new();
    puppet->socket = zmq_socket(puppet->context, ZMQ_DEALER);
    assert_non_null(puppet->socket);
    (void)zmq_setsockopt(puppet->socket, ZMQ_LINGER, &linger, sizeof(linger));
    (void)zmq_setsockopt(puppet->socket, ZMQ_RCVTIMEO, &patience_ms, sizeof(patience_ms));
    assert_int_equal(
        binds ? zmq_bind(puppet->socket, endpoint) : zmq_connect(puppet->socket, endpoint), 0);
}

void embedding_puppet_close(struct embedding_puppet *puppet)
{
    (void)zmq_close(puppet->socket);
    (void)zmq_ctx_term(puppet->context);
    message_pack_destroy(&puppet->pack);
}

void embedding_puppet_begin(struct embedding_puppet *puppet, const char *kind)
{
    message_pack_begin(puppet->pack);
    message_put_int(puppet->pack, "version", 2);
    message_put_text(puppet->pack, "kind", kind);
}

void embedding_puppet_send(struct embedding_puppet *puppet, const void *attachment,
                           size_t attachment_bytes)
{
    const void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(message_pack_end(puppet->pack, &bytes, &size), STATUS_OK);
    assert_true(zmq_send(puppet->socket, bytes, size, attachment != NULL ? ZMQ_SNDMORE : 0) >= 0);
    if (attachment != NULL) {
        assert_true(zmq_send(puppet->socket, attachment, attachment_bytes, 0) >= 0);
    }
}

void embedding_puppet_hello(struct embedding_puppet *puppet, size_t elems, const char *sends,
                            const char *carrier, uint64_t offset)
{
    embedding_puppet_begin(puppet, "hello");
    message_put_uint(puppet->pack, "elems", elems);
    message_put_uint(puppet->pack, "weight_bytes", sizeof(float));
    message_put_text(puppet->pack, "sends", sends);
    message_put_text(puppet->pack, "carrier", carrier);
    message_put_uint(puppet->pack, "offset", offset);
    embedding_puppet_send(puppet, NULL, 0);
}

void embedding_puppet_skip(struct embedding_puppet *puppet)
{
    char part[16];
    int more = 0;
    size_t size = sizeof(more);

    assert_true(zmq_recv(puppet->socket, part, sizeof(part), 0) > 0);
    assert_int_equal(zmq_getsockopt(puppet->socket, ZMQ_RCVMORE, &more, &size), 0);
    assert_int_equal(more, 0);
}
