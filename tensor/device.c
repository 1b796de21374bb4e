#include "tensor/device.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensor/gemm.h"
#include "tensor/kernels.h"
#include "tensor/stream.h"

#define VARIANT_BYTES 96

struct device {
    const struct kernel_ops *kernels;
    struct stream *stream; /* owns */
    char variant[VARIANT_BYTES];
};

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

size_t device_scratch_bytes(enum device_kind kind, int threads, enum dtype type)
{
    return kind == DEVICE_CPU ? (size_t)threads * scratch_floats(type) * sizeof(float) : 0;
}

enum status device_open(enum device_kind kind, int threads, enum dtype type,
                        struct device **device_out)
{
    const dnnl_version_t *version = dnnl_version();
    struct device *device = NULL;
    enum status status = STATUS_OK;

    if (kind != DEVICE_CPU) {
        return status_fail(STATUS_ERR_UNSUPPORTED,
                           "opening a CUDA device: this build of weir computes on CPUs only");
    }
    TRY(check_library_threads());
    TRY(check_library_product());
    device = calloc(1, sizeof(*device));
    if (device == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening the CPU device: %zu bytes",
                           sizeof(*device));
    }
    device->kernels = kernels_cpu();
    TRY_OR(fail, status, stream_create(threads, &device->stream));
    if (scratch_floats(type) > 0) {
        TRY_OR(fail, status, stream_reserve(device->stream, scratch_floats(type)));
    }
    (void)snprintf(device->variant, sizeof(device->variant), "%s onednn-%d.%d.%d-%s",
                   device->kernels->variant, version->major, version->minor, version->patch,
                   library_isa());
    *device_out = device;
    return STATUS_OK;
fail:
    device_close(&device);
    return status;
}

const struct kernel_ops *device_kernels(const struct device *device)
{
    return device->kernels;
}

struct stream *device_stream(const struct device *device)
{
    return device->stream;
}

const char *device_variant(const struct device *device)
{
    return device->variant;
}

void device_close(struct device **device)
{
    struct device *gone = *device;

    if (gone == NULL) {
        return;
    }
    stream_destroy(&gone->stream);
    free(gone);
    *device = NULL;
}
