#include "tensor/stream.h"

#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "tensor/arena.h"

/* Waking a thread takes up to this long where its processor has gone to sleep (virtual machines
 * most of all), so spinning for as long costs at most twice what the better choice would. The
 * gaps between the kernels of one layer are shorter by far. */
#define SPIN_NS ((int64_t)50000)

/* Pauses between two looks at the clock. */
#define PAUSES 16

/* The atomics that members share lie on cache lines of their own. */
#define LINE_BYTES 128

struct member {
    pthread_t thread;
    struct stream *stream; /* borrows until the thread is joined */
    int part;
};

/* Three cache lines of atomics on purpose. NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
struct stream {
    _Alignas(LINE_BYTES) atomic_uint round; /* moves by one for each call; members wait for it */
    atomic_uint sleepers;                   /* members that may sleep on `round` */
    void *partials;                         /* owns; NULL for a queue, which has its own */
    _Alignas(LINE_BYTES) atomic_uint busy;  /* members that have not ended their part */
    atomic_uint caller_sleeps;              /* the caller may sleep on `busy` */
    stream_part_fn fn;                      /* this and the next: written before `round` moves */
    void *context;
    bool leave; /* likewise */
    int threads;
    int started;     /* members whose thread runs, the caller not counted */
    int64_t spin_ns; /* 0 where there are more members than processors */
    size_t scratch_floats;
    struct arena scratch_memory;        /* owns */
    float *scratch[STREAM_MAX_THREADS]; /* in scratch_memory */
    struct member members[STREAM_MAX_THREADS];
    struct gpu_queue queue; /* of CUDA; its handle is NULL for a team */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Returns at once where *word is no longer `value`; may return for no reason. */
static void futex_wait(atomic_uint *word, unsigned value)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int waiters)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters, NULL, NULL, 0);
}

/* Whether *word stopped being `value` while this thread watched it for `spin_ns`. */
static bool spin_while_equal(atomic_uint *word, unsigned value, int64_t spin_ns)
{
    const int64_t end_ns = spin_ns > 0 ? clock_now_ns() + spin_ns : 0;

    do {
        for (int pause = 0; pause < PAUSES; pause++) {
            if (atomic_load(word) != value) {
                return true;
            }
            relax();
        }
    } while (end_ns != 0 && clock_now_ns() < end_ns);
    return false;
}

/* Waits until *word is not `value`. `sleeping` counts who may sleep: it is raised before the
 * kernel compares the word, and the waker looks at it after it has changed the word, so one of
 * the two always sees the other. */
static void wait_while_equal(atomic_uint *word, unsigned value, atomic_uint *sleeping,
                             int64_t spin_ns)
{
    if (spin_while_equal(word, value, spin_ns)) {
        return;
    }
    (void)atomic_fetch_add(sleeping, 1);
    while (atomic_load(word) == value) {
        futex_wait(word, value);
    }
    (void)atomic_fetch_sub(sleeping, 1);
}

static void *member_main(void *argument)
{
    const struct member *member = argument;
    struct stream *stream = member->stream;
    unsigned seen = 0;

    omp_set_num_threads(1);
    for (;;) {
        wait_while_equal(&stream->round, seen, &stream->sleepers, stream->spin_ns);
        seen++;
        if (stream->leave) {
            return NULL;
        }
        stream->fn(stream->context, member->part, stream->threads);
        if (atomic_fetch_sub(&stream->busy, 1) == 1 && atomic_load(&stream->caller_sleeps) > 0) {
            futex_wake(&stream->busy, 1);
        }
    }
}

static void start_round(struct stream *stream)
{
    (void)atomic_fetch_add(&stream->round, 1);
    if (atomic_load(&stream->sleepers) > 0) {
        futex_wake(&stream->round, STREAM_MAX_THREADS);
    }
}

/* Members must not take the signals of the process: those are the main thread's. */
static enum status start_members(struct stream *stream)
{
    sigset_t all;
    sigset_t before;
    int error = 0;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int part = 1; part < stream->threads && error == 0; part++) {
        struct member *member = &stream->members[part];
        member->stream = stream;
        member->part = part;
        error = pthread_create(&member->thread, NULL, member_main, member);
        stream->started += error == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return status_fail(STATUS_ERR_NO_MEMORY,
                           "starting thread %d of %d of a compute team: %s; fewer threads or a "
                           "higher process limit is needed",
                           stream->started + 2, stream->threads, strerror(error));
    }
    return STATUS_OK;
}

/* Zeroed; NULL where there is no memory, which status_last() then says. */
static struct stream *take_stream(void)
{
    struct stream *stream = aligned_alloc(LINE_BYTES, sizeof(*stream));

    if (stream == NULL) {
        (void)status_fail(STATUS_ERR_NO_MEMORY, "creating a stream: %zu bytes", sizeof(*stream));
        return NULL;
    }
    memset(stream, 0, sizeof(*stream));
    return stream;
}

static enum status take_partials(struct stream *stream)
{
    stream->partials = aligned_alloc(LINE_BYTES, STREAM_PARTIALS_BYTES);
    return stream->partials != NULL
               ? STATUS_OK
               : status_fail(STATUS_ERR_NO_MEMORY, "creating a stream: %zu bytes",
                             STREAM_PARTIALS_BYTES);
}

enum status stream_create(int threads, struct stream **stream_out)
{
    cpu_set_t usable;
    struct stream *stream = NULL;
    enum status status = STATUS_OK;

    if (threads < 1 || threads > STREAM_MAX_THREADS) {
        return status_fail(STATUS_ERR_REFUSED, "a compute team of %d threads: expected 1 to %d",
                           threads, STREAM_MAX_THREADS);
    }
    stream = take_stream();
    if (stream == NULL) {
        return STATUS_ERR_NO_MEMORY;
    }
    stream->threads = threads;
    stream->spin_ns = SPIN_NS;
    if (sched_getaffinity(0, sizeof(usable), &usable) == 0 && CPU_COUNT(&usable) < threads) {
        stream->spin_ns = 0;
    }
    status = take_partials(stream);
    if (status == STATUS_OK) {
        status = start_members(stream);
    }
    if (status < 0) {
        stream_destroy(&stream);
        return status;
    }
    *stream_out = stream;
    return STATUS_OK;
}

enum status stream_create_queue(const struct gpu_queue *queue, struct stream **stream_out)
{
    struct stream *stream = NULL;

    ENSURE(queue->handle != NULL, "a stream of CUDA without a queue");
    stream = take_stream();
    if (stream == NULL) {
        return STATUS_ERR_NO_MEMORY;
    }
    stream->threads = 1;
    stream->queue = *queue;
    *stream_out = stream;
    return STATUS_OK;
}

int stream_threads(const struct stream *stream)
{
    return stream->threads;
}

void stream_run(struct stream *stream, stream_part_fn fn, void *context)
{
    omp_set_num_threads(1);
    if (stream->threads == 1) {
        fn(context, 0, 1);
        return;
    }
    stream->fn = fn;
    stream->context = context;
    atomic_store(&stream->busy, (unsigned)stream->threads - 1);
    start_round(stream);
    fn(context, 0, stream->threads);
    for (unsigned left = atomic_load(&stream->busy); left != 0; left = atomic_load(&stream->busy)) {
        wait_while_equal(&stream->busy, left, &stream->caller_sleeps, stream->spin_ns);
    }
}

static void carve_scratch(struct stream *stream, size_t floats)
{
    for (int part = 0; part < stream->threads; part++) {
        stream->scratch[part] = arena_take_floats(&stream->scratch_memory, floats);
    }
}

/* By the member that will use it, so that its pages lie near. */
static void touch_scratch(void *context, int part, int parts)
{
    const struct stream *stream = context;

    (void)parts;
    memset(stream->scratch[part], 0, stream->scratch_floats * sizeof(float));
}

enum status stream_reserve(struct stream *stream, size_t floats)
{
    ENSURE(stream->scratch_floats == 0 && floats > 0, "%zu floats beside %zu of each member",
           floats, stream->scratch_floats);
    arena_measure(&stream->scratch_memory, "scratch of the compute team");
    carve_scratch(stream, floats);
    TRY(arena_allocate(&stream->scratch_memory, false));
    carve_scratch(stream, floats);
    stream->scratch_floats = floats;
    stream_run(stream, touch_scratch, stream);
    return STATUS_OK;
}

float *stream_scratch(const struct stream *stream, int part)
{
    DCHECK(part >= 0 && part < stream->threads, "part %d of %d", part, stream->threads);
    return stream->scratch[part];
}

size_t stream_scratch_floats(const struct stream *stream)
{
    return stream->scratch_floats;
}

void stream_share(size_t count, size_t grain, int part, int parts, size_t *begin, size_t *end)
{
    const size_t grains = count / grain + (count % grain != 0);
    const size_t each = grains / (size_t)parts;
    const size_t extra = grains % (size_t)parts;
    const size_t index = (size_t)part;
    const size_t first = each * index + (index < extra ? index : extra);
    const size_t past = first + each + (index < extra ? 1 : 0);

    DCHECK(part >= 0 && part < parts, "part %d of %d", part, parts);
    *begin = first * grain < count ? first * grain : count;
    *end = past * grain < count ? past * grain : count;
}

const struct gpu_queue *stream_queue(const struct stream *stream)
{
    return stream->queue.handle != NULL ? &stream->queue : NULL;
}

void *stream_partials(const struct stream *stream)
{
    return stream->queue.handle != NULL ? stream->queue.partials : stream->partials;
}

void stream_destroy(struct stream **stream)
{
    struct stream *gone = *stream;

    if (gone == NULL) {
        return;
    }
    gone->leave = true;
    start_round(gone);
    for (int part = 1; part <= gone->started; part++) {
        (void)pthread_join(gone->members[part].thread, NULL);
    }
    arena_release(&gone->scratch_memory);
    free(gone->partials);
    free(gone);
    *stream = NULL;
}
