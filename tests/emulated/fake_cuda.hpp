/*
 * fake_cuda -- how other fakes put operations into a stream of fake_cuda.h.
 */
#ifndef TESTS_EMULATED_FAKE_CUDA_HPP
#define TESTS_EMULATED_FAKE_CUDA_HPP

#include <cuda_runtime_api.h>
#include <functional>

#include "tests/emulated/fake_cuda.h"

namespace fake_cuda
{

/* Puts an operation behind what is in `stream` (nullptr: the thread's default one). `try_run` is called when it stands
 * first, with the GPU's memory open, on whichever thread waits; it answers whether the operation has ended, and
 * is called again later where it has not: it must not block, nor call the runtime. `what`, a static text,
 * names it to who waits in vain. */
cudaError_t enqueue(cudaStream_t stream, const char *what, std::function<bool()> try_run);

/* As enqueue(), of a kernel: counted by fake_cuda_fail_launch(). */
cudaError_t enqueue_kernel(cudaStream_t stream, std::function<void()> kernel);

/* Bytes from `memory` to the end of its allocation, on any GPU; 0 where it is in none. */
size_t bytes_behind(const void *memory);

/* Whether device memory (pinned counts as host's). */
bool is_device(const void *memory);

} // namespace fake_cuda

#endif /* TESTS_EMULATED_FAKE_CUDA_HPP */
