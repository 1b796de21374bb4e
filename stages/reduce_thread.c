#include "stages/reduce_thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"

struct reduce_thread {
    reduce_thread_fn run; /* set at open, as what follows */
    void *context;
    int32_t capacity;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Protected by `mutex`. Item k lies in items[k mod capacity]; those in [ended, given) are to do. */
    int64_t given;
    int64_t ended;
    bool closing;
    struct status_record failure; /* its code is STATUS_OK until something has failed */
    int32_t items[];
};

static void *run_items(void *argument)
{
    struct reduce_thread *thread = argument;

    (void)pthread_mutex_lock(&thread->mutex);
    while (!thread->closing) {
        if (thread->ended == thread->given || thread->failure.code < 0) {
            (void)pthread_cond_wait(&thread->changed, &thread->mutex);
            continue;
        }
        int32_t item = thread->items[thread->ended % thread->capacity];
        enum status status = STATUS_OK;

        (void)pthread_mutex_unlock(&thread->mutex);
        status = thread->run(thread->context, item);
        (void)pthread_mutex_lock(&thread->mutex);
        thread->ended++;
        if (status < 0) {
            thread->failure = *status_last();
            thread->failure.code = status;
        }
        (void)pthread_cond_broadcast(&thread->changed);
    }
    (void)pthread_mutex_unlock(&thread->mutex);
    return NULL;
}

/* Waits count on CLOCK_MONOTONIC, as all deadlines do. */
static void init_locks(struct reduce_thread *thread)
{
    pthread_condattr_t attributes;

    (void)pthread_mutex_init(&thread->mutex, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&thread->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

static void release(struct reduce_thread *thread)
{
    (void)pthread_cond_destroy(&thread->changed);
    (void)pthread_mutex_destroy(&thread->mutex);
    free(thread);
}

/* Signals are for the main thread, so the new one blocks all of them from its first moment. */
static int start(struct reduce_thread *thread)
{
    sigset_t all;
    sigset_t before;
    int error = 0;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread->thread, NULL, run_items, thread);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

enum status reduce_thread_open(reduce_thread_fn run, void *context, int32_t capacity,
                               struct reduce_thread **thread_out)
{
    size_t items_bytes = (size_t)capacity * sizeof(int32_t);
    struct reduce_thread *thread = calloc(1, sizeof(*thread) + items_bytes);
    int error = 0;

    ENSURE(capacity > 0, "a thread for %" PRId32 " items", capacity);
    if (thread == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "reduce thread: room for %" PRId32 " layers",
                           capacity);
    }
    thread->run = run;
    thread->context = context;
    thread->capacity = capacity;
    init_locks(thread);
    error = start(thread);
    if (error != 0) {
        release(thread);
        return status_fail(STATUS_ERR_NO_MEMORY, "reduce thread: starting it: error %d", error);
    }
    (void)pthread_setname_np(thread->thread, "weir-reduce");
    *thread_out = thread;
    return STATUS_OK;
}

int64_t reduce_thread_give(struct reduce_thread *thread, int32_t item)
{
    int64_t given = 0;

    (void)pthread_mutex_lock(&thread->mutex);
    ENSURE(thread->given - thread->ended < thread->capacity || thread->failure.code < 0,
           "%" PRId32 " items are to do already", thread->capacity);
    thread->items[thread->given % thread->capacity] = item;
    given = ++thread->given;
    (void)pthread_cond_broadcast(&thread->changed);
    (void)pthread_mutex_unlock(&thread->mutex);
    return given;
}

enum status reduce_thread_wait(struct reduce_thread *thread, int64_t count, int64_t most_ns)
{
    int64_t until_ns = clock_now_ns() + most_ns;
    const struct timespec at = {.tv_sec = (time_t)(until_ns / CLOCK_SECOND),
                                .tv_nsec = (long)(until_ns % CLOCK_SECOND)};
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&thread->mutex);
    while (thread->failure.code >= 0 && thread->ended < count && clock_now_ns() < until_ns) {
        (void)pthread_cond_timedwait(&thread->changed, &thread->mutex, &at);
    }
    if (thread->failure.code < 0) {
        status_adopt(&thread->failure);
        status = thread->failure.code;
    } else if (thread->ended < count) {
        status = STATUS_IN_PROGRESS;
    }
    (void)pthread_mutex_unlock(&thread->mutex);
    return status;
}

void reduce_thread_close(struct reduce_thread **thread_ref)
{
    struct reduce_thread *thread = *thread_ref;

    if (thread == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&thread->mutex);
    thread->closing = true;
    (void)pthread_cond_broadcast(&thread->changed);
    (void)pthread_mutex_unlock(&thread->mutex);
    (void)pthread_join(thread->thread, NULL);
    release(thread);
    *thread_ref = NULL;
}
