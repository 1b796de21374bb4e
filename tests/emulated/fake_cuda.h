/*
 * fake_cuda -- a CUDA runtime without a GPU, for tests: what weir calls of it (cuda_names.h) does here what
 * it promises, as late as it may, and reports what a GPU would not forgive.
 *
 * Memory. What cudaMalloc gives lies between guard pages, is full of NaN, and is closed to the host: only
 * what runs on a stream may touch it, so that host code that reads or writes it ends with SIGSEGV. Pinned
 * memory is open, likewise between guards. A copy that leaves its allocation, a pointer freed twice and the
 * like are the runtime's own errors, with a line on stderr.
 *
 * Streams. What is put into a stream stays there until a host call has to wait or asks. Then operations
 * run one after another, each time one that stands first in some stream, drawn from the seed: who forgot to
 * wait for an event gets a wrong number under some seed. A question (cudaStreamQuery, cudaEventQuery)
 * runs a few and answers truthfully. Pageable memory is copied as late as pinned memory: the runtime promises no less
 * and often does more.
 *
 * GPUs. Each host thread has one of its own, as ranks that are threads of a test want it, whatever the
 * ordinal; who helps such a thread takes its GPU with fake_cuda_use(). A stream, an event and an allocation
 * know their GPU, whoever calls. A wait that lasts longer than FAKE_CUDA_PATIENCE_S ends the program and says
 * what stands first in each stream.
 */
#ifndef TESTS_EMULATED_FAKE_CUDA_H
#define TESTS_EMULATED_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_CUDA_PATIENCE_S 60

struct fake_gpu;

/* All below is about the GPU of the calling thread. */

/* A new GPU in the place of the thread's, with defaults: 8 devices of capability 9.0 and 132 processors, 1 GiB. The old
 * one is lost and its memory unmapped. */
void fake_cuda_reset(uint64_t seed);

struct fake_gpu *fake_cuda_gpu(void);
void fake_cuda_use(struct fake_gpu *gpu);

/* The order of operations from here on. */
void fake_cuda_seed(uint64_t seed);

/* What there seems to be; 0 devices: as on a machine without. */
void fake_cuda_devices(int count, int major, int minor);
void fake_cuda_memory(size_t bytes);

/* The n-th cudaMalloc or cudaMallocHost from now on fails for want of memory; 0: none. */
void fake_cuda_fail_malloc(int nth);

/* The n-th kernel from now on reads where nothing is: what is asked later fails for ever. 0: none. */
void fake_cuda_fail_launch(int nth);

/* The n-th kernel from now on does not end before `ends` says so, which is asked again and again. 0: none. */
void fake_cuda_hang_launch(int nth, bool (*ends)(const void *context), const void *context);

/* What waits in streams is dropped, and every call fails from now on, as after a lost GPU. From any thread. */
void fake_cuda_abort(struct fake_gpu *gpu);

/* What waits in this GPU's streams also runs while other threads wait for theirs, as that of ranks which talk must. */
void fake_cuda_share(void);

/* From here on, on all GPUs, cudaStreamWaitEvent() does nothing: what a program that forgot it would come to. */
void fake_cuda_forget_waits(int forget);

/* Operations that wait in streams. */
size_t fake_cuda_pending(void);

/* Allocations, streams and events that nobody has given back. */
size_t fake_cuda_left(void);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_FAKE_CUDA_H */
