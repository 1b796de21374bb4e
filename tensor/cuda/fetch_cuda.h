/*
 * fetch_cuda -- copies from the GPU to the host on a stream of their own, beside the compute stream.
 *
 * A fetch waits for what the compute stream has been given when it begins, and is cut into parts, each with an event
 * behind it, so that the host can use the first while the last still travels. Events and stream are made once and used
 * again by every fetch.
 */
#ifndef TENSOR_CUDA_FETCH_CUDA_H
#define TENSOR_CUDA_FETCH_CUDA_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fetch_cuda;

/* Of the calling thread's GPU, which is `ordinal`; `queue`, the compute cudaStream_t, outlives it. */
enum status fetch_cuda_create(int ordinal, void *queue, struct fetch_cuda **fetch_out);

/* See device_fetch(). */
enum status fetch_cuda_begin(struct fetch_cuda *fetch, void *to, const void *from, size_t bytes);

/* See device_fetched(). */
enum status fetch_cuda_look(struct fetch_cuda *fetch, size_t *bytes_out);

/* Blocks until the last fetch has ended, or can no longer do so. The compute stream has come to it. */
void fetch_cuda_finish(struct fetch_cuda *fetch);

/* Nulls the caller's pointer; NULL is fine. */
void fetch_cuda_destroy(struct fetch_cuda **fetch);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_FETCH_CUDA_H */
