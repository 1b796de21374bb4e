/* device_cpu -- the CPU: a team of threads, oneDNN, and memory straight from the kernel. */
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/device_backend.h"
#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/pages.h"
#include "tensor/stream.h"

/* The part of the library's instruction set that its fp32 product depends on. */
static const char *library_isa(void)
{
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();

    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) {
        return "avx512_core";
    }
    if ((isa & dnnl_cpu_isa_avx512_mic) == dnnl_cpu_isa_avx512_mic) {
        return "avx512_mic";
    }
    if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2) {
        return "avx2";
    }
    if ((isa & dnnl_cpu_isa_avx) == dnnl_cpu_isa_avx) {
        return "avx";
    }
    return (isa & dnnl_cpu_isa_sse41) == dnnl_cpu_isa_sse41 ? "sse41" : "generic";
}

/* A library with a thread pool of its own would fight with the team and split the work by
 * itself, so that results depended on it. */
static enum status check_library_threads(void)
{
    const dnnl_version_t *version = dnnl_version();

    if (version->cpu_runtime != DNNL_RUNTIME_OMP && version->cpu_runtime != DNNL_RUNTIME_SEQ) {
        return status_fail(STATUS_ERR_UNSUPPORTED,
                           "oneDNN %d.%d.%d: expected a build with OpenMP or without threads, "
                           "found CPU runtime %u",
                           version->major, version->minor, version->patch, version->cpu_runtime);
    }
    return STATUS_OK;
}

/* Small whole numbers, so the product is exact in any order of summation. */
static enum status check_library_product(void)
{
    const float a[] = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
    const float b[] = {7.0F, 8.0F, 9.0F, 10.0F, 11.0F, 12.0F};
    const float expected[] = {58.0F, 64.0F, 139.0F, 154.0F};
    float c[] = {0.0F, 0.0F, 0.0F, 0.0F};
    const struct gemm gemm = {.M = 2,
                              .N = 2,
                              .K = 3,
                              .alpha = 1.0F,
                              .a = a,
                              .lda = 3,
                              .b = b,
                              .ldb = 2,
                              .c = c,
                              .ldc = 2};

    TRY(gemm_run_alone(&gemm));
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        if (c[i] != expected[i]) {
            return status_fail(STATUS_ERR_UNSUPPORTED,
                               "oneDNN on this processor (%s): element %zu of a 2 x 3 x 2 product "
                               "is %g, expected %g",
                               library_isa(), i, (double)c[i], (double)expected[i]);
        }
    }
    return STATUS_OK;
}

/* Of each member. */
static size_t scratch_floats(enum dtype type)
{
    return type == DTYPE_FP32 ? 0 : GEMM_SCRATCH_FLOATS;
}

static size_t cpu_scratch_bytes(const struct device_config *config)
{
    return (size_t)config->threads * scratch_floats(config->type) * sizeof(float);
}

struct cpu_device {
    struct device base;
    int64_t *stamps; /* owns */
    size_t fetched_bytes;
};

static struct cpu_device *of(struct device *device)
{
    return (struct cpu_device *)device;
}

static enum status cpu_open(const struct device_config *config, struct device **device_out)
{
    const dnnl_version_t *version = dnnl_version();
    struct cpu_device *own = NULL;
    struct device *device = NULL;

    TRY(check_library_threads());
    TRY(check_library_product());
    own = calloc(1, sizeof(*own));
    if (own == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening the CPU device: %zu bytes", sizeof(*own));
    }
    device = &own->base;
    *device_out = device;
    own->stamps = calloc((size_t)config->stamps + 1, sizeof(*own->stamps));
    if (own->stamps == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening the CPU device: %d stamps",
                           (int)config->stamps);
    }
    TRY(stream_create(config->threads, &device->stream));
    if (scratch_floats(config->type) > 0) {
        TRY(stream_reserve(device->stream, scratch_floats(config->type)));
    }
    (void)snprintf(device->variant, sizeof(device->variant), "%s onednn-%d.%d.%d-%s",
                   kernels_cpu()->variant, version->major, version->minor, version->patch,
                   library_isa());
    return STATUS_OK;
}

static enum status cpu_take(struct device *device, enum device_memory kind, const char *name,
                            size_t bytes, void **memory_out)
{
    (void)device;
    (void)kind;
    *memory_out = pages_map(bytes);
    return *memory_out != NULL
               ? STATUS_OK
               : status_fail(
                     STATUS_ERR_NO_MEMORY,
                     "allocating %s: %zu bytes are not to be had; a smaller model, micro-batch or "
                     "micro-batch count needs less",
                     name, bytes);
}

static void cpu_give(struct device *device, enum device_memory kind, void *memory, size_t bytes)
{
    (void)device;
    (void)kind;
    pages_unmap(memory, bytes);
}

static enum status cpu_copy(struct device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
    return STATUS_OK;
}

static enum status cpu_fetch(struct device *device, void *to, const void *from, size_t bytes)
{
    of(device)->fetched_bytes = bytes;
    return cpu_copy(device, to, from, bytes);
}

static enum status cpu_fetched(struct device *device, size_t *bytes_out)
{
    *bytes_out = of(device)->fetched_bytes;
    return STATUS_OK;
}

static enum status cpu_zero(struct device *device, void *memory, size_t bytes)
{
    (void)device;
    memset(memory, 0, bytes);
    return STATUS_OK;
}

static enum status cpu_wait(struct device *device, const struct cancel *cancel, int64_t deadline_ns)
{
    (void)device;
    (void)cancel;
    (void)deadline_ns;
    return STATUS_OK;
}

/* What is running is over when a call returns, so nobody asks. */
static enum status cpu_enter(struct device *device)
{
    (void)device;
    return STATUS_OK;
}

static bool cpu_is_inside(const struct device *device)
{
    (void)device;
    return false;
}

static enum status cpu_mark(struct device *device, int32_t index)
{
    (void)device;
    (void)index;
    return STATUS_OK;
}

static int32_t cpu_marked(const struct device *device)
{
    (void)device;
    return -1;
}

static enum status cpu_stamp(struct device *device, int32_t slot)
{
    of(device)->stamps[slot] = clock_now_ns();
    return STATUS_OK;
}

static int64_t cpu_stamp_ns(const struct device *device, int32_t slot)
{
    return ((const struct cpu_device *)device)->stamps[slot];
}

static void cpu_close(struct device *device)
{
    stream_destroy(&device->stream);
    free(of(device)->stamps);
    free(device);
}

const struct device_backend *device_cpu(void)
{
    static const struct device_backend backend = {
        .kind = DEVICE_CPU,
        .tensors_are_here = true,
        .kernels = kernels_cpu,
        .open = cpu_open,
        .scratch_bytes = cpu_scratch_bytes,
        .take = cpu_take,
        .give = cpu_give,
        .copy = cpu_copy,
        .fetch = cpu_fetch,
        .fetched = cpu_fetched,
        .zero = cpu_zero,
        .wait = cpu_wait,
        .enter = cpu_enter,
        .mark = cpu_mark,
        .marked = cpu_marked,
        .is_inside = cpu_is_inside,
        .stamp = cpu_stamp,
        .stamp_ns = cpu_stamp_ns,
        .close = cpu_close,
    };

    return &backend;
}
