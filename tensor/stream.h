/*
 * stream -- where the work of one compute lane is done.
 *
 * On the CPU a stream is a team of threads: the caller is member 0, the others sleep between
 * calls, and every operation has ended when its call returns. On CUDA it is a queue, into which an
 * operation puts its work: of the functions below those for teams are not for it. One thread at a time uses a stream.
 *
 * How work is split over the team depends on its size and on shapes only, never on timing, so
 * that equal team sizes give equal bits.
 */
#ifndef TENSOR_STREAM_H
#define TENSOR_STREAM_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

#define STREAM_MAX_THREADS 64

/* A part of the work: member `part` of `parts` does its share. Must not fail and not block. */
typedef void (*stream_part_fn)(void *context, int part, int parts);

/* `threads` in [1, STREAM_MAX_THREADS], the caller counted. The caller owns *stream_out. */
enum status stream_create(int threads, struct stream **stream_out);

int stream_threads(const struct stream *stream);

/* Runs `fn` once for each member, the caller being part 0; returns when all have ended. Members
 * spin briefly, then sleep on a futex. Each member keeps OpenMP at one thread. */
void stream_run(struct stream *stream, stream_part_fn fn, void *context);

/* The half-open share [begin, end) of `count` items for `part` of `parts`, in multiples of
 * `grain` (the last one takes the rest). */
void stream_share(size_t count, size_t grain, int part, int parts, size_t *begin, size_t *end);

/* Gives each member `floats` of memory of its own, which it touches itself, aligned to 128 bytes;
 * once, at start: STATUS_ERR_NO_MEMORY leaves the stream without. Operations lend it with
 * stream_scratch() and leave nothing in it that the next one needs. */
enum status stream_reserve(struct stream *stream, size_t floats);

/* The memory of member `part`; without stream_reserve() NULL. */
float *stream_scratch(const struct stream *stream, int part);

/* Floats of each member's, 0 without stream_reserve(). */
size_t stream_scratch_floats(const struct stream *stream);

/* What a stream of CUDA is made of; whoever makes it keeps it, and it outlives the stream. */
struct gpu_queue {
    void *handle; /* a cudaStream_t */
    /* STREAM_PARTIALS_BYTES of the device: sums that a kernel leaves for its second part. */
    void *partials;
    void *gemm; /* the GPU's product: tensor/cuda/gemm_cuda.h */
};

#define STREAM_PARTIALS_BYTES ((size_t)512 << 10)

enum status stream_create_queue(const struct gpu_queue *queue, struct stream **stream_out);

/* NULL for a team. */
const struct gpu_queue *stream_queue(const struct stream *stream);

/* Workspace for the operation that runs, aligned to 64 bytes: STREAM_PARTIALS_BYTES where its kernels work, which the next one
 * overwrites. One thread at a time uses a stream, and a queue's operations run one after another, so
 * that nobody else does meanwhile. A team uses little of it, and none that is not touched is taken. */
void *stream_partials(const struct stream *stream);

/* Ends the threads, frees the memory and nulls the caller's pointer; NULL is fine. */
void stream_destroy(struct stream **stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_STREAM_H */
