/*
 * device -- the hardware a stage process computes on: a kernel table and a stream.
 *
 * Opened once at the start, by the main thread. Everything that decides the bits of a result
 * (kernel variant, GEMM library and the instruction set it uses) is in device_variant(), which
 * ranks compare before they train together. Does not own tensors.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct kernel_ops;
struct stream;

enum device_kind {
    DEVICE_CPU,
    DEVICE_CUDA
};

/*
 * Opens the device with a team of `threads`, in [1, STREAM_MAX_THREADS], the caller counted, for
 * a model whose parameters and activations are of `type`: a 16-bit one takes the team's scratch
 * (device_scratch_bytes()) here. The caller owns *device_out. Fails, with nothing left behind,
 *   with STATUS_ERR_UNSUPPORTED for CUDA in a build without it, and where the GEMM library cannot
 *     serve a team (built for another threading than OpenMP or none) or gives a wrong product,
 *   with STATUS_ERR_REFUSED for a team size out of range,
 *   with STATUS_ERR_NO_MEMORY where threads or memory cannot be had.
 * Tries one small product, which also makes the library generate its code: tens of milliseconds.
 */
enum status device_open(enum device_kind kind, int threads, enum dtype type,
                        struct device **device_out);

/* What device_open() allocates for all members of the team, for the memory table. */
size_t device_scratch_bytes(enum device_kind kind, int threads, enum dtype type);

/* Lends the table and the stream until device_close(). */
const struct kernel_ops *device_kernels(const struct device *device);
struct stream *device_stream(const struct device *device);

/* "cpu-v3 onednn-2.6.3-avx512_core"; lent until device_close(). Equal texts, shapes and team
 * sizes give equal bits. */
const char *device_variant(const struct device *device);

/* Ends the team and nulls the caller's pointer; NULL is fine. */
void device_close(struct device **device);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_DEVICE_H */
