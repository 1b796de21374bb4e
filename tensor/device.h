/*
 * device -- the hardware a stage process computes on: a kernel table, a stream, and memory.
 *
 * Opened once at the start, by the main thread. Everything that decides the bits of a result
 * (kernel variant, GEMM library and the instruction set it uses) is in device_variant(), which
 * ranks compare before they train together. A program names the backend that it opens, so that a
 * build knows those alone which it links: device_cpu() here, device_cuda() of tensor/cuda.
 *
 * On the CPU all that is asked for has ended when a call returns. On CUDA kernels, device_copy()
 * and device_zero() are put into the stream, behind what is in it already, and the call returns;
 * what they leave in host memory may be read behind device_wait(), and nothing else waits. device_fetch()
 * copies to the host beside the stream. One thread at a time uses a device, but for device_fetched(); on the CPU
 * device_copy() and device_zero() are for any.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct device_backend; /* tensor/device_backend.h */
struct kernel_ops;
struct stream;

enum device_kind {
    DEVICE_CPU,
    DEVICE_CUDA
};

/* What memory is for. On the CPU both are the same. */
enum device_memory {
    DEVICE_TENSORS, /* the device's own: only kernels, device_copy() and device_zero() touch it */
    DEVICE_HOST     /* the host's, which kernels reach and copies run beside: staging, results */
};

struct device_config {
    int threads;                 /* of the team, in [1, STREAM_MAX_THREADS], the caller counted */
    enum dtype type;             /* of the model's parameters and activations */
    int ordinal;                 /* which of the host's GPUs; 0 on the CPU */
    bool tf32;                   /* whether fp32 products may be of TF32, where the device has it */
    int32_t stamps;              /* room for times, see device_stamp() */
    const struct cancel *cancel; /* borrows; ends waits that take none; NULL: nothing does */
};

/* The CPU: a team of threads and oneDNN. */
const struct device_backend *device_cpu(void);

enum device_kind device_backend_kind(const struct device_backend *backend);

/* The table of its devices: a static one. */
const struct kernel_ops *device_backend_kernels(const struct device_backend *backend);

/* The largest head that its attention is made for; 0: any. */
size_t device_backend_most_head_size(const struct device_backend *backend);

/* Whether the host's own code may touch tensors: on the CPU. */
bool device_backend_tensors_are_here(const struct device_backend *backend);

/* Whether its devices have device_begin_range(). */
bool device_backend_has_ranges(const struct device_backend *backend);

/*
 * Opens the device; a 16-bit type takes the team's scratch (device_scratch_bytes()) here. The caller
 * owns *device_out. Fails, with nothing left behind,
 *   with STATUS_ERR_UNSUPPORTED where the GEMM library cannot serve a team (built for another
 *     threading than OpenMP or none) or gives a wrong product, and where there is no such GPU, with the driver's words,
 *   with STATUS_ERR_REFUSED for a team size out of range,
 *   with STATUS_ERR_NO_MEMORY where threads or memory cannot be had.
 * Tries one small product, which also makes the library generate its code: tens of milliseconds.
 */
enum status device_open(const struct device_backend *backend, const struct device_config *config,
                        struct device **device_out);

/* What device_open() allocates, for the memory table. */
size_t device_scratch_bytes(const struct device_backend *backend,
                            const struct device_config *config);

enum device_kind device_kind(const struct device *device);

bool device_tensors_are_here(const struct device *device);

/* Lends the table and the stream until device_close(). */
const struct kernel_ops *device_kernels(const struct device *device);
struct stream *device_stream(const struct device *device);

/* "cpu-v3 onednn-2.6.3-avx512_core"; lent until device_close(). Equal texts, shapes and team
 * sizes give equal bits. */
const char *device_variant(const struct device *device);

/* `bytes` of memory for `name`, zeroed, aligned to ARENA_ALIGN_BYTES; for whole arenas (tensor/arena.h), not for pieces.
 * At start only: it may wait for the device. STATUS_ERR_NO_MEMORY with the name, what was wanted and what there is.
 * device_give() takes it back and never fails; everything that touches it has ended before. */
enum status device_take(struct device *device, enum device_memory kind, const char *name,
                        size_t bytes, void **memory_out);
void device_give(struct device *device, enum device_memory kind, void *memory, size_t bytes);

/* In stream order. Either side may be tensors or memory of the host's. What is of DEVICE_HOST stays as it is until
 * the copy has ended; with other memory of the host's the call blocks until the
 * stream has come to it (STATUS_ERR_CANCELLED where device_config's cancel ends that): not inside a step. The two do not overlap. */
enum status device_copy(struct device *device, void *to, const void *from, size_t bytes);

/* The same, whatever memory it is, and blocks until the stream has come to it, as with other memory of the host's. */
enum status device_copy_now(struct device *device, void *to, const void *from, size_t bytes);

/* Parts of a fetch are a multiple of it, the last one apart. */
#define DEVICE_FETCH_PART_BYTES ((size_t)1 << 20)

/* Copies `bytes` at `from`, tensors, to `to`, of DEVICE_HOST, behind what is in the stream by now, and on a stream of its
 * own, so that what is put into the stream next does not wait for it; that must leave `from` as it is until all
 * has come. One at a time: of the fetch before all has come, or nobody asks. */
enum status device_fetch(struct device *device, void *to, const void *from, size_t bytes);

/* How many bytes of the last fetch have come, from its beginning, in parts. Never blocks. From one thread at a time, any
 * that knows of the fetch. */
enum status device_fetched(struct device *device, size_t *bytes_out);

/* In stream order. */
enum status device_zero(struct device *device, void *memory, size_t bytes);

/* Blocks until all that is in the stream has ended. STATUS_ERR_CANCELLED and STATUS_ERR_TIMEOUT as
 * cancel_check() says, not recorded: the caller knows what it waits for; STATUS_ERR_CUDA with the words of the runtime. */
enum status device_wait(struct device *device, const struct cancel *cancel, int64_t deadline_ns);

/* The same, and where it fails says that `what` was waited for, and which action has ended last. */
enum status device_wait_for(struct device *device, const char *what, const struct cancel *cancel,
                            int64_t deadline_ns);

/* Whether what the stream may wait for is well; see device_watch(). */
typedef enum status (*device_watch_fn)(void *context, enum status ended);

/* From now on device_wait() asks `watch` again and again with STATUS_OK, and ends with the failure that it answers; and a
 * last time, when device_is_awaited() is false again, with how the wait has ended, which it may turn into a failure that it
 * has recorded: a stream can come to its end because what it waited for has failed. At most one watch; NULL: none. */
void device_watch(struct device *device, device_watch_fn watch, void *context);

/* In stream order: an action begins, and device_is_inside() is true until device_mark(), from where on device_marked() is
 * `index`: which action has ended last, -1 at first. What the stream waits for before it begins is not inside. The
 * questions are for any thread. */
enum status device_enter(struct device *device);
enum status device_mark(struct device *device, int32_t index);
int32_t device_marked(const struct device *device);
bool device_is_inside(const struct device *device);

/* Whether a thread is in device_wait(). Any thread. */
bool device_is_awaited(const struct device *device);

/* In stream order, slot `slot` of the device_config's stamps becomes the present time. */
enum status device_stamp(struct device *device, int32_t slot);

/* That time, of base/clock; on CUDA behind device_wait(), and as exact as that wait is prompt. */
int64_t device_stamp_ns(const struct device *device, int32_t slot);

/* For NVIDIA's profilers: a range of that name begins on the calling thread, and the one that began last ends. Where the
 * backend has them. */
void device_begin_range(struct device *device, const char *name);
void device_end_range(struct device *device);

/* Ends the team and nulls the caller's pointer; NULL is fine. Memory has been given back before. */
void device_close(struct device **device);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_DEVICE_H */
