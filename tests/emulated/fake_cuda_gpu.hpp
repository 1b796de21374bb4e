/*
 * fake_cuda_gpu -- what the parts of the fake runtime share: GPUs, streams, events, waiting.
 */
#ifndef TESTS_EMULATED_FAKE_CUDA_GPU_HPP
#define TESTS_EMULATED_FAKE_CUDA_GPU_HPP

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/emulated/fake_cuda.hpp"
#include "tests/emulated/fake_cuda_memory.hpp"

namespace fake_cuda
{

/* One cudaEventRecord(). */
struct record {
    std::atomic<bool> done{false};
    double ms = 0.0; /* of the host's clock, when it was done */
};

struct item {
    const char *what;
    std::function<bool()> try_run;
};

} // namespace fake_cuda

struct CUstream_st {
    fake_gpu *gpu;
    std::deque<fake_cuda::item> queue;
};

struct CUevent_st {
    fake_gpu *gpu;
    std::shared_ptr<fake_cuda::record> last; /* NULL: never recorded */
    bool timed;
};

struct fake_gpu {
    std::recursive_mutex mutex; /* of all below; a host function of a stream may look at its GPU */
    std::vector<CUstream_st *> streams;
    CUstream_st standard; /* the default stream: one like the others */
    fake_cuda::memory *own;
    size_t events = 0;
    uint64_t random;
    int devices = 8;
    int major = 9;
    int minor = 0;
    int mallocs_to_failure = 0;
    int kernels_to_failure = 0;
    int kernels_to_hang = 0;
    std::function<bool()> hang_ends;
    bool shared = false;
    cudaError_t lost = cudaSuccess; /* the error that stays; nothing runs any more */

    explicit fake_gpu(uint64_t seed);
};

namespace fake_cuda
{

using lock = std::lock_guard<std::recursive_mutex>;

/* The calling thread's. */
fake_gpu *mine();
cudaError_t &last_error();

/* Keeps what is not success for cudaGetLastError(), cudaErrorNotReady too, as the runtime does. */
cudaError_t answer(cudaError_t error);

/* The same, with a line on stderr. */
cudaError_t refuse(cudaError_t error, const char *call, const char *why);

CUstream_st *stream_or_standard(cudaStream_t stream);

/* Runs what is in the streams until `reached`, which is asked under the GPU's mutex. */
cudaError_t wait_for(fake_gpu *gpu, const char *call, const std::function<bool()> &reached);

/* Runs a few of what is in the streams, as many as are drawn, and asks. */
cudaError_t ask(fake_gpu *gpu, const std::function<bool()> &reached);

} // namespace fake_cuda

#endif /* TESTS_EMULATED_FAKE_CUDA_GPU_HPP */
