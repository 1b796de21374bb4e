/*
 * stamps_cuda -- when a stream of the GPU has come to a place, told in the host's time.
 *
 * Events know how long they lie apart, to half a microsecond, and not when. So a wait puts one more event behind all of
 * them, and takes the moment at which it sees it for its time: all stamps of the wait are as late, by as much as the
 * wait was late to look.
 */
#ifndef TENSOR_CUDA_STAMPS_CUDA_H
#define TENSOR_CUDA_STAMPS_CUDA_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stamps_cuda;

/* Of the calling thread's GPU; `count` may be 0. `queue`, a cudaStream_t, outlives them. */
enum status stamps_cuda_create(int32_t count, void *queue, struct stamps_cuda **stamps_out);

/* In stream order. */
enum status stamps_cuda_put(struct stamps_cuda *stamps, int32_t slot);

/* A wait for the whole stream begins, and has ended. */
enum status stamps_cuda_begin_wait(struct stamps_cuda *stamps);
void stamps_cuda_end_wait(struct stamps_cuda *stamps);

/* Of a slot that was put since the wait before the last one; 0 of one that was never put. */
int64_t stamps_cuda_ns(const struct stamps_cuda *stamps, int32_t slot);

/* Nulls the caller's pointer; NULL is fine. */
void stamps_cuda_destroy(struct stamps_cuda **stamps);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_STAMPS_CUDA_H */
