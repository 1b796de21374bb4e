/* The fake runtime itself: order, lateness, memory, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tensor/stream.h"
#include "tests/emulated/fake_cuda.h"
#include "tests/emulated/queued.h"

#define SEEDS 32

#define OK(call) assert_int_equal((call), cudaSuccess)

/* Two streams, an event, a number on the GPU and one in pinned memory. */
struct bench {
    cudaStream_t queues[2];
    struct stream *streams[2];
    cudaEvent_t event;
    float *number;
    float *pinned;
};

static void bench_make(struct bench *b, uint64_t seed)
{
    fake_cuda_reset(seed);
    for (int i = 0; i < 2; i++) {
        struct gpu_queue queue = {0};

        OK(cudaStreamCreateWithFlags(&b->queues[i], cudaStreamNonBlocking));
        queue.handle = b->queues[i];
        assert_int_equal(stream_create_queue(&queue, &b->streams[i]), STATUS_OK);
    }
    OK(cudaEventCreateWithFlags(&b->event, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&b->number, sizeof(float)));
    OK(cudaMallocHost((void **)&b->pinned, sizeof(float)));
}

static void bench_free(struct bench *b)
{
    for (int i = 0; i < 2; i++) {
        stream_destroy(&b->streams[i]);
        OK(cudaStreamDestroy(b->queues[i]));
    }
    OK(cudaEventDestroy(b->event));
    OK(cudaFree(b->number));
    OK(cudaFreeHost(b->pinned));
    assert_int_equal(fake_cuda_left(), 0);
}

static void put(const struct bench *b, int stream)
{
    OK(cudaMemcpyAsync(b->number, b->pinned, sizeof(float), cudaMemcpyHostToDevice,
                       b->queues[stream]));
}

static void get(const struct bench *b, int stream)
{
    OK(cudaMemcpyAsync(b->pinned, b->number, sizeof(float), cudaMemcpyDeviceToHost,
                       b->queues[stream]));
}

static void a_stream_runs_in_its_order_and_only_when_somebody_waits(void **state)
{
    struct bench b;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        bench_make(&b, seed);
        *b.pinned = 3.0F;
        put(&b, 0);
        assert_int_equal(queued_scale(b.number, 2.0F, 1.0F, b.streams[0]), STATUS_OK);
        assert_int_equal(queued_scale(b.number, 10.0F, 0.0F, b.streams[0]), STATUS_OK);
        get(&b, 0);
        assert_int_equal(fake_cuda_pending(), 4);
        assert_true(*b.pinned == 3.0F);
        OK(cudaStreamSynchronize(b.queues[0]));
        assert_true(*b.pinned == 70.0F);
        assert_int_equal(fake_cuda_pending(), 0);
        bench_free(&b);
    }
}

/* Writes 5 on one stream and reads on the other, which waits or does not. */
static float across(uint64_t seed, int wait)
{
    struct bench b;
    float found;

    bench_make(&b, seed);
    *b.pinned = 5.0F;
    put(&b, 0);
    OK(cudaEventRecord(b.event, b.queues[0]));
    if (wait) {
        OK(cudaStreamWaitEvent(b.queues[1], b.event, 0));
    }
    assert_int_equal(queued_scale(b.number, 1.0F, 1.0F, b.streams[1]), STATUS_OK);
    get(&b, 1);
    OK(cudaStreamSynchronize(b.queues[1]));
    found = *b.pinned;
    bench_free(&b);
    return found;
}

static void a_wait_for_an_event_orders_streams_and_one_that_is_missing_shows(void **state)
{
    int wrong = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_true(across(seed, 1) == 6.0F);
        wrong += across(seed, 0) != 6.0F;
    }
    assert_true(wrong > SEEDS / 4);
}

/* A wait is for the record that was there when it was asked for. */
static void an_event_stands_for_its_last_record(void **state)
{
    struct bench b;
    int flag = 0;

    (void)state;
    bench_make(&b, 1);
    OK(cudaEventQuery(b.event)); /* never recorded */
    OK(cudaStreamWaitEvent(b.queues[1], b.event, 0));
    assert_int_equal(fake_cuda_pending(), 0);
    OK(cudaEventRecord(b.event, b.queues[0]));
    OK(cudaEventSynchronize(b.event));
    OK(cudaStreamWaitEvent(b.queues[1], b.event, 0));
    OK(queued_until(b.queues[0], &flag));
    OK(cudaEventRecord(b.event, b.queues[0]));
    OK(cudaStreamSynchronize(b.queues[1])); /* whose wait was for the first record */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(cudaEventQuery(b.event), cudaErrorNotReady);
        assert_int_equal(cudaStreamQuery(b.queues[0]), cudaErrorNotReady);
    }
    flag = 1;
    OK(cudaEventSynchronize(b.event));
    OK(cudaEventQuery(b.event));
    OK(cudaStreamQuery(b.queues[0]));
    bench_free(&b);
}

static void questions_bring_the_end_nearer_and_are_answered_truthfully(void **state)
{
    struct bench b;
    int not_yet = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudaError_t found = cudaErrorNotReady;

        bench_make(&b, seed);
        *b.pinned = 1.0F;
        put(&b, 0);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(queued_scale(b.number, 2.0F, 0.0F, b.streams[0]), STATUS_OK);
        }
        get(&b, 0);
        OK(cudaEventRecord(b.event, b.queues[0]));
        for (int i = 0; i < 1000 && found == cudaErrorNotReady; i++) {
            found = cudaEventQuery(b.event);
            not_yet += found == cudaErrorNotReady;
        }
        OK(found);
        assert_true(*b.pinned == 64.0F);
        bench_free(&b);
    }
    assert_true(not_yet > SEEDS);
}

/* Memory of the host's is read and written late, so that who changes it too early has changed what arrives. */
static void memory_of_the_host_is_copied_late(void **state)
{
    struct bench b;
    float pageable = 7.0F;

    (void)state;
    bench_make(&b, 1);
    OK(cudaMemcpyAsync(b.number, &pageable, sizeof(float), cudaMemcpyDefault, b.queues[0]));
    pageable = 8.0F;
    get(&b, 0);
    OK(cudaStreamSynchronize(b.queues[0]));
    assert_true(*b.pinned == 8.0F);
    OK(cudaMemcpyAsync(&pageable, b.number, sizeof(float), cudaMemcpyDefault, b.queues[0]));
    pageable = 0.0F;
    OK(cudaStreamSynchronize(b.queues[0]));
    assert_true(pageable == 8.0F);
    *b.pinned = 9.0F;
    put(&b, 0);
    *b.pinned = 10.0F;
    get(&b, 0);
    *b.pinned = 11.0F;
    OK(cudaStreamSynchronize(b.queues[0]));
    assert_true(*b.pinned == 11.0F); /* what it was when the copy ran */
    bench_free(&b);
}

static void read_number(struct bench *b)
{
    *b->pinned = *(volatile float *)b->number;
}

static void write_number(struct bench *b)
{
    *(volatile float *)b->number = 1.0F;
}

/* Allocations end on a page, so that 64 floats are what there is. */
static void write_beyond(struct bench *b)
{
    (void)queued_scale(b->number + 64, 1.0F, 1.0F, b->streams[0]);
    (void)cudaStreamSynchronize(b->queues[0]);
}

static void write_behind(struct bench *b)
{
    (void)queued_scale(b->number + 1, 0.0F, 1.0F, b->streams[0]);
    (void)cudaFree(b->number);
}

static void host_code(void *context)
{
    read_number(context);
}

static void read_in_host_function(struct bench *b)
{
    (void)cudaLaunchHostFunc(b->queues[0], host_code, b);
    (void)cudaStreamSynchronize(b->queues[0]);
}

static void ends_itself(void (*wrong)(struct bench *b), int signal_number)
{
    struct bench b;
    int code = 0;
    pid_t child;

    bench_make(&b, 1);
    child = fork();
    if (child == 0) {
        (void)close(STDERR_FILENO);
        (void)signal(SIGSEGV, SIG_DFL);
        (void)alarm(20);
        wrong(&b);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    assert_int_equal(WTERMSIG(code), signal_number);
    bench_free(&b);
}

static void memory_of_the_gpu_is_closed_to_the_host_and_guarded(void **state)
{
    (void)state;
    ends_itself(read_number, SIGSEGV);
    ends_itself(write_number, SIGSEGV);
    ends_itself(read_in_host_function, SIGSEGV);
    ends_itself(write_beyond, SIGSEGV);
    ends_itself(write_behind, SIGABRT);
}

static void fresh_memory_is_not_a_number(void **state)
{
    struct bench b;

    (void)state;
    bench_make(&b, 1);
    assert_true(isnan(*b.pinned));
    *b.pinned = 0.0F;
    get(&b, 0);
    OK(cudaStreamSynchronize(b.queues[0]));
    assert_true(isnan(*b.pinned));
    OK(cudaMemsetAsync(b.number, 0, sizeof(float), b.queues[0]));
    get(&b, 0);
    OK(cudaStreamSynchronize(b.queues[0]));
    assert_true(*b.pinned == 0.0F);
    bench_free(&b);
}

static void what_is_wrong_is_refused(void **state)
{
    struct bench b;
    cudaStream_t stream = NULL;
    float one = 1.0F;

    (void)state;
    bench_make(&b, 1);
    assert_int_equal(cudaMemcpyAsync(b.number, b.pinned, 8, cudaMemcpyHostToDevice, b.queues[0]),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(b.number, b.pinned, 4, cudaMemcpyDeviceToDevice, b.queues[0]),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(b.number, 0, 5, b.queues[0]), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(&one), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(b.pinned), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(8), cudaErrorInvalidDevice);
    assert_int_equal(fake_cuda_pending(), 0);
    OK(cudaFree(b.number));
    assert_int_equal(cudaFree(b.number), cudaErrorInvalidValue);
    OK(cudaMalloc((void **)&b.number, 4));
    bench_free(&b);
}

static void failures_come_when_they_are_ordered(void **state)
{
    struct bench b;
    void *memory = NULL;
    int count = 1;

    (void)state;
    bench_make(&b, 1);
    fake_cuda_fail_malloc(2);
    OK(cudaMalloc(&memory, 8));
    OK(cudaFree(memory));
    assert_int_equal(cudaMalloc(&memory, 8), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&memory, 8));
    OK(cudaFree(memory));
    fake_cuda_memory(1000);
    assert_int_equal(cudaMalloc(&memory, 997), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&memory, 996));
    OK(cudaFree(memory));
    fake_cuda_devices(0, 0, 0);
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    assert_int_equal(count, 0);
    bench_free(&b);
}

static void a_kernel_that_fails_ends_everything_behind_it(void **state)
{
    struct bench b;

    (void)state;
    bench_make(&b, 1);
    fake_cuda_fail_launch(2);
    *b.pinned = 1.0F;
    put(&b, 0);
    assert_int_equal(queued_scale(b.number, 2.0F, 0.0F, b.streams[0]), STATUS_OK);
    assert_int_equal(queued_scale(b.number, 2.0F, 0.0F, b.streams[0]), STATUS_OK);
    get(&b, 0);
    assert_int_equal(cudaStreamSynchronize(b.queues[0]), cudaErrorIllegalAddress);
    assert_true(*b.pinned == 1.0F);
    assert_int_equal(cudaStreamQuery(b.queues[1]), cudaErrorIllegalAddress);
    assert_int_equal(queued_scale(b.number, 2.0F, 0.0F, b.streams[1]), STATUS_ERR_CUDA);
    assert_non_null(strstr(status_last()->message, "an illegal memory access was encountered"));
    stream_destroy(&b.streams[0]);
    stream_destroy(&b.streams[1]);
    fake_cuda_reset(1);
}

/* A helper of the thread that has the GPU: what it waits for, and how it ends the wait. */
struct helper {
    pthread_t thread;
    struct fake_gpu *gpu;
    struct bench *b;
    int flag;
    int abort;
    cudaError_t found;
};

static void *helper_main(void *argument)
{
    struct helper *helper = argument;

    assert_ptr_not_equal(fake_cuda_gpu(), helper->gpu);
    fake_cuda_use(helper->gpu);
    clock_sleep_ns(20 * CLOCK_MS);
    if (helper->abort) {
        fake_cuda_abort(helper->gpu);
    } else {
        __atomic_store_n(&helper->flag, 1, __ATOMIC_RELEASE);
    }
    helper->found = cudaStreamSynchronize(helper->b->queues[0]);
    return NULL;
}

static void wait_with_help(struct bench *b, int abort_it, cudaError_t expected)
{
    struct helper helper = {.gpu = fake_cuda_gpu(), .b = b, .abort = abort_it};

    OK(queued_until(b->queues[0], &helper.flag));
    assert_int_equal(pthread_create(&helper.thread, NULL, helper_main, &helper), 0);
    assert_int_equal(cudaStreamSynchronize(b->queues[0]), expected);
    assert_int_equal(pthread_join(helper.thread, NULL), 0);
    assert_int_equal(helper.found, expected);
}

static void an_operation_is_tried_until_it_has_ended_or_the_gpu_is_lost(void **state)
{
    struct bench b;

    (void)state;
    bench_make(&b, 1);
    wait_with_help(&b, 0, cudaSuccess);
    *b.pinned = 4.0F;
    put(&b, 0);
    wait_with_help(&b, 1, cudaErrorLaunchFailure);
    assert_int_equal(fake_cuda_pending(), 0);
    stream_destroy(&b.streams[0]);
    stream_destroy(&b.streams[1]);
    fake_cuda_reset(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_runs_in_its_order_and_only_when_somebody_waits),
        cmocka_unit_test(a_wait_for_an_event_orders_streams_and_one_that_is_missing_shows),
        cmocka_unit_test(an_event_stands_for_its_last_record),
        cmocka_unit_test(questions_bring_the_end_nearer_and_are_answered_truthfully),
        cmocka_unit_test(memory_of_the_host_is_copied_late),
        cmocka_unit_test(memory_of_the_gpu_is_closed_to_the_host_and_guarded),
        cmocka_unit_test(fresh_memory_is_not_a_number),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(failures_come_when_they_are_ordered),
        cmocka_unit_test(a_kernel_that_fails_ends_everything_behind_it),
        cmocka_unit_test(an_operation_is_tried_until_it_has_ended_or_the_gpu_is_lost),
    };

    return cmocka_run_group_tests_name("fake_cuda", tests, NULL, NULL);
}
