/* The GPU as a device, over the fake runtime. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/arena.h"
#include "tensor/cuda/device_cuda.h"
#include "tensor/cuda/gemm_cuda.h"
#include "tensor/device.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"
#include "tests/emulated/fake_cublaslt.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/queued.h"

#define SEEDS 8

static enum status open_gpu(int ordinal, struct device **device_out)
{
    const struct device_config config = {.threads = 1, .ordinal = ordinal};

    return device_open(device_cuda(), &config, device_out);
}

static struct device *open_fresh(uint64_t seed)
{
    struct device *device = NULL;

    fake_cuda_reset(seed);
    assert_int_equal(open_gpu(0, &device), STATUS_OK);
    return device;
}

static void close_whole(struct device *device)
{
    device_close(&device);
    assert_null(device);
    assert_int_equal(fake_cuda_left(), 0);
    assert_int_equal(fake_cublaslt_left(), 0);
}

static float *take(struct device *device, enum device_memory kind, size_t floats)
{
    void *memory = NULL;

    assert_int_equal(device_take(device, kind, "test", floats * sizeof(float), &memory), STATUS_OK);
    assert_int_equal((uintptr_t)memory % ARENA_ALIGN_BYTES, 0);
    return memory;
}

static void a_gpu_opens_with_table_stream_and_variant(void **state)
{
    struct device *device = open_fresh(1);
    const struct device_config config = {.threads = 1};

    (void)state;
    assert_int_equal(device_kind(device), DEVICE_CUDA);
    assert_int_equal(device_backend_kind(device_cuda()), DEVICE_CUDA);
    assert_false(device_tensors_are_here(device));
    assert_string_equal(device_kernels(device)->variant, "cuda");
    assert_non_null(stream_queue(device_stream(device)));
    assert_string_equal(device_variant(device), "cuda-sm_90 x132 cublaslt-13.0.2 driver-13.0");
    assert_true(device_scratch_bytes(device_cuda(), &config) >=
                GEMM_CUDA_WORKSPACE_BYTES + STREAM_PARTIALS_BYTES);
    close_whole(device);
}

static void assert_refused(int ordinal, const char *words)
{
    struct device *device = NULL;

    assert_int_equal(open_gpu(ordinal, &device), STATUS_ERR_UNSUPPORTED);
    assert_null(device);
    assert_non_null(strstr(status_last()->message, words));
    assert_int_equal(fake_cuda_left(), 0);
}

static void a_gpu_that_is_not_there_or_too_old_is_named(void **state)
{
    (void)state;
    fake_cuda_reset(1);
    fake_cuda_devices(2, 8, 0);
    assert_refused(2, "opening GPU 2: this host has 2");
    assert_refused(-1, "opening GPU -1: this host has 2");
    fake_cuda_devices(2, 7, 5);
    assert_refused(1, "its compute capability is 7.5, expected at least 8.0");
    fake_cuda_devices(0, 0, 0);
    assert_refused(0, "no CUDA-capable device is detected");
}

/* Whatever cannot be had, open() leaves nothing behind. */
static void an_open_that_fails_leaves_nothing(void **state)
{
    struct device *device = NULL;
    int failures = 0;

    (void)state;
    for (int nth = 1; nth < 10; nth++) {
        enum status status;

        fake_cuda_reset(1);
        fake_cuda_fail_malloc(nth);
        status = open_gpu(0, &device);
        if (status == STATUS_OK) {
            fake_cuda_fail_malloc(0);
            close_whole(device);
            break;
        }
        assert_int_equal(status, STATUS_ERR_NO_MEMORY);
        assert_non_null(strstr(status_last()->message, "out of memory"));
        assert_null(device);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        assert_int_equal(fake_cuda_left(), 0);
        assert_int_equal(fake_cublaslt_left(), 0);
        failures++;
    }
    assert_int_equal(failures, 3); /* partial sums, the mark, the library's workspace */
}

static void copies_and_kernels_keep_the_streams_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct device *device = open_fresh(seed);
        float *tensor = take(device, DEVICE_TENSORS, 3);
        float *host = take(device, DEVICE_HOST, 3);
        const float values[] = {1.0F, 2.0F, 3.0F};

        assert_true(host[0] == 0.0F && host[2] == 0.0F);
        assert_int_equal(device_copy(device, host, tensor, 12), STATUS_OK);
        assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
        assert_true(host[0] == 0.0F && host[2] == 0.0F);
        assert_int_equal(device_copy(device, tensor, values, sizeof(values)), STATUS_OK);
        assert_int_equal(queued_scale(tensor, 2.0F, 5.0F, device_stream(device)), STATUS_OK);
        assert_int_equal(device_zero(device, tensor + 1, 4), STATUS_OK);
        assert_int_equal(device_copy(device, host, tensor, 12), STATUS_OK);
        assert_int_equal(device_copy(device, NULL, NULL, 0), STATUS_OK);
        assert_true(host[0] == 0.0F); /* nothing has run yet */
        assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
        assert_true(host[0] == 7.0F && host[1] == 0.0F && host[2] == 3.0F);
        device_give(device, DEVICE_TENSORS, tensor, 12);
        device_give(device, DEVICE_HOST, host, 12);
        close_whole(device);
    }
}

static void memory_that_cannot_be_had_is_refused_with_what_there_is(void **state)
{
    struct device *device = open_fresh(1);
    void *memory = NULL;
    float *tensor = NULL;

    (void)state;
    fake_cuda_memory(((size_t)33 << 20) + STREAM_PARTIALS_BYTES);
    assert_int_equal(device_take(device, DEVICE_TENSORS, "moments", (size_t)2 << 20, &memory),
                     STATUS_ERR_NO_MEMORY);
    assert_non_null(strstr(status_last()->message, "allocating moments: 2097152 bytes"));
    assert_non_null(strstr(status_last()->message, "1048576 are free"));
    fake_cuda_fail_malloc(1);
    assert_int_equal(device_take(device, DEVICE_HOST, "staging", 8, &memory), STATUS_ERR_NO_MEMORY);
    assert_non_null(strstr(status_last()->message, "pinned"));
    /* A failure that was reported does not come back at the next launch. */
    tensor = take(device, DEVICE_TENSORS, 1);
    assert_int_equal(queued_scale(tensor, 1.0F, 1.0F, device_stream(device)), STATUS_OK);
    assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
    device_give(device, DEVICE_TENSORS, tensor, 4);
    close_whole(device);
}

static void a_wait_ends_at_its_deadline_or_with_the_job(void **state)
{
    struct device *device = open_fresh(1);
    struct cancel cancel = {0};
    int flag = 0;
    int64_t began;

    (void)state;
    assert_int_equal(queued_until(stream_queue(device_stream(device))->handle, &flag), cudaSuccess);
    began = clock_now_ns();
    assert_int_equal(device_wait(device, &cancel, began + 20 * CLOCK_MS), STATUS_ERR_TIMEOUT);
    assert_true(clock_now_ns() - began >= 20 * CLOCK_MS);
    assert_int_equal(device_mark(device, 1), STATUS_OK); /* a launch behind it goes on */
    cancel_request(&cancel);
    assert_int_equal(device_wait(device, &cancel, CLOCK_NEVER), STATUS_ERR_CANCELLED);
    flag = 1;
    assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
    close_whole(device);
}

static void marks_say_how_far_the_stream_has_come(void **state)
{
    struct device *device = open_fresh(1);
    int flag = 0;

    (void)state;
    assert_int_equal(device_marked(device), -1);
    assert_false(device_is_inside(device));
    assert_int_equal(device_enter(device), STATUS_OK);
    assert_int_equal(device_mark(device, 6), STATUS_OK);
    assert_int_equal(device_marked(device), -1);
    assert_int_equal(device_enter(device), STATUS_OK);
    assert_int_equal(queued_until(stream_queue(device_stream(device))->handle, &flag), cudaSuccess);
    assert_int_equal(device_mark(device, 7), STATUS_OK);
    assert_int_equal(device_wait(device, NULL, clock_now_ns() + 20 * CLOCK_MS), STATUS_ERR_TIMEOUT);
    assert_int_equal(device_marked(device), 6);
    assert_true(device_is_inside(device));
    assert_false(device_is_awaited(device));
    flag = 1;
    assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
    assert_int_equal(device_marked(device), 7);
    assert_false(device_is_inside(device));
    close_whole(device);
}

static void stamps_are_the_hosts_time_of_a_place_in_the_stream(void **state)
{
    const struct device_config config = {.threads = 1, .stamps = 3};
    struct device *device = NULL;
    int64_t before_ns = 0;
    int64_t after_ns = 0;
    int flag = 0;

    (void)state;
    fake_cuda_reset(1);
    assert_int_equal(device_open(device_cuda(), &config, &device), STATUS_OK);
    before_ns = clock_now_ns();
    assert_int_equal(device_stamp(device, 0), STATUS_OK);
    assert_int_equal(queued_until(stream_queue(device_stream(device))->handle, &flag), cudaSuccess);
    assert_int_equal(device_stamp(device, 1), STATUS_OK);
    assert_int_equal(device_wait(device, NULL, before_ns + 40 * CLOCK_MS), STATUS_ERR_TIMEOUT);
    flag = 1;
    assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
    after_ns = clock_now_ns();
    /* The float of an event's time has a resolution of its own: a microsecond is enough here. */
    assert_true(device_stamp_ns(device, 0) >= before_ns - 1000);
    assert_true(device_stamp_ns(device, 1) <= after_ns + 1000);
    assert_true(device_stamp_ns(device, 1) - device_stamp_ns(device, 0) >= 20 * CLOCK_MS);
    assert_int_equal(device_stamp_ns(device, 2), 0); /* never put */
    close_whole(device);
}

static void a_kernel_that_fails_is_reported_with_the_action_before_it(void **state)
{
    struct device *device = open_fresh(1);
    float *tensor = take(device, DEVICE_TENSORS, 1);

    (void)state;
    fake_cuda_fail_launch(2);
    assert_int_equal(device_mark(device, 41), STATUS_OK);
    assert_int_equal(queued_scale(tensor, 1.0F, 1.0F, device_stream(device)), STATUS_OK);
    assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_ERR_CUDA);
    assert_non_null(
        strstr(status_last()->message,
               "an illegal memory access was encountered; the last action to end was 41"));
    assert_int_equal(device_zero(device, tensor, 4), STATUS_ERR_CUDA);
    assert_int_equal(device_copy(device, tensor, tensor, 4), STATUS_ERR_CUDA);
    device_give(device, DEVICE_TENSORS, tensor, 4);
    device_close(&device);
    assert_int_equal(fake_cublaslt_left(), 0);
}

#define PART_FLOATS    (DEVICE_FETCH_PART_BYTES / sizeof(float))
#define FETCHED_FLOATS (3 * PART_FLOATS + 5)

/* Blocks until `bytes` of the fetch have come; they may not come late. */
static size_t fetch_at_least(struct device *device, size_t bytes)
{
    const int64_t deadline_ns = clock_deadline(20.0);
    size_t come = 0;

    while (come < bytes && clock_now_ns() < deadline_ns) {
        assert_int_equal(device_fetched(device, &come), STATUS_OK);
        assert_true(come % DEVICE_FETCH_PART_BYTES == 0 || come == FETCHED_FLOATS * sizeof(float));
    }
    return come;
}

/* A fetch goes on while the stream stands, part by part, and has what the stream had made before it. */
static void a_fetch_comes_beside_the_stream(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct device *device = open_fresh(seed);
        float *tensor = take(device, DEVICE_TENSORS, FETCHED_FLOATS);
        float *host = take(device, DEVICE_HOST, FETCHED_FLOATS);
        size_t come = 0;
        int flag = 0;

        for (int round = 1; round <= 2; round++) {
            flag = 0;
            assert_int_equal(device_zero(device, tensor, FETCHED_FLOATS * sizeof(float)),
                             STATUS_OK);
            assert_int_equal(queued_scale(tensor, 2.0F, (float)round, device_stream(device)),
                             STATUS_OK);
            assert_int_equal(queued_scale(tensor + 2 * PART_FLOATS, 1.0F, (float)round + 1.0F,
                                          device_stream(device)),
                             STATUS_OK);
            assert_int_equal(device_fetch(device, host, tensor, FETCHED_FLOATS * sizeof(float)),
                             STATUS_OK);
            assert_int_equal(queued_until(stream_queue(device_stream(device))->handle, &flag),
                             cudaSuccess);
            assert_int_equal(device_fetched(device, &come), STATUS_OK);
            assert_true(come < FETCHED_FLOATS * sizeof(float));
            assert_true(fetch_at_least(device, DEVICE_FETCH_PART_BYTES) >= DEVICE_FETCH_PART_BYTES);
            assert_true(host[0] == (float)round);
            assert_int_equal(fetch_at_least(device, FETCHED_FLOATS * sizeof(float)),
                             FETCHED_FLOATS * sizeof(float));
            assert_true(host[2 * PART_FLOATS] == (float)round + 1.0F);
            assert_true(host[FETCHED_FLOATS - 1] == 0.0F);
            flag = 1;
            assert_int_equal(device_wait(device, NULL, CLOCK_NEVER), STATUS_OK);
        }
        assert_int_equal(device_fetch(device, host, tensor, 0), STATUS_OK);
        assert_int_equal(device_fetched(device, &come), STATUS_OK);
        assert_int_equal(come, 0);
        device_give(device, DEVICE_TENSORS, tensor, FETCHED_FLOATS * sizeof(float));
        device_give(device, DEVICE_HOST, host, FETCHED_FLOATS * sizeof(float));
        close_whole(device);
    }
}

/* Under some order of the streams it takes what is not yet made. */
static void a_fetch_that_forgets_the_stream_is_caught(void **state)
{
    int caught = 0;

    (void)state;
    fake_cuda_forget_waits(1);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct device *device = open_fresh(seed);
        float *tensor = take(device, DEVICE_TENSORS, 1);
        float *host = take(device, DEVICE_HOST, 1);
        size_t come = 0;

        assert_int_equal(queued_scale(tensor, 1.0F, 7.0F, device_stream(device)), STATUS_OK);
        assert_int_equal(device_fetch(device, host, tensor, sizeof(float)), STATUS_OK);
        while (come == 0) {
            assert_int_equal(device_fetched(device, &come), STATUS_OK);
        }
        caught += host[0] != 7.0F ? 1 : 0;
        device_give(device, DEVICE_TENSORS, tensor, sizeof(float));
        device_give(device, DEVICE_HOST, host, sizeof(float));
        close_whole(device);
    }
    fake_cuda_forget_waits(0);
    assert_true(caught > 0);
}

/* With memory that a copy may run beside, too. */
static void a_copy_that_is_needed_now_has_ended(void **state)
{
    struct device *device = open_fresh(3);
    float *tensor = take(device, DEVICE_TENSORS, 1);
    float *host = take(device, DEVICE_HOST, 1);

    (void)state;
    assert_int_equal(queued_scale(tensor, 1.0F, 7.0F, device_stream(device)), STATUS_OK);
    assert_int_equal(device_copy_now(device, host, tensor, sizeof(float)), STATUS_OK);
    assert_true(host[0] == 7.0F);
    device_give(device, DEVICE_TENSORS, tensor, sizeof(float));
    device_give(device, DEVICE_HOST, host, sizeof(float));
    close_whole(device);
}

static void a_look_counts_the_gpus_or_says_why_there_is_none(void **state)
{
    char words[128];
    char narrow[8];

    (void)state;
    fake_cuda_reset(1);
    fake_cuda_devices(2, 8, 6);
    assert_int_equal(device_cuda_look(words, sizeof(words)), 2);
    assert_string_equal(words, "2 GPUs, the first of compute capability 8.6");
    fake_cuda_devices(1, 8, 0);
    assert_int_equal(device_cuda_look(words, sizeof(words)), 1);
    assert_string_equal(words, "1 GPU, the first of compute capability 8.0");
    fake_cuda_devices(2, 7, 5);
    assert_int_equal(device_cuda_look(words, sizeof(words)), 0);
    assert_string_equal(words, "GPU 0 has compute capability 7.5, expected at least 8.0");
    fake_cuda_devices(0, 0, 0);
    assert_int_equal(device_cuda_look(words, sizeof(words)), 0);
    assert_string_equal(words, cudaGetErrorString(cudaErrorNoDevice));
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(device_cuda_look(narrow, sizeof(narrow)), 0);
    assert_int_equal(narrow[7], '\0');
    assert_int_equal(fake_cuda_left(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_opens_with_table_stream_and_variant),
        cmocka_unit_test(a_gpu_that_is_not_there_or_too_old_is_named),
        cmocka_unit_test(a_look_counts_the_gpus_or_says_why_there_is_none),
        cmocka_unit_test(an_open_that_fails_leaves_nothing),
        cmocka_unit_test(copies_and_kernels_keep_the_streams_order),
        cmocka_unit_test(memory_that_cannot_be_had_is_refused_with_what_there_is),
        cmocka_unit_test(a_fetch_comes_beside_the_stream),
        cmocka_unit_test(a_fetch_that_forgets_the_stream_is_caught),
        cmocka_unit_test(a_copy_that_is_needed_now_has_ended),
        cmocka_unit_test(a_wait_ends_at_its_deadline_or_with_the_job),
        cmocka_unit_test(marks_say_how_far_the_stream_has_come),
        cmocka_unit_test(stamps_are_the_hosts_time_of_a_place_in_the_stream),
        cmocka_unit_test(a_kernel_that_fails_is_reported_with_the_action_before_it),
    };

    return cmocka_run_group_tests_name("device_cuda", tests, NULL, NULL);
}
