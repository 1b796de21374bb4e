/* The embedding sync with its bytes on the data plane. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/embedding_sync.h"
#include "embedding_rig.h"

#define ELEMS 8

static void every_size_arrives_as_it_was_sent(void **state)
{
    static const size_t piece_elems = (1U << 20) / sizeof(float);
    const size_t sizes[] = {0,
                            1,
                            3,
                            piece_elems - 1,
                            piece_elems,
                            piece_elems + 1,
                            8 * piece_elems,
                            19 * piece_elems + 12345};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        embedding_expect_steps(true, sizes[i], 4, 3, 0);
        embedding_expect_steps(true, sizes[i], 2, 3, 0);
    }
}

static void many_steps_follow_each_other(void **state)
{
    (void)state;
    embedding_expect_steps(true, 1000003, 2, 40, 0);
}

static void a_step_that_is_skipped_brings_nothing_back(void **state)
{
    (void)state;
    embedding_expect_steps(true, 300001, 2, 20, 3);
}

/* Both have a data plane, or the one that has would wait for the other there. */
static void *join_as_head(void *argument)
{
    return embedding_join(EMBEDDING_HEAD, ELEMS * sizeof(float), argument) == STATUS_OK ? argument
                                                                                        : NULL;
}

static void join_both(struct comm *comms[2])
{
    pthread_t thread;
    void *joined = NULL;

    assert_int_equal(pthread_create(&thread, NULL, join_as_head, &comms[EMBEDDING_HEAD]), 0);
    assert_int_equal(
        embedding_join(EMBEDDING_OWNER, ELEMS * sizeof(float), &comms[EMBEDDING_OWNER]), STATUS_OK);
    assert_int_equal(pthread_join(thread, &joined), 0);
    assert_non_null(joined);
}

/* An owner whose head is a puppet. */
struct owner {
    struct comm *comms[2];
    struct embedding_puppet puppet;
    struct embedding_sync *sync;
    struct cancel cancel;
    float landing[ELEMS];
    float *gradient; /* of the head, in its shared block */
};

static enum status owner_open(struct owner *owner, const char *carrier, uint64_t offset)
{
    struct embedding_sync_config config =
        embedding_configure(EMBEDDING_OWNER, ELEMS, &owner->cancel);
    enum status status;

    *owner = (struct owner){.sync = NULL};
    join_both(owner->comms);
    owner->gradient = (float *)((unsigned char *)comm_shared(owner->comms[EMBEDDING_HEAD]) +
                                embedding_offset(EMBEDDING_HEAD));
    embedding_puppet_open(&owner->puppet, false);
    embedding_puppet_hello(&owner->puppet, ELEMS, "gradient", carrier, offset);
    config.landing = owner->landing;
    config.comm = owner->comms[EMBEDDING_OWNER];
    config.peer = EMBEDDING_HEAD;
    config.shared_offset = embedding_offset(EMBEDDING_OWNER);
    status = embedding_sync_open(&config, &owner->sync);
    if (status == STATUS_OK) {
        embedding_puppet_skip(&owner->puppet); /* its hello */
    }
    return status;
}

static void owner_close(struct owner *owner)
{
    embedding_sync_close(&owner->sync);
    embedding_puppet_close(&owner->puppet);
    comm_close(&owner->comms[EMBEDDING_OWNER]);
    comm_close(&owner->comms[EMBEDDING_HEAD]);
}

static void say(struct owner *owner, const char *kind, int64_t number)
{
    embedding_puppet_begin(&owner->puppet, kind);
    message_put_int(owner->puppet.pack, "number", number);
    embedding_puppet_send(&owner->puppet, NULL, 0);
}

static enum status wait_gradient(struct owner *owner, int64_t step)
{
    return embedding_sync_wait_gradient(owner->sync, step, clock_deadline(EMBEDDING_PATIENCE_S));
}

static void what_is_ready_is_read_and_then_done(void **state)
{
    struct owner owner;

    (void)state;
    assert_int_equal(owner_open(&owner, "data_plane", embedding_offset(EMBEDDING_HEAD)), STATUS_OK);
    for (int64_t step = 1; step <= 3; step++) {
        for (int i = 0; i < ELEMS; i++) {
            owner.gradient[i] = (float)(step * 100 + i);
        }
        say(&owner, "ready", step);
        embedding_puppet_skip(&owner.puppet); /* DONE */
        memset(owner.gradient, 0, ELEMS * sizeof(float));
        assert_int_equal(wait_gradient(&owner, step), STATUS_OK);
        for (int i = 0; i < ELEMS; i++) {
            assert_true(owner.landing[i] == (float)(step * 100 + i));
        }
    }
    owner_close(&owner);
}

static void ends_that_differ_in_the_carrier_are_refused_with_both(void **state)
{
    struct owner owner;
    struct embedding_sync_config config;
    struct embedding_puppet puppet;
    struct embedding_sync *sync = NULL;
    struct cancel cancel = {0};
    float landing[ELEMS];

    (void)state;
    assert_int_equal(owner_open(&owner, "zmq", 0), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "this end has the bytes carried by data_plane"));
    assert_non_null(strstr(status_last()->message, "the other by zmq"));
    owner_close(&owner);
    embedding_puppet_open(&puppet, false);
    embedding_puppet_hello(&puppet, ELEMS, "gradient", "data_plane", 0);
    config = embedding_configure(EMBEDDING_OWNER, ELEMS, &cancel);
    config.landing = landing;
    assert_int_equal(embedding_sync_open(&config, &sync), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "this end has the bytes carried by zmq"));
    assert_non_null(strstr(status_last()->message, "the other by data_plane"));
    embedding_puppet_close(&puppet);
}

static void a_place_that_cannot_be_is_refused(void **state)
{
    struct owner owner;

    (void)state;
    assert_int_equal(owner_open(&owner, "data_plane", UINT64_MAX - 3), STATUS_ERR_REFUSED);
    assert_non_null(strstr(status_last()->message, "18446744073709551612"));
    owner_close(&owner);
}

static void a_place_beyond_the_block_is_an_error_and_nothing_is_written(void **state)
{
    struct owner owner;

    (void)state;
    assert_int_equal(owner_open(&owner, "data_plane", 1U << 30), STATUS_OK);
    owner.landing[0] = 7.0F;
    say(&owner, "ready", 1);
    assert_int_equal(wait_gradient(&owner, 1), STATUS_ERR_INVALID);
    assert_non_null(strstr(status_last()->message, "1073741824"));
    assert_true(owner.landing[0] == 7.0F);
    owner_close(&owner);
}

/* Says two letters and expects that the wait for step 2 ends with `words`. */
static void expect_refusal(const char *first, int64_t first_number, const char *second,
                           int64_t second_number, const char *words)
{
    struct owner owner;

    assert_int_equal(owner_open(&owner, "data_plane", embedding_offset(EMBEDDING_HEAD)), STATUS_OK);
    say(&owner, first, first_number);
    if (second != NULL) {
        say(&owner, second, second_number);
    }
    assert_int_equal(wait_gradient(&owner, 2), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, words));
    owner_close(&owner);
}

static void letters_out_of_order_are_refused(void **state)
{
    (void)state;
    expect_refusal("ready", 0, NULL, 0, "gradient 0 that is ready does not follow");
    expect_refusal("ready", 1, "ready", 1, "gradient 1 that is ready does not follow");
    expect_refusal("done", 1, NULL, 0, "weights 1 is done, not ready");
    expect_refusal("gradient", 1, NULL, 0, "unknown kind 'gradient'");
    expect_refusal("ack", 1, NULL, 0, "unknown kind 'ack'");
}

/* The owner never waited for the first, so its landing buffer is taken. */
static void a_gradient_that_was_not_waited_for_is_not_overwritten(void **state)
{
    struct owner owner;

    (void)state;
    assert_int_equal(owner_open(&owner, "data_plane", embedding_offset(EMBEDDING_HEAD)), STATUS_OK);
    owner.gradient[0] = 1.0F;
    say(&owner, "ready", 1);
    embedding_puppet_skip(&owner.puppet); /* DONE */
    owner.gradient[0] = 2.0F;
    say(&owner, "ready", 2);
    assert_int_equal(wait_gradient(&owner, 2), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "gradient 2 that is ready does not follow"));
    assert_true(owner.landing[0] == 1.0F);
    owner_close(&owner);
}

static void a_gradient_of_a_later_step_is_not_taken_for_this_one(void **state)
{
    struct owner owner;

    (void)state;
    assert_int_equal(owner_open(&owner, "data_plane", embedding_offset(EMBEDDING_HEAD)), STATUS_OK);
    say(&owner, "ready", 2);
    assert_int_equal(wait_gradient(&owner, 1), STATUS_ERR_FORMAT);
    assert_non_null(strstr(status_last()->message, "step 1"));
    assert_non_null(strstr(status_last()->message, "step 2"));
    owner_close(&owner);
}

static void nothing_is_read_after_a_cancel(void **state)
{
    struct owner owner;
    int64_t begin_ns = clock_now_ns();

    (void)state;
    assert_int_equal(owner_open(&owner, "data_plane", embedding_offset(EMBEDDING_HEAD)), STATUS_OK);
    owner.landing[0] = 7.0F;
    cancel_request(&owner.cancel);
    say(&owner, "ready", 1);
    assert_int_equal(wait_gradient(&owner, 1), STATUS_ERR_CANCELLED);
    clock_sleep_ns(200 * CLOCK_MS);
    embedding_sync_close(&owner.sync);
    assert_true(owner.landing[0] == 7.0F);
    assert_true(clock_now_ns() - begin_ns < (int64_t)(EMBEDDING_PATIENCE_S * 1e9));
    owner_close(&owner);
}

int main(void)
{
#define IN_A_DIRECTORY(test) \
    cmocka_unit_test_setup_teardown(test, embedding_make_directory, embedding_remove_directory)
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(every_size_arrives_as_it_was_sent),
        IN_A_DIRECTORY(many_steps_follow_each_other),
        IN_A_DIRECTORY(a_step_that_is_skipped_brings_nothing_back),
        IN_A_DIRECTORY(what_is_ready_is_read_and_then_done),
        IN_A_DIRECTORY(ends_that_differ_in_the_carrier_are_refused_with_both),
        IN_A_DIRECTORY(a_place_that_cannot_be_is_refused),
        IN_A_DIRECTORY(a_place_beyond_the_block_is_an_error_and_nothing_is_written),
        IN_A_DIRECTORY(letters_out_of_order_are_refused),
        IN_A_DIRECTORY(a_gradient_that_was_not_waited_for_is_not_overwritten),
        IN_A_DIRECTORY(a_gradient_of_a_later_step_is_not_taken_for_this_one),
        IN_A_DIRECTORY(nothing_is_read_after_a_cancel),
    };

    return cmocka_run_group_tests_name("embedding_sync_read", tests, NULL, NULL);
}
