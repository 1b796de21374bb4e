/* Batches are filled ahead by another thread: order, waits, rewinds and the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "stages/data/loader.h"

#define T     8
#define M     3
#define B     2
#define BYTES 1009

static char path[64];
static struct dataset *dataset;

/* Byte i of the text is i · 7 mod 251, so that a token tells where it stands. */
static int32_t byte_at(int64_t place)
{
    return (int32_t)(place * 7 % 251);
}

static int open_text(void **state)
{
    struct dataset_config config = {
        .path = path, .format = DATASET_TEXT, .positions = T, .vocab = 256, .end = 1.0};
    unsigned char text[BYTES];
    FILE *file = NULL;
    int descriptor = -1;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/weir-loader-XXXXXX");
    descriptor = mkstemp(path);
    file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    for (int i = 0; i < BYTES; i++) {
        text[i] = (unsigned char)byte_at(i);
    }
    if (file == NULL || fwrite(text, 1, BYTES, file) != BYTES || fclose(file) != 0) {
        return -1;
    }
    return dataset_open(&config, &dataset) == STATUS_OK ? 0 : -1;
}

static int close_text(void **state)
{
    (void)state;
    dataset_close(&dataset);
    return unlink(path);
}

static struct loader_config both(void)
{
    struct loader_config config;

    memset(&config, 0, sizeof(config));
    config.dataset = dataset;
    config.sampler.samples = dataset_samples(dataset);
    config.sampler.micro_batch_size = B;
    config.sampler.replicas = 1;
    config.microbatches = M;
    config.positions = T;
    config.wants_tokens = true;
    config.wants_targets = true;
    config.limit = INT64_MAX;
    return config;
}

static void take(struct loader *loader, struct loader_batch *batch)
{
    assert_int_equal(loader_take(loader, NULL, clock_deadline(30.0), batch), STATUS_OK);
}

/* In order: row r of the step that begins at `consumed` is sample (consumed + r) mod samples. */
static void assert_batch(const struct loader_batch *batch, int64_t consumed)
{
    assert_int_equal(batch->consumed, consumed);
    for (int64_t row = 0; row < (int64_t)M * B; row++) {
        int64_t first = (consumed + row) % dataset_samples(dataset) * T;

        for (int64_t t = 0; t < T; t++) {
            if (batch->tokens != NULL) {
                assert_int_equal(batch->tokens[row * T + t], byte_at(first + t));
            }
            if (batch->targets != NULL) {
                assert_int_equal(batch->targets[row * T + t], byte_at(first + t + 1));
            }
        }
    }
}

static void steps_come_in_order_over_many_epochs(void **state)
{
    struct loader_config config = both();
    struct loader *loader = NULL;
    struct loader_batch batch;

    (void)state;
    assert_int_equal(dataset_samples(dataset), 126);
    config.consumed = 1000;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    for (int64_t step = 0; step < 300; step++) {
        take(loader, &batch);
        assert_batch(&batch, 1000 + step * M * B);
        assert_int_equal(batch.target_count, M * B * T);
    }
    loader_close(&loader);
    assert_null(loader);
}

static void a_lent_batch_stays_as_it_is_until_the_next_take(void **state)
{
    struct loader_config config = both();
    struct loader *loader = NULL;
    struct loader_batch batch;
    int64_t targets = 0;

    (void)state;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    for (int64_t step = 0; step < 100; step++) {
        take(loader, &batch);
        /* The next one is ready, so whatever filling it could spoil is spoiled by now. */
        assert_int_equal(loader_peek_targets(loader, NULL, clock_deadline(30.0), &targets),
                         STATUS_OK);
        assert_int_equal(targets, M * B * T);
        assert_batch(&batch, step * M * B);
    }
    loader_close(&loader);
}

static void a_stage_gets_only_what_it_wants(void **state)
{
    struct loader_config config = both();
    struct loader *loader = NULL;
    struct loader_batch batch;

    (void)state;
    config.wants_targets = false;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    take(loader, &batch);
    assert_non_null(batch.tokens);
    assert_null(batch.targets);
    assert_null(batch.mask);
    assert_int_equal(batch.target_count, 0);
    assert_batch(&batch, 0);
    loader_close(&loader);

    config.wants_targets = true;
    config.wants_tokens = false;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    take(loader, &batch);
    assert_null(batch.tokens);
    assert_non_null(batch.mask);
    assert_int_equal(batch.target_count, M * B * T);
    assert_batch(&batch, 0);
    loader_close(&loader);
}

/* Micro-batch i of replica d holds the numbers (i·dp + d)·B … of the global batch. */
static void replicas_share_the_global_batch_out(void **state)
{
    (void)state;
    for (int64_t replica = 0; replica < 2; replica++) {
        struct loader_config config = both();
        struct loader *loader = NULL;
        struct loader_batch batch;

        config.sampler.replicas = 2;
        config.sampler.replica = replica;
        assert_int_equal(loader_open(&config, &loader), STATUS_OK);
        for (int64_t step = 0; step < 3; step++) {
            take(loader, &batch);
            assert_int_equal(batch.consumed, step * M * B * 2);
            for (int64_t i = 0; i < M; i++) {
                int64_t number = step * M * B * 2 + (i * 2 + replica) * B;

                assert_int_equal(batch.tokens[i * B * T], byte_at(number * T));
            }
        }
        loader_close(&loader);
    }
}

static void a_rewind_starts_again_wherever_the_thread_is(void **state)
{
    struct loader_config config = both();
    struct loader *loader = NULL;
    struct loader_batch batch;

    (void)state;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    for (int64_t round = 0; round < 500; round++) {
        assert_int_equal(loader_rewind(loader, round), STATUS_OK);
        if (round % 3 == 0) {
            continue; /* the thread is in the middle of a batch that nobody wants now */
        }
        take(loader, &batch);
        assert_batch(&batch, round);
        take(loader, &batch);
        assert_batch(&batch, round + (int64_t)M * B);
    }
    loader_close(&loader);
}

/* One large micro-batch, and rewinds at many distances from the start of filling it, so that many
 * of them fall into its middle. */
static void a_batch_begun_before_a_rewind_is_never_lent(void **state)
{
    struct loader_config config = both();
    struct loader *loader = NULL;
    struct loader_batch batch;

    (void)state;
    config.microbatches = 1;
    config.sampler.micro_batch_size = 10000;
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    for (int64_t round = 0; round < 100; round++) {
        assert_int_equal(loader_rewind(loader, round), STATUS_OK);
        take(loader, &batch);
        assert_batch(&batch, round);
        for (int64_t i = 0; i < 10 * round; i++) {
            (void)sched_yield();
        }
    }
    loader_close(&loader);
}

static void a_cancelled_wait_ends_and_the_loader_goes_on(void **state)
{
    struct loader_config config = both();
    struct loader *loader = NULL;
    struct loader_batch batch;
    struct cancel cancel = {0};
    int64_t targets = 0;
    enum status status = STATUS_OK;

    (void)state;
    cancel_request(&cancel);
    assert_int_equal(loader_open(&config, &loader), STATUS_OK);
    /* Whether a batch is ready is up to the thread: a batch, or the reason why there is none. */
    for (int64_t step = 0; step < 10; step++) {
        status = loader_take(loader, &cancel, CLOCK_NEVER, &batch);
        assert_true(status == STATUS_OK || status == STATUS_ERR_CANCELLED);
        status = loader_take(loader, NULL, 0, &batch);
        assert_true(status == STATUS_OK || status == STATUS_ERR_TIMEOUT);
        status = loader_peek_targets(loader, &cancel, CLOCK_NEVER, &targets);
        assert_true(status == STATUS_OK || status == STATUS_ERR_CANCELLED);
    }
    take(loader, &batch);
    assert_batch(&batch, batch.consumed);
    loader_close(&loader);
}

static void a_loader_that_is_closed_at_once_leaves_nothing(void **state)
{
    struct loader *loader = NULL;

    (void)state;
    for (int i = 0; i < 200; i++) {
        struct loader_config config = both();

        assert_int_equal(loader_open(&config, &loader), STATUS_OK);
        loader_close(&loader);
    }
    loader_close(&loader);
}

/* Two steps of 3 · 2 sequences of 8: 48 numbers of 4 bytes an array, in room for 64. */
static void what_is_planned_is_what_is_taken(void **state)
{
    static const struct {
        bool tokens;
        bool targets;
        size_t bytes;
    } wanted[] = {{true, false, 512}, {false, true, 1024}, {true, true, 1536}};

    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        struct loader_config config = both();
        struct loader *loader = NULL;
        size_t planned = 0;

        config.wants_tokens = wanted[i].tokens;
        config.wants_targets = wanted[i].targets;
        assert_int_equal(loader_plan_bytes(&config, &planned), STATUS_OK);
        assert_int_equal(planned, wanted[i].bytes);
        assert_int_equal(loader_open(&config, &loader), STATUS_OK);
        assert_int_equal(loader_used_bytes(loader), wanted[i].bytes);
        loader_close(&loader);
    }
    assert_int_equal(loader_used_bytes(NULL), 0);
}

static void buffers_beyond_all_memory_are_no_overflow(void **state)
{
    struct loader_config config = both();
    struct loader *loader = NULL;
    size_t planned = 0;

    (void)state;
    config.microbatches = INT64_MAX / 4;
    config.sampler.micro_batch_size = 1;
    assert_int_equal(loader_plan_bytes(&config, &planned), STATUS_ERR_NO_MEMORY);
    assert_int_equal(loader_open(&config, &loader), STATUS_ERR_NO_MEMORY);
    assert_null(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_in_order_over_many_epochs),
        cmocka_unit_test(a_lent_batch_stays_as_it_is_until_the_next_take),
        cmocka_unit_test(a_stage_gets_only_what_it_wants),
        cmocka_unit_test(replicas_share_the_global_batch_out),
        cmocka_unit_test(a_rewind_starts_again_wherever_the_thread_is),
        cmocka_unit_test(a_batch_begun_before_a_rewind_is_never_lent),
        cmocka_unit_test(a_cancelled_wait_ends_and_the_loader_goes_on),
        cmocka_unit_test(a_loader_that_is_closed_at_once_leaves_nothing),
        cmocka_unit_test(what_is_planned_is_what_is_taken),
        cmocka_unit_test(buffers_beyond_all_memory_are_no_overflow),
    };

    return cmocka_run_group_tests_name("loader", tests, open_text, close_text);
}
