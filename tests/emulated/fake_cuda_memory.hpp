/*
 * fake_cuda_memory -- the memory of the GPUs of fake_cuda.h: ranges between guard pages, closed to the host.
 */
#ifndef TESTS_EMULATED_FAKE_CUDA_MEMORY_HPP
#define TESTS_EMULATED_FAKE_CUDA_MEMORY_HPP

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

namespace fake_cuda
{

/* What one GPU has. May be used from several threads. */
struct memory;

memory *memory_create();

/* Unmaps what is left. */
void memory_clear(memory *own);

/* Device memory that there is, 1 GiB at first. */
void memory_limit(memory *own, size_t bytes);
void memory_info(memory *own, size_t *available, size_t *total);
size_t memory_ranges(memory *own);

/* Full of NaN, of large ones only the ends; `device`: closed while nobody has opened the GPU's. NULL beyond the limit. */
void *memory_take(memory *own, size_t bytes, bool device);

/* Of any GPU; false where `start` is not what memory_take() gave, or of the other kind. Ends the program where a
 * byte behind the range was written to. */
bool memory_give(void *start, bool device);

/* For the calling thread where the processor has protection keys, else for all: opens count, and the memory is
 * closed when as many have closed it. */
void memory_open(memory *own);
void memory_close(memory *own);

} // namespace fake_cuda

#endif /* TESTS_EMULATED_FAKE_CUDA_MEMORY_HPP */
