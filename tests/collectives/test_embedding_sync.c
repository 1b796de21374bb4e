#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>
#include <zmq.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "collectives/embedding_sync.h"
#include "collectives/message.h"

#define PATIENCE_S 20.0

static char directory[64];

static int make_directory(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/weir-test-XXXXXX");
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state)
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

static void fill(float *values, size_t elems, int64_t number, float sign)
{
    for (size_t i = 0; i < elems; i++) {
        values[i] = value_of(number, i, sign);
    }
}

static bool holds(const float *values, size_t elems, int64_t number, float sign)
{
    for (size_t i = 0; i < elems; i++) {
        if (values[i] != value_of(number, i, sign)) {
            return false;
        }
    }
    return true;
}

/* One end of the pair in a thread of its own, which notes the first thing that went wrong. */
struct end {
    enum embedding_role role;
    size_t elems;
    int64_t steps;
    int64_t skip_every; /* of so many steps one brings no weights back; 0: none */
    struct cancel *cancel;
    int64_t *steps_ended; /* by the owner; shared by both ends, atomic */
    const char *wrong;    /* NULL where all went well */
    enum status opened;
    char text[STATUS_MESSAGE_BYTES];
};

static bool is_skipped(const struct end *end, int64_t step)
{
    return end->skip_every > 0 && step % end->skip_every == 0;
}

/* Stands for the STEP round, in which the owner takes part once it has used the gradient. */
static bool await_step(const struct end *end, int64_t step)
{
    int64_t deadline_ns = clock_deadline(PATIENCE_S);

    while (__atomic_load_n(end->steps_ended, __ATOMIC_ACQUIRE) < step) {
        if (clock_now_ns() > deadline_ns) {
            return false;
        }
        clock_sleep_ns(CLOCK_MS / 4);
    }
    return true;
}

static const char *run_owner(struct end *end, struct embedding_sync *sync, float *landing,
                             float *weights)
{
    int64_t version = 0;

    for (int64_t step = 1; step <= end->steps; step++) {
        int64_t begin_ns = 0;
        int64_t end_ns = 0;

        if (embedding_sync_wait_gradient(sync, step, clock_deadline(PATIENCE_S)) != STATUS_OK) {
            return "the owner waits for the gradient";
        }
        if (!holds(landing, end->elems, step, 1.0F)) {
            return "the gradient is that of the step";
        }
        embedding_sync_last_transfer(sync, &begin_ns, &end_ns);
        if (begin_ns <= 0 || end_ns < begin_ns) {
            return "the transfer has a begin and an end";
        }
        __atomic_store_n(end->steps_ended, step, __ATOMIC_RELEASE);
        if (!is_skipped(end, step)) {
            fill(weights, end->elems, ++version, -1.0F);
            if (embedding_sync_send_weights(sync, version, weights) != STATUS_OK) {
                return "the owner sends the weights";
            }
        }
    }
    return NULL;
}

static const char *run_head(struct end *end, struct embedding_sync *sync, float *landing,
                            float *gradient)
{
    int64_t version = 0;

    for (int64_t step = 1; step <= end->steps; step++) {
        if (embedding_sync_wait_version(sync, version, clock_deadline(PATIENCE_S)) != STATUS_OK) {
            return "the head waits for the weights";
        }
        if (version > 0 && !holds(landing, end->elems, version, -1.0F)) {
            return "the weights are those of the version";
        }
        fill(gradient, end->elems, step, 1.0F);
        if (embedding_sync_send_gradient(sync, step, gradient) != STATUS_OK) {
            return "the head sends the gradient";
        }
        if (!await_step(end, step)) {
            return "the step ends";
        }
        version += is_skipped(end, step) ? 0 : 1;
    }
    return embedding_sync_wait_version(sync, version, clock_deadline(PATIENCE_S)) == STATUS_OK &&
                   holds(landing, end->elems, version, -1.0F)
               ? NULL
               : "the last weights come";
}

static struct embedding_sync_config configure(enum embedding_role role, size_t elems,
                                              const struct cancel *cancel)
{
    return (struct embedding_sync_config){.role = role,
                                          .job_directory = directory,
                                          .name = "tp0-dp0",
                                          .elems = elems,
                                          .cancel = cancel,
                                          .deadline_ns = clock_deadline(PATIENCE_S)};
}

static void *run_end(void *argument)
{
    struct end *end = argument;
    float *landing = calloc(end->elems, sizeof(*landing));
    float *outgoing = calloc(end->elems, sizeof(*outgoing));
    struct embedding_sync_config config = configure(end->role, end->elems, end->cancel);
    struct embedding_sync *sync = NULL;

    config.landing = landing;
    if (landing == NULL || outgoing == NULL) {
        end->opened = STATUS_ERR_NO_MEMORY;
        goto end;
    }
    end->opened = embedding_sync_open(&config, &sync);
    (void)snprintf(end->text, sizeof(end->text), "%s", status_last()->message);
    if (end->opened == STATUS_OK) {
        end->wrong = end->role == EMBEDDING_OWNER ? run_owner(end, sync, landing, outgoing)
                                                  : run_head(end, sync, landing, outgoing);
    }
    embedding_sync_close(&sync);

end:
    free(landing);
    free(outgoing);
    return NULL;
}

static void run_pair(struct end *owner, struct end *head)
{
    pthread_t thread;

    owner->role = EMBEDDING_OWNER;
    head->role = EMBEDDING_HEAD;
    assert_int_equal(pthread_create(&thread, NULL, run_end, head), 0);
    (void)run_end(owner);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void expect_good_steps(size_t elems, int64_t steps, int64_t skip_every)
{
    struct cancel cancel = {0};
    int64_t steps_ended = 0;
    struct end owner = {.elems = elems,
                        .steps = steps,
                        .skip_every = skip_every,
                        .cancel = &cancel,
                        .steps_ended = &steps_ended};
    struct end head = owner;

    run_pair(&owner, &head);
    if (owner.opened != STATUS_OK || head.opened != STATUS_OK || owner.wrong != NULL ||
        head.wrong != NULL) {
        fail_msg("%zu elements: expected that %s, %s", elems,
                 owner.wrong != NULL ? owner.wrong : "the owner is well",
                 head.wrong != NULL ? head.wrong : "the head is well");
    }
}

static void test_every_size_arrives_as_it_was_sent(void **state)
{
    static const size_t frame_elems = (1U << 20) / sizeof(float);
    const size_t sizes[] = {1,
                            3,
                            frame_elems - 1,
                            frame_elems,
                            frame_elems + 1,
                            8 * frame_elems,
                            8 * frame_elems + 1,
                            19 * frame_elems + 12345};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        expect_good_steps(sizes[i], 3, 0);
    }
}

static void test_many_steps_follow_each_other(void **state)
{
    (void)state;
    expect_good_steps(1000003, 40, 0);
}

static void test_a_step_that_is_skipped_brings_nothing_back(void **state)
{
    (void)state;
    expect_good_steps(300001, 20, 3);
}

static void test_ends_of_different_sizes_are_refused_with_both(void **state)
{
    struct cancel cancel = {0};
    struct end owner = {.elems = 1000, .cancel = &cancel};
    struct end head = {.elems = 1001, .cancel = &cancel};

    (void)state;
    run_pair(&owner, &head);
    assert_int_equal(owner.opened, STATUS_ERR_REFUSED);
    assert_int_equal(head.opened, STATUS_ERR_REFUSED);
    assert_non_null(strstr(owner.text, "1000"));
    assert_non_null(strstr(owner.text, "1001"));
    assert_non_null(strstr(head.text, "1000"));
    assert_non_null(strstr(head.text, "1001"));
}

static void test_an_end_that_stays_alone_gives_up_at_its_deadline(void **state)
{
    struct cancel cancel = {0};
    float landing[4];

    (void)state;
    for (int role = EMBEDDING_OWNER; role <= EMBEDDING_HEAD; role++) {
        struct embedding_sync *sync = NULL;
        struct embedding_sync_config config = configure((enum embedding_role)role, 4, &cancel);

        config.landing = landing;
        config.deadline_ns = clock_now_ns() + 50 * CLOCK_MS;
        assert_int_equal(embedding_sync_open(&config, &sync), STATUS_ERR_TIMEOUT);
        assert_null(sync);
    }
}

/* The other end, by hand: says what the test wants it to say. */
struct puppet {
    void *context;
    void *socket;
    struct message_pack *pack;
};

static void puppet_open(struct puppet *puppet, bool binds)
{
    char endpoint[128];
    int linger = 0;
    int patience_ms = (int)(PATIENCE_S * 1000.0);

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

static void puppet_close(struct puppet *puppet)
{
    (void)zmq_close(puppet->socket);
    (void)zmq_ctx_term(puppet->context);
    message_pack_destroy(&puppet->pack);
}

static void puppet_begin(struct puppet *puppet, const char *kind)
{
    message_pack_begin(puppet->pack);
    message_put_int(puppet->pack, "version", 1);
    message_put_text(puppet->pack, "kind", kind);
}

static void puppet_send(struct puppet *puppet, const void *attachment, size_t attachment_bytes)
{
    const void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(message_pack_end(puppet->pack, &bytes, &size), STATUS_OK);
    assert_true(zmq_send(puppet->socket, bytes, size, attachment != NULL ? ZMQ_SNDMORE : 0) >= 0);
    if (attachment != NULL) {
        assert_true(zmq_send(puppet->socket, attachment, attachment_bytes, 0) >= 0);
    }
}

static void puppet_hello(struct puppet *puppet, size_t elems, const char *sends)
{
    puppet_begin(puppet, "hello");
    message_put_uint(puppet->pack, "elems", elems);
    message_put_text(puppet->pack, "sends", sends);
    puppet_send(puppet, NULL, 0);
}

enum {
    SIXTEEN_FRAMES = 16 * (1 << 20) / 4 /* elements */
};

/* A socket that binds can only send once the other end has connected, so it waits in a thread. */
static void *greet(void *argument)
{
    puppet_hello(argument, SIXTEEN_FRAMES, "weights");
    return NULL;
}

static void test_at_most_eight_frames_are_on_their_way_and_a_cancel_ends_it(void **state)
{
    float *gradient = calloc(SIXTEEN_FRAMES, sizeof(*gradient));
    float *landing = calloc(SIXTEEN_FRAMES, sizeof(*landing));
    struct embedding_sync_config config;
    struct embedding_sync *sync = NULL;
    struct cancel cancel = {0};
    struct puppet puppet;
    pthread_t thread;
    int frames = 0;
    int quick_ms = 300;
    char part[16];

    (void)state;
    assert_non_null(gradient);
    assert_non_null(landing);
    puppet_open(&puppet, true);
    assert_int_equal(pthread_create(&thread, NULL, greet, &puppet), 0);
    config = configure(EMBEDDING_HEAD, SIXTEEN_FRAMES, &cancel);
    config.landing = landing;
    assert_int_equal(embedding_sync_open(&config, &sync), STATUS_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(embedding_sync_send_gradient(sync, 1, gradient), STATUS_OK);
    assert_true(zmq_recv(puppet.socket, part, sizeof(part), 0) > 0); /* its hello */
    while (zmq_recv(puppet.socket, part, sizeof(part), 0) > 0) {
        /* Body and attachment of a frame; nothing is acknowledged. */
        assert_int_equal(zmq_recv(puppet.socket, part, sizeof(part), 0), 1 << 20);
        frames++;
        if (frames == 8) {
            (void)zmq_setsockopt(puppet.socket, ZMQ_RCVTIMEO, &quick_ms, sizeof(quick_ms));
        }
    }
    assert_int_equal(frames, 8);
    cancel_request(&cancel);
    assert_int_equal(embedding_sync_wait_version(sync, 1, clock_deadline(PATIENCE_S)),
                     STATUS_ERR_CANCELLED);
    embedding_sync_close(&sync);
    puppet_close(&puppet);
    free(gradient);
    free(landing);
}

/* What the owner answers to one frame that is not as it should be. */
static void expect_bad_frame(int64_t step, uint64_t frame, size_t bytes, const char *reason)
{
    static const char raw[64];
    float landing[8] = {1.0F};
    struct embedding_sync_config config;
    struct embedding_sync *sync = NULL;
    struct cancel cancel = {0};
    struct puppet puppet;

    puppet_open(&puppet, false);
    puppet_hello(&puppet, 8, "gradient");
    config = configure(EMBEDDING_OWNER, 8, &cancel);
    config.landing = landing;
    assert_int_equal(embedding_sync_open(&config, &sync), STATUS_OK);
    puppet_begin(&puppet, "gradient");
    message_put_int(puppet.pack, "number", step);
    message_put_uint(puppet.pack, "frame", frame);
    puppet_send(&puppet, raw, bytes);
    assert_int_equal(embedding_sync_wait_gradient(sync, 1, clock_deadline(PATIENCE_S)),
                     STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, reason));
    assert_true(landing[0] == 1.0F);
    embedding_sync_close(&sync);
    puppet_close(&puppet);
}

static void test_frames_out_of_order_or_of_another_size_are_refused(void **state)
{
    (void)state;
    expect_bad_frame(1, 1, 32, "frame 1");
    expect_bad_frame(1, 0, 31, "31 bytes");
    expect_bad_frame(1, 0, 33, "33 bytes");
    expect_bad_frame(1, UINT64_MAX, 32, "does not follow");
}

static void test_a_gradient_of_a_later_step_is_not_taken_for_this_one(void **state)
{
    static const char raw[32];
    float landing[8];
    struct embedding_sync_config config;
    struct embedding_sync *sync = NULL;
    struct cancel cancel = {0};
    struct puppet puppet;

    (void)state;
    puppet_open(&puppet, false);
    puppet_hello(&puppet, 8, "gradient");
    config = configure(EMBEDDING_OWNER, 8, &cancel);
    config.landing = landing;
    assert_int_equal(embedding_sync_open(&config, &sync), STATUS_OK);
    puppet_begin(&puppet, "gradient");
    message_put_int(puppet.pack, "number", 2);
    message_put_uint(puppet.pack, "frame", 0);
    puppet_send(&puppet, raw, sizeof(raw));
    assert_int_equal(embedding_sync_wait_gradient(sync, 1, clock_deadline(PATIENCE_S)),
                     STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "step 1"));
    assert_non_null(strstr(status_last()->message, "step 2"));
    embedding_sync_close(&sync);
    puppet_close(&puppet);
}

int main(void)
{
#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(test_every_size_arrives_as_it_was_sent),
        IN_A_DIRECTORY(test_many_steps_follow_each_other),
        IN_A_DIRECTORY(test_a_step_that_is_skipped_brings_nothing_back),
        IN_A_DIRECTORY(test_ends_of_different_sizes_are_refused_with_both),
        IN_A_DIRECTORY(test_an_end_that_stays_alone_gives_up_at_its_deadline),
        IN_A_DIRECTORY(test_at_most_eight_frames_are_on_their_way_and_a_cancel_ends_it),
        IN_A_DIRECTORY(test_frames_out_of_order_or_of_another_size_are_refused),
        IN_A_DIRECTORY(test_a_gradient_of_a_later_step_is_not_taken_for_this_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
