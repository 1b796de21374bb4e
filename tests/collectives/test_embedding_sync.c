#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <zmq.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "collectives/embedding_sync.h"
#include "collectives/message.h"
#include "embedding_rig.h"

static void test_every_size_arrives_as_it_was_sent(void **state)
{
    static const size_t frame_elems = (1U << 20) / sizeof(float);
    const size_t sizes[] = {0,
                            1,
                            3,
                            frame_elems - 1,
                            frame_elems,
                            frame_elems + 1,
                            8 * frame_elems,
                            8 * frame_elems + 1,
                            19 * frame_elems + 12345};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        embedding_expect_steps(false, sizes[i], 4, 3, 0);
        embedding_expect_steps(false, sizes[i], 2, 3, 0);
    }
}

/* A frame leaves when its last byte has come, and not before. */
static void test_what_comes_bit_by_bit_leaves_frame_by_frame(void **state)
{
    static const size_t frame_elems = (1U << 20) / sizeof(float);

    (void)state;
    embedding_expect_trickle(0, 4, 2);
    embedding_expect_trickle(1, 2, 3);
    embedding_expect_trickle(frame_elems, 4, 3);
    embedding_expect_trickle(3 * frame_elems + 1, 4, 3);
    embedding_expect_trickle(11 * frame_elems + 12345, 2, 3);
}

static void test_many_steps_follow_each_other(void **state)
{
    (void)state;
    embedding_expect_steps(false, 1000003, 2, 40, 0);
}

static void test_a_step_that_is_skipped_brings_nothing_back(void **state)
{
    (void)state;
    embedding_expect_steps(false, 300001, 2, 20, 3);
}

static void test_ends_of_different_sizes_are_refused_with_both(void **state)
{
    struct cancel cancel = {0};
    struct embedding_end owner = {.elems = 1000, .weight_bytes = 4, .cancel = &cancel};
    struct embedding_end head = {.elems = 1001, .weight_bytes = 4, .cancel = &cancel};

    (void)state;
    embedding_run_pair(&owner, &head);
    assert_int_equal(owner.opened, STATUS_ERR_REFUSED);
    assert_int_equal(head.opened, STATUS_ERR_REFUSED);
    assert_non_null(strstr(owner.text, "1000"));
    assert_non_null(strstr(owner.text, "1001"));
    assert_non_null(strstr(head.text, "1000"));
    assert_non_null(strstr(head.text, "1001"));
}

static void test_ends_of_different_number_formats_are_refused_with_both(void **state)
{
    struct cancel cancel = {0};
    struct embedding_end owner = {.elems = 1000, .weight_bytes = 2, .cancel = &cancel};
    struct embedding_end head = {.elems = 1000, .weight_bytes = 4, .cancel = &cancel};

    (void)state;
    embedding_run_pair(&owner, &head);
    assert_int_equal(owner.opened, STATUS_ERR_REFUSED);
    assert_int_equal(head.opened, STATUS_ERR_REFUSED);
    assert_non_null(strstr(owner.text, "this end has weights of 2 bytes"));
    assert_non_null(strstr(owner.text, "the other of 4; precision.dtype"));
    assert_non_null(strstr(head.text, "this end has weights of 4 bytes"));
    assert_non_null(strstr(head.text, "the other of 2; precision.dtype"));
}

static void test_an_end_that_stays_alone_gives_up_at_its_deadline(void **state)
{
    struct cancel cancel = {0};
    float landing[4];

    (void)state;
    for (int role = EMBEDDING_OWNER; role <= EMBEDDING_HEAD; role++) {
        struct embedding_sync *sync = NULL;
        struct embedding_sync_config config =
            embedding_configure((enum embedding_role)role, 4, &cancel);

        config.landing = landing;
        config.deadline_ns = clock_now_ns() + 50 * CLOCK_MS;
        assert_int_equal(embedding_sync_open(&config, &sync), STATUS_ERR_TIMEOUT);
        assert_null(sync);
    }
}

enum {
    SIXTEEN_FRAMES = 16 * (1 << 20) / 4 /* elements */
};

/* A socket that binds can only send once the other end has connected, so it waits in a thread. */
static void *greet(void *argument)
{
    embedding_puppet_hello(argument, SIXTEEN_FRAMES, "weights", "zmq", 0);
    return NULL;
}

static void test_at_most_eight_frames_are_on_their_way_and_a_cancel_ends_it(void **state)
{
    float *gradient = calloc(SIXTEEN_FRAMES, sizeof(*gradient));
    float *landing = calloc(SIXTEEN_FRAMES, sizeof(*landing));
    struct embedding_sync_config config;
    struct embedding_sync *sync = NULL;
    struct cancel cancel = {0};
    struct embedding_puppet puppet;
    pthread_t thread;
    int frames = 0;
    int quick_ms = 300;
    char part[16];

    (void)state;
    assert_non_null(gradient);
    assert_non_null(landing);
    embedding_puppet_open(&puppet, true);
    assert_int_equal(pthread_create(&thread, NULL, greet, &puppet), 0);
    config = embedding_configure(EMBEDDING_HEAD, SIXTEEN_FRAMES, &cancel);
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
    assert_int_equal(embedding_sync_wait_version(sync, 1, clock_deadline(EMBEDDING_PATIENCE_S)),
                     STATUS_ERR_CANCELLED);
    embedding_sync_close(&sync);
    embedding_puppet_close(&puppet);
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
    struct embedding_puppet puppet;

    embedding_puppet_open(&puppet, false);
    embedding_puppet_hello(&puppet, 8, "gradient", "zmq", 0);
    config = embedding_configure(EMBEDDING_OWNER, 8, &cancel);
    config.landing = landing;
    assert_int_equal(embedding_sync_open(&config, &sync), STATUS_OK);
    embedding_puppet_begin(&puppet, "gradient");
    message_put_int(puppet.pack, "number", step);
    message_put_uint(puppet.pack, "frame", frame);
    embedding_puppet_send(&puppet, raw, bytes);
    assert_int_equal(embedding_sync_wait_gradient(sync, 1, clock_deadline(EMBEDDING_PATIENCE_S)),
                     STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, reason));
    assert_true(landing[0] == 1.0F);
    embedding_sync_close(&sync);
    embedding_puppet_close(&puppet);
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
    struct embedding_puppet puppet;

    (void)state;
    embedding_puppet_open(&puppet, false);
    embedding_puppet_hello(&puppet, 8, "gradient", "zmq", 0);
    config = embedding_configure(EMBEDDING_OWNER, 8, &cancel);
    config.landing = landing;
    assert_int_equal(embedding_sync_open(&config, &sync), STATUS_OK);
    embedding_puppet_begin(&puppet, "gradient");
    message_put_int(puppet.pack, "number", 2);
    message_put_uint(puppet.pack, "frame", 0);
    embedding_puppet_send(&puppet, raw, sizeof(raw));
    assert_int_equal(embedding_sync_wait_gradient(sync, 1, clock_deadline(EMBEDDING_PATIENCE_S)),
                     STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "step 1"));
    assert_non_null(strstr(status_last()->message, "step 2"));
    embedding_sync_close(&sync);
    embedding_puppet_close(&puppet);
}

int main(void)
{
#define IN_A_DIRECTORY(test) \
    cmocka_unit_test_setup_teardown(test, embedding_make_directory, embedding_remove_directory)
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(test_every_size_arrives_as_it_was_sent),
        IN_A_DIRECTORY(test_what_comes_bit_by_bit_leaves_frame_by_frame),
        IN_A_DIRECTORY(test_many_steps_follow_each_other),
        IN_A_DIRECTORY(test_a_step_that_is_skipped_brings_nothing_back),
        IN_A_DIRECTORY(test_ends_of_different_sizes_are_refused_with_both),
        IN_A_DIRECTORY(test_ends_of_different_number_formats_are_refused_with_both),
        IN_A_DIRECTORY(test_an_end_that_stays_alone_gives_up_at_its_deadline),
        IN_A_DIRECTORY(test_at_most_eight_frames_are_on_their_way_and_a_cancel_ends_it),
        IN_A_DIRECTORY(test_frames_out_of_order_or_of_another_size_are_refused),
        IN_A_DIRECTORY(test_a_gradient_of_a_later_step_is_not_taken_for_this_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
