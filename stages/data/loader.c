#include "stages/data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tensor/arena.h"

#define BUFFERS 2

/* One step's data. Between fill and release it belongs to whoever `filled` and `taken` say. */
struct buffer {
    int32_t *tokens;
    int32_t *types;
    int32_t *targets;
    float *mask;
    int64_t target_count;
};

struct loader {
    struct loader_config config; /* set at open */
    int64_t step_samples;        /* of the global batch; set at open */
    struct arena arena;          /* owns; what `buffers` point into */
    struct buffer buffers[BUFFERS];
    pthread_t thread;
    bool started; /* the thread runs; private to open and close */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Protected by `mutex`. Batch k lies in buffer k mod 2; k in [taken, filled) is ready, and
     * batch taken-1 is lent. */
    int64_t begin;       /* running number of the first sample of batch 0 */
    int64_t filled;      /* batches */
    int64_t taken;       /* batches */
    uint64_t generation; /* counts rewinds: a batch begun before one is thrown away */
    bool stopping;
};

static bool is_stale(struct loader *loader, uint64_t generation)
{
    bool stale = false;

    (void)pthread_mutex_lock(&loader->mutex);
    stale = loader->stopping || loader->generation != generation;
    (void)pthread_mutex_unlock(&loader->mutex);
    return stale;
}

/* A row past `limit`: token 0, nothing to learn from. */
static void fill_padding(const struct loader_config *config, struct buffer *buffer, size_t at)
{
    size_t positions = (size_t)config->positions;

    if (config->wants_tokens) {
        memset(buffer->tokens + at, 0, positions * sizeof(*buffer->tokens));
    }
    if (config->wants_types) {
        memset(buffer->types + at, 0, positions * sizeof(*buffer->types));
    }
    if (config->wants_targets) {
        memset(buffer->targets + at, 0, positions * sizeof(*buffer->targets));
        memset(buffer->mask + at, 0, positions * sizeof(*buffer->mask));
    }
}

static void fill_row(const struct loader_config *config, struct buffer *buffer, int64_t number,
                     size_t at)
{
    int64_t sample = 0;

    if (number >= config->limit) {
        fill_padding(config, buffer, at);
        return;
    }
    sample = sampler_sample(&config->sampler, number);
    dataset_read(config->dataset, sample, config->wants_tokens ? buffer->tokens + at : NULL,
                 config->wants_targets ? buffer->targets + at : NULL,
                 config->wants_targets ? buffer->mask + at : NULL);
    if (config->wants_types) {
        dataset_read_types(config->dataset, sample, buffer->types + at);
    }
    if (config->wants_targets) {
        buffer->target_count += dataset_targets(config->dataset, sample);
    }
}

/* Fills `buffer` with the step that begins at `consumed`; false where nobody wants it any more. */
static bool fill_batch(struct loader *loader, struct buffer *buffer, int64_t consumed,
                       uint64_t generation)
{
    const struct loader_config *config = &loader->config;
    int64_t rows = config->sampler.micro_batch_size;

    buffer->target_count = 0;
    for (int64_t i = 0; i < config->microbatches; i++) {
        if (is_stale(loader, generation)) {
            return false;
        }
        for (int64_t row = 0; row < rows; row++) {
            fill_row(config, buffer, sampler_number(&config->sampler, consumed, i, row),
                     (size_t)(i * rows + row) * (size_t)config->positions);
        }
    }
    return true;
}

static void *run(void *argument)
{
    struct loader *loader = argument;

    (void)pthread_mutex_lock(&loader->mutex);
    while (!loader->stopping) {
        /* One batch ahead of the one that is lent: the buffer of batch taken-2 is free. */
        if (loader->filled > loader->taken) {
            (void)pthread_cond_wait(&loader->changed, &loader->mutex);
            continue;
        }
        int64_t batch = loader->filled;
        int64_t consumed = loader->begin + batch * loader->step_samples;
        uint64_t generation = loader->generation;

        (void)pthread_mutex_unlock(&loader->mutex);
        bool whole = fill_batch(loader, &loader->buffers[batch % BUFFERS], consumed, generation);
        (void)pthread_mutex_lock(&loader->mutex);
        if (whole && loader->generation == generation) {
            loader->filled++;
            (void)pthread_cond_broadcast(&loader->changed);
        }
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* Tokens of a step of this replica. So few that no sum of their buffers is an overflow. */
static enum status count_elements(const struct loader_config *config, size_t *elements_out)
{
    size_t elements = 0;
    bool fits = !__builtin_mul_overflow(config->microbatches, config->sampler.micro_batch_size,
                                        &elements) &&
                !__builtin_mul_overflow(elements, config->positions, &elements) &&
                elements <= SIZE_MAX / 1024;

    *elements_out = elements;
    return fits ? STATUS_OK
                : status_fail(STATUS_ERR_NO_MEMORY,
                              "data loader: no memory for %" PRId64 " micro-batches of %" PRId64
                              " x %" PRId64 " tokens, twice",
                              config->microbatches, config->sampler.micro_batch_size,
                              config->positions);
}

/* Measures, or places. */
static void carve(struct arena *arena, const struct loader_config *config, size_t elements,
                  struct buffer *buffers)
{
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &buffers[i];

        *buffer = (struct buffer){.tokens = NULL};
        if (config->wants_tokens) {
            buffer->tokens = arena_take(arena, elements, sizeof(*buffer->tokens));
        }
        if (config->wants_types) {
            buffer->types = arena_take(arena, elements, sizeof(*buffer->types));
        }
        if (config->wants_targets) {
            buffer->targets = arena_take(arena, elements, sizeof(*buffer->targets));
            buffer->mask = arena_take_floats(arena, elements);
        }
    }
}

static enum status allocate_buffers(struct loader *loader)
{
    size_t elements = 0;

    TRY(count_elements(&loader->config, &elements));
    arena_measure(&loader->arena, "data loader");
    carve(&loader->arena, &loader->config, elements, loader->buffers);
    arena_put_on(&loader->arena, loader->config.device, DEVICE_HOST);
    TRY(arena_allocate(&loader->arena, true));
    carve(&loader->arena, &loader->config, elements, loader->buffers);
    return STATUS_OK;
}

enum status loader_plan_bytes(const struct loader_config *config, size_t *bytes_out)
{
    struct buffer buffers[BUFFERS];
    struct arena arena;
    size_t elements = 0;

    TRY(count_elements(config, &elements));
    arena_measure(&arena, "data loader");
    carve(&arena, config, elements, buffers);
    *bytes_out = arena.planned_bytes;
    return STATUS_OK;
}

size_t loader_used_bytes(const struct loader *loader)
{
    return loader != NULL ? loader->arena.used_bytes : 0;
}

/* Waits count on CLOCK_MONOTONIC, as all deadlines do. */
static void init_locks(struct loader *loader)
{
    pthread_condattr_t attributes;

    (void)pthread_mutex_init(&loader->mutex, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&loader->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

/* Signals are for the main thread, so the new one blocks all of them from its first moment. */
static enum status start_thread(struct loader *loader)
{
    sigset_t all;
    sigset_t before;
    int error = 0;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&loader->thread, NULL, run, loader);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return status_fail(STATUS_ERR_NO_MEMORY, "data loader: starting its thread: error %d",
                           error);
    }
    loader->started = true;
    (void)pthread_setname_np(loader->thread, "weir-loader");
    return STATUS_OK;
}

enum status loader_open(const struct loader_config *config, struct loader **loader_out)
{
    enum status status = STATUS_OK;
    struct loader *loader = calloc(1, sizeof(*loader));

    if (loader == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "data loader: no memory");
    }
    loader->config = *config;
    loader->step_samples =
        config->microbatches * config->sampler.micro_batch_size * config->sampler.replicas;
    loader->begin = config->consumed;
    init_locks(loader);
    TRY_OR(fail, status, allocate_buffers(loader));
    TRY_OR(fail, status, start_thread(loader));
    *loader_out = loader;
    return STATUS_OK;
fail:
    loader_close(&loader);
    return status;
}

/* Sleeps until something changes, at most CANCEL_POLL_NS. The mutex is held. */
static void wait_a_little(struct loader *loader, int64_t deadline_ns)
{
    int64_t until = clock_now_ns() + CANCEL_POLL_NS;
    struct timespec at;

    if (until > deadline_ns) {
        until = deadline_ns;
    }
    at.tv_sec = (time_t)(until / CLOCK_SECOND);
    at.tv_nsec = (long)(until % CLOCK_SECOND);
    (void)pthread_cond_timedwait(&loader->changed, &loader->mutex, &at);
}

/* Waits until batch `taken` is filled. The mutex is held. */
static enum status wait_for_batch(struct loader *loader, const struct cancel *cancel,
                                  int64_t deadline_ns)
{
    while (loader->filled <= loader->taken) {
        enum status status = cancel_check(cancel, deadline_ns);

        if (status < 0) {
            return status_fail(
                status, "data loader: waiting for the step at sample %" PRId64 ": %s",
                loader->begin + loader->taken * loader->step_samples, status_text(status));
        }
        wait_a_little(loader, deadline_ns);
    }
    return STATUS_OK;
}

enum status loader_take(struct loader *loader, const struct cancel *cancel, int64_t deadline_ns,
                        struct loader_batch *batch_out)
{
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&loader->mutex);
    TRY_OR(done, status, wait_for_batch(loader, cancel, deadline_ns));
    const struct buffer *buffer = &loader->buffers[loader->taken % BUFFERS];
    batch_out->tokens = buffer->tokens;
    batch_out->types = buffer->types;
    batch_out->targets = buffer->targets;
    batch_out->mask = buffer->mask;
    batch_out->target_count = buffer->target_count;
    batch_out->consumed = loader->begin + loader->taken * loader->step_samples;
    loader->taken++;
    (void)pthread_cond_broadcast(&loader->changed);
done:
    (void)pthread_mutex_unlock(&loader->mutex);
    return status;
}

enum status loader_peek_targets(struct loader *loader, const struct cancel *cancel,
                                int64_t deadline_ns, int64_t *targets_out)
{
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&loader->mutex);
    TRY_OR(done, status, wait_for_batch(loader, cancel, deadline_ns));
    *targets_out = loader->buffers[loader->taken % BUFFERS].target_count;
done:
    (void)pthread_mutex_unlock(&loader->mutex);
    return status;
}

enum status loader_rewind(struct loader *loader, int64_t consumed)
{
    (void)pthread_mutex_lock(&loader->mutex);
    loader->begin = consumed;
    loader->filled = 0;
    loader->taken = 0;
    loader->generation++;
    (void)pthread_cond_broadcast(&loader->changed);
    (void)pthread_mutex_unlock(&loader->mutex);
    return STATUS_OK;
}

void loader_close(struct loader **loader)
{
    struct loader *closing = *loader;

    if (closing == NULL) {
        return;
    }
    if (closing->started) {
        (void)pthread_mutex_lock(&closing->mutex);
        closing->stopping = true;
        (void)pthread_cond_broadcast(&closing->changed);
        (void)pthread_mutex_unlock(&closing->mutex);
        (void)pthread_join(closing->thread, NULL);
    }
    arena_release(&closing->arena);
    (void)pthread_cond_destroy(&closing->changed);
    (void)pthread_mutex_destroy(&closing->mutex);
    free(closing);
    *loader = NULL;
}
