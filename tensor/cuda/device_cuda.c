#include "tensor/cuda/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/cuda/fetch_cuda.h"
#include "tensor/cuda/gemm_cuda.h"
#include "tensor/cuda/kernels_cuda.h"
#include "tensor/cuda/mark.h"
#include "tensor/cuda/range_cuda.h"
#include "tensor/cuda/stamps_cuda.h"
#include "tensor/device_backend.h"
#include "tensor/kernels/attention.h"
#include "tensor/stream.h"

/* Tensor cores for bf16 and copies beside the work begin here. */
#define LEAST_MAJOR 8

/* A wait asks for so long without a pause, then sleeps, twice as long each time up to the most. */
#define SPIN_NS        ((int64_t)20000)
#define FIRST_SLEEP_NS ((int64_t)10000)
#define MOST_SLEEP_NS  ((int64_t)100000)

struct device_cuda {
    struct device base;
    cudaStream_t queue; /* owns these */
    void *partials;
    int32_t *mark; /* pinned */
    struct gemm_cuda *gemm;
    struct stamps_cuda *stamps;
    struct fetch_cuda *fetch;
};

static struct device_cuda *own_of(struct device *device)
{
    return (struct device_cuda *)device;
}

/* Reported here, an error is not the next launch's. */
static enum status failure(const struct device_cuda *device, const char *what, cudaError_t error)
{
    (void)cudaGetLastError();
    return status_fail(STATUS_ERR_CUDA, "%s: %s; the last action to end was %d", what,
                       cudaGetErrorString(error), *(const volatile int32_t *)device->mark);
}

/* The runtime keeps an error until it is asked for; what is reported here is not for the next launch. */
static enum status opening_failure(int ordinal, const char *what, cudaError_t error)
{
    (void)cudaGetLastError();
    return status_fail(error == cudaErrorMemoryAllocation ? STATUS_ERR_NO_MEMORY : STATUS_ERR_CUDA,
                       "opening GPU %d: %s: %s", ordinal, what, cudaGetErrorString(error));
}

static enum status check_there(int ordinal)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return status_fail(STATUS_ERR_UNSUPPORTED,
                           "opening GPU %d: %s; without a GPU, parallel.device is cpu", ordinal,
                           cudaGetErrorString(error));
    }
    if (ordinal < 0 || ordinal >= count) {
        return status_fail(STATUS_ERR_UNSUPPORTED,
                           "opening GPU %d: this host has %d, numbered from 0; a process takes the "
                           "one of its local rank",
                           ordinal, count);
    }
    return STATUS_OK;
}

/* Does not open it. */
static cudaError_t capability_of(int ordinal, int *major, int *minor)
{
    const cudaError_t error =
        cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, ordinal);

    return error != cudaSuccess
               ? error
               : cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, ordinal);
}

static enum status check_capability(int ordinal, int *major, int *minor)
{
    const cudaError_t error = capability_of(ordinal, major, minor);

    if (error != cudaSuccess) {
        return opening_failure(ordinal, "its compute capability", error);
    }
    if (*major < LEAST_MAJOR) {
        return status_fail(STATUS_ERR_UNSUPPORTED,
                           "opening GPU %d: its compute capability is %d.%d, expected at least "
                           "%d.0 (A100 and later)",
                           ordinal, *major, *minor, LEAST_MAJOR);
    }
    return STATUS_OK;
}

/* The kind of processor and how many there are: cuBLASLt goes by both. */
static enum status name_variant(struct device_cuda *device, const struct device_config *config,
                                int major, int minor)
{
    char library[32];
    int processors = 0;
    int driver = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, config->ordinal);

    if (error == cudaSuccess) {
        error = cudaDriverGetVersion(&driver);
    }
    if (error != cudaSuccess) {
        return opening_failure(config->ordinal, "its processors and driver", error);
    }
    gemm_cuda_version(library, sizeof(library));
    (void)snprintf(device->base.variant, sizeof(device->base.variant),
                   "cuda-sm_%d%d x%d cublaslt-%s driver-%d.%d%s", major, minor, processors, library,
                   driver / 1000, driver % 1000 / 10, config->tf32 ? " tf32" : "");
    return STATUS_OK;
}

static enum status make_queue(struct device_cuda *device, const struct device_config *config)
{
    const int ordinal = config->ordinal;
    cudaError_t error = cudaStreamCreateWithFlags(&device->queue, cudaStreamNonBlocking);
    void *mark = NULL;

    if (error != cudaSuccess) {
        return opening_failure(ordinal, "its stream", error);
    }
    error = cudaMalloc(&device->partials, STREAM_PARTIALS_BYTES);
    if (error != cudaSuccess) {
        return opening_failure(ordinal, "memory for partial sums", error);
    }
    error = cudaMallocHost(&mark, MARK_WORDS * sizeof(*device->mark));
    if (error != cudaSuccess) {
        return opening_failure(ordinal, "pinned memory", error);
    }
    device->mark = mark;
    device->mark[MARK_ENDED] = -1;
    device->mark[MARK_INSIDE] = 0;
    TRY(gemm_cuda_create(config->tf32, &device->gemm));
    TRY(stamps_cuda_create(config->stamps, device->queue, &device->stamps));
    TRY(fetch_cuda_create(ordinal, device->queue, &device->fetch));
    return stream_create_queue(&(struct gpu_queue){.handle = device->queue,
                                                   .partials = device->partials,
                                                   .gemm = device->gemm},
                               &device->base.stream);
}

static enum status cuda_open(const struct device_config *config, struct device **device_out)
{
    struct device_cuda *device = NULL;
    cudaError_t error = cudaSuccess;
    int major = 0;
    int minor = 0;

    TRY(check_there(config->ordinal));
    TRY(check_capability(config->ordinal, &major, &minor));
    error = cudaSetDevice(config->ordinal);
    if (error != cudaSuccess) {
        return opening_failure(config->ordinal, "choosing it", error);
    }
    device = calloc(1, sizeof(*device));
    if (device == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening GPU %d: %zu bytes", config->ordinal,
                           sizeof(*device));
    }
    *device_out = &device->base;
    TRY(make_queue(device, config));
    return name_variant(device, config, major, minor);
}

static size_t cuda_scratch_bytes(const struct device_config *config)
{
    (void)config;
    return GEMM_CUDA_WORKSPACE_BYTES + STREAM_PARTIALS_BYTES;
}

static enum status memory_failure(const char *name, enum device_memory kind, size_t bytes,
                                  cudaError_t error)
{
    size_t available = 0;
    size_t total = 0;

    if (kind == DEVICE_HOST) {
        return status_fail(STATUS_ERR_NO_MEMORY, "allocating %s: %zu bytes of pinned memory: %s",
                           name, bytes, cudaGetErrorString(error));
    }
    (void)cudaMemGetInfo(&available, &total);
    return status_fail(STATUS_ERR_NO_MEMORY,
                       "allocating %s: %zu bytes of the GPU's memory, of whose %zu bytes %zu are "
                       "free: %s; a smaller model, micro-batch or micro-batch count needs less",
                       name, bytes, total, available, cudaGetErrorString(error));
}

static void release(enum device_memory kind, void *memory)
{
    (void)(kind == DEVICE_HOST ? cudaFreeHost(memory) : cudaFree(memory));
}

static enum status cuda_take(struct device *base, enum device_memory kind, const char *name,
                             size_t bytes, void **memory_out)
{
    struct device_cuda *device = own_of(base);
    const size_t taken = bytes > 0 ? bytes : 1;
    void *memory = NULL;
    cudaError_t error =
        kind == DEVICE_HOST ? cudaMallocHost(&memory, taken) : cudaMalloc(&memory, taken);

    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* it is reported here, not at the next launch */
        return memory_failure(name, kind, bytes, error);
    }
    if (error != cudaSuccess) {
        return failure(device, name, error);
    }
    if (kind == DEVICE_HOST) {
        memset(memory, 0, taken);
    } else {
        error = cudaMemsetAsync(memory, 0, taken, device->queue);
        if (error == cudaSuccess) {
            error = cudaStreamSynchronize(device->queue);
        }
    }
    if (error != cudaSuccess) {
        release(kind, memory);
        return failure(device, name, error);
    }
    *memory_out = memory;
    return STATUS_OK;
}

static void cuda_give(struct device *device, enum device_memory kind, void *memory, size_t bytes)
{
    (void)bytes;
    if (kind == DEVICE_HOST) { /* whose end waits for no stream */
        fetch_cuda_finish(own_of(device)->fetch);
    }
    release(kind, memory);
}

static enum status cuda_zero(struct device *base, void *memory, size_t bytes)
{
    struct device_cuda *device = own_of(base);
    const cudaError_t error = cudaMemsetAsync(memory, 0, bytes, device->queue);

    return error == cudaSuccess ? STATUS_OK : failure(device, "zeroing on the GPU", error);
}

static enum status cuda_wait(struct device *base, const struct cancel *cancel, int64_t deadline_ns)
{
    struct device_cuda *device = own_of(base);
    const int64_t spin_end_ns = clock_now_ns() + SPIN_NS;
    int64_t sleep_ns = FIRST_SLEEP_NS;

    TRY(stamps_cuda_begin_wait(device->stamps));
    for (;;) {
        const cudaError_t error = cudaStreamQuery(device->queue);
        enum status status = STATUS_OK;

        if (error == cudaSuccess) {
            stamps_cuda_end_wait(device->stamps);
            return STATUS_OK;
        }
        if (error != cudaErrorNotReady) {
            return failure(device, "waiting for the GPU", error);
        }
        (void)cudaGetLastError(); /* or the next launch would be told that it is not ready */
        status = cancel_check(cancel, deadline_ns);
        if (status == STATUS_OK && base->watch != NULL) {
            status = base->watch(base->watch_context, STATUS_OK);
        }
        if (status < 0) {
            return status;
        }
        if (clock_now_ns() >= spin_end_ns) {
            clock_sleep_ns(sleep_ns);
            sleep_ns = 2 * sleep_ns < MOST_SLEEP_NS ? 2 * sleep_ns : MOST_SLEEP_NS;
        }
    }
}

/* Memory that the runtime knows nothing of: when a copy is done with it nobody promises. */
static enum status is_pageable(const struct device_cuda *device, const void *memory, bool *pageable)
{
    struct cudaPointerAttributes attributes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);

    if (error != cudaSuccess) {
        return failure(device, "asking what memory a copy is of", error);
    }
    *pageable = *pageable || attributes.type == cudaMemoryTypeUnregistered;
    return STATUS_OK;
}

static enum status cuda_copy(struct device *base, void *to, const void *from, size_t bytes)
{
    struct device_cuda *device = own_of(base);
    bool pageable = false;
    cudaError_t error = cudaSuccess;

    TRY(is_pageable(device, to, &pageable));
    TRY(is_pageable(device, from, &pageable));
    error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device->queue);
    if (error != cudaSuccess) {
        return failure(device, "copying on the GPU", error);
    }
    return pageable ? cuda_wait(base, base->cancel, CLOCK_NEVER) : STATUS_OK;
}

static enum status cuda_fetch(struct device *base, void *to, const void *from, size_t bytes)
{
    return fetch_cuda_begin(own_of(base)->fetch, to, from, bytes);
}

static enum status cuda_fetched(struct device *base, size_t *bytes_out)
{
    return fetch_cuda_look(own_of(base)->fetch, bytes_out);
}

static enum status cuda_enter(struct device *base)
{
    return mark_cuda_begin(own_of(base)->mark, base->stream);
}

static enum status cuda_mark(struct device *base, int32_t index)
{
    return mark_cuda_end(own_of(base)->mark, index, base->stream);
}

static int32_t word_of(const struct device *base, int word)
{
    return ((const volatile int32_t *)((const struct device_cuda *)base)->mark)[word];
}

static int32_t cuda_marked(const struct device *base)
{
    return word_of(base, MARK_ENDED);
}

static bool cuda_is_inside(const struct device *base)
{
    return word_of(base, MARK_INSIDE) != 0;
}

static enum status cuda_stamp(struct device *base, int32_t slot)
{
    return stamps_cuda_put(own_of(base)->stamps, slot);
}

static int64_t cuda_stamp_ns(const struct device *base, int32_t slot)
{
    return stamps_cuda_ns(((const struct device_cuda *)base)->stamps, slot);
}

static void cuda_close(struct device *base)
{
    struct device_cuda *device = own_of(base);

    stream_destroy(&base->stream);
    gemm_cuda_destroy(&device->gemm);
    stamps_cuda_destroy(&device->stamps);
    fetch_cuda_destroy(&device->fetch);
    (void)cudaFree(device->partials);
    if (device->mark != NULL) {
        (void)cudaFreeHost(device->mark);
    }
    if (device->queue != NULL) {
        (void)cudaStreamDestroy(device->queue);
    }
    free(device);
}

int32_t device_cuda_look(char *words, size_t bytes)
{
    int count = 0;
    int first[2] = {0, 0};
    cudaError_t error = cudaGetDeviceCount(&count);

    for (int ordinal = 0; ordinal < count && error == cudaSuccess; ordinal++) {
        int major = 0;
        int minor = 0;

        error = capability_of(ordinal, &major, &minor);
        if (error == cudaSuccess && major < LEAST_MAJOR) {
            (void)snprintf(words, bytes,
                           "GPU %d has compute capability %d.%d, expected at least %d.0", ordinal,
                           major, minor, LEAST_MAJOR);
            return 0;
        }
        if (ordinal == 0) {
            first[0] = major;
            first[1] = minor;
        }
    }
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)snprintf(words, bytes, "%s", cudaGetErrorString(error));
        return 0;
    }
    if (count == 0) {
        (void)snprintf(words, bytes, "the driver sees no GPU");
        return 0;
    }
    (void)snprintf(words, bytes, "%d GPU%s, the first of compute capability %d.%d", count,
                   count == 1 ? "" : "s", first[0], first[1]);
    return count;
}

const struct device_backend *device_cuda(void)
{
    static const struct device_backend backend = {
        .kind = DEVICE_CUDA,
        .tensors_are_here = false,
        .most_head_size = ATTENTION_CUDA_MOST_D,
        .kernels = kernels_cuda,
        .open = cuda_open,
        .scratch_bytes = cuda_scratch_bytes,
        .take = cuda_take,
        .give = cuda_give,
        .copy = cuda_copy,
        .fetch = cuda_fetch,
        .fetched = cuda_fetched,
        .zero = cuda_zero,
        .wait = cuda_wait,
        .enter = cuda_enter,
        .mark = cuda_mark,
        .marked = cuda_marked,
        .is_inside = cuda_is_inside,
        .stamp = cuda_stamp,
        .stamp_ns = cuda_stamp_ns,
        .begin_range = range_cuda_begin,
        .end_range = range_cuda_end,
        .close = cuda_close,
    };

    return &backend;
}
