/* GPUs of fake_cuda.h, what runs on their streams and when, and the tests' side. */
#include "tests/emulated/fake_cuda_gpu.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/emulated/cuda_on_host.hpp"

using fake_cuda::lock;
using fake_cuda::memory;
using fake_cuda::mine;

namespace
{

uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* All that there ever were: whoever still holds a handle of one may use it. */
struct shelf {
    std::mutex mutex;
    std::vector<fake_gpu *> gpus;
};

shelf &all_gpus()
{
    static shelf *const one = new shelf();

    return *one;
}

thread_local fake_gpu *current;
thread_local cudaError_t last = cudaSuccess;

} // namespace

fake_gpu *fake_cuda::mine()
{
    if (current == nullptr) {
        current = new fake_gpu(1);
    }
    return current;
}

cudaError_t &fake_cuda::last_error()
{
    return last;
}

cudaError_t fake_cuda::answer(cudaError_t error)
{
    if (error != cudaSuccess) {
        last = error;
    }
    return error;
}

cudaError_t fake_cuda::refuse(cudaError_t error, const char *call, const char *why)
{
    std::fprintf(stderr, "fake_cuda: %s: %s\n", call, why);
    return answer(error);
}

CUstream_st *fake_cuda::stream_or_standard(cudaStream_t stream)
{
    return stream != nullptr ? stream : &mine()->standard;
}

fake_gpu::fake_gpu(uint64_t seed) : own(fake_cuda::memory_create()), random(seed)
{
    const std::lock_guard<std::mutex> held(all_gpus().mutex);

    standard.gpu = this;
    streams.push_back(&standard);
    all_gpus().gpus.push_back(this);
}

namespace
{

/* Tries what stands first in the streams, in an order that is drawn, until one has ended. */
bool step(fake_gpu *gpu)
{
    const size_t count = gpu->streams.size();
    const size_t first = (size_t)(next_random(&gpu->random) % count);

    for (size_t i = 0; i < count && gpu->lost == cudaSuccess; i++) {
        CUstream_st *stream = gpu->streams[(first + i) % count];

        if (!stream->queue.empty() && stream->queue.front().try_run()) {
            stream->queue.pop_front();
            return true;
        }
    }
    return false;
}

/* The GPU in the hands of one thread, its memory open: what runs, runs within. */
struct running {
    std::lock_guard<std::recursive_mutex> held;
    memory *own;

    explicit running(fake_gpu *gpu) : held(gpu->mutex), own(gpu->own)
    {
        fake_cuda::memory_open(own);
    }
    running(const running &) = delete;
    running &operator=(const running &) = delete;
    ~running()
    {
        fake_cuda::memory_close(own);
    }
};

/* Other GPUs go on while this one waits, as they would by themselves. Those in the hands of another thread do so there. */
void help_others(const fake_gpu *own)
{
    std::vector<fake_gpu *> others;
    {
        const std::lock_guard<std::mutex> held(all_gpus().mutex);
        others = all_gpus().gpus;
    }
    for (fake_gpu *gpu : others) {
        if (gpu != own && gpu->mutex.try_lock()) {
            const std::lock_guard<std::recursive_mutex> held(gpu->mutex, std::adopt_lock);

            if (gpu->lost == cudaSuccess && gpu->shared) {
                const running open(gpu);

                (void)step(gpu);
            }
        }
    }
}

[[noreturn]] void give_up(fake_gpu *gpu, const char *call)
{
    std::fprintf(stderr, "fake_cuda: %s waits in vain for %d s\n", call, FAKE_CUDA_PATIENCE_S);
    for (const CUstream_st *stream : gpu->streams) {
        std::fprintf(stderr, "  %s%p: %zu operations, first: %s\n",
                     stream == &gpu->standard ? "default stream " : "stream ", (const void *)stream,
                     stream->queue.size(),
                     stream->queue.empty() ? "none" : stream->queue.front().what);
    }
    std::abort();
}

} // namespace

cudaError_t fake_cuda::wait_for(fake_gpu *gpu, const char *call,
                                const std::function<bool()> &reached)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(FAKE_CUDA_PATIENCE_S);

    for (;;) {
        {
            const running open(gpu);

            while (!reached() && step(gpu)) {
            }
            if (gpu->lost != cudaSuccess) {
                return answer(gpu->lost);
            }
            if (reached()) {
                return cudaSuccess;
            }
            if (std::chrono::steady_clock::now() > end) {
                give_up(gpu, call);
            }
        }
        help_others(gpu);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

static cudaError_t look(fake_gpu *gpu, const std::function<bool()> &reached)
{
    const running open(gpu);

    for (uint64_t steps = next_random(&gpu->random) % 4; steps > 0; steps--) {
        (void)step(gpu);
    }
    if (gpu->lost != cudaSuccess) {
        return fake_cuda::answer(gpu->lost);
    }
    return fake_cuda::answer(reached() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t fake_cuda::ask(fake_gpu *gpu, const std::function<bool()> &reached)
{
    const cudaError_t answered = look(gpu, reached);

    if (answered == cudaErrorNotReady) {
        help_others(gpu);
    }
    return answered;
}

cudaError_t fake_cuda::enqueue(cudaStream_t stream, const char *what, std::function<bool()> try_run)
{
    CUstream_st *to = stream_or_standard(stream);
    lock held(to->gpu->mutex);

    if (to->gpu->lost == cudaSuccess) {
        to->queue.push_back({what, std::move(try_run)});
    }
    return answer(to->gpu->lost);
}

cudaError_t fake_cuda::enqueue_kernel(cudaStream_t stream, std::function<void()> kernel)
{
    fake_gpu *gpu = stream_or_standard(stream)->gpu;
    lock held(gpu->mutex);

    if (gpu->kernels_to_failure > 0 && --gpu->kernels_to_failure == 0) {
        return enqueue(stream, "kernel that fails", [gpu] {
            gpu->lost = cudaErrorIllegalAddress;
            return true;
        });
    }
    if (gpu->kernels_to_hang > 0 && --gpu->kernels_to_hang == 0) {
        return enqueue(stream, "kernel that hangs", gpu->hang_ends);
    }
    return enqueue(stream, "kernel", [kernel] {
        kernel();
        return true;
    });
}

/* What LAUNCH of tensor/cuda/kernel.cuh calls: without a queue at once, as the tests of kernels on teams want it. */
const char *on_host::launch_into(void *queue, dim3 grid, dim3 block, size_t shared_bytes,
                                 std::function<void()> body)
{
    if (queue == nullptr) {
        launch(grid, block, shared_bytes, body);
        return nullptr;
    }
    (void)fake_cuda::enqueue_kernel((cudaStream_t)queue,
                                    [=] { launch(grid, block, shared_bytes, body); });
    /* Asked as LAUNCH asks, so that what failed before and was not taken notice of comes up here. */
    const cudaError_t error = cudaGetLastError();

    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

extern "C" {

/* ---- The tests' side. ---- */

void fake_cuda_reset(uint64_t seed)
{
    if (current != nullptr) {
        fake_cuda_abort(current);
        fake_cuda::memory_clear(current->own);
    }
    current = new fake_gpu(seed);
    last = cudaSuccess;
}

struct fake_gpu *fake_cuda_gpu(void)
{
    return mine();
}

void fake_cuda_use(struct fake_gpu *gpu)
{
    current = gpu;
}

void fake_cuda_seed(uint64_t seed)
{
    lock held(mine()->mutex);
    mine()->random = seed;
}

void fake_cuda_devices(int count, int major, int minor)
{
    mine()->devices = count;
    mine()->major = major;
    mine()->minor = minor;
}

void fake_cuda_memory(size_t bytes)
{
    fake_cuda::memory_limit(mine()->own, bytes);
}

void fake_cuda_fail_malloc(int nth)
{
    mine()->mallocs_to_failure = nth;
}

void fake_cuda_fail_launch(int nth)
{
    lock held(mine()->mutex);
    mine()->kernels_to_failure = nth;
}

void fake_cuda_hang_launch(int nth, bool (*ends)(const void *context), const void *context)
{
    lock held(mine()->mutex);
    mine()->kernels_to_hang = nth;
    mine()->hang_ends = [ends, context] { return ends(context); };
}

void fake_cuda_abort(struct fake_gpu *gpu)
{
    lock held(gpu->mutex);
    gpu->lost = cudaErrorLaunchFailure;
}

void fake_cuda_share(void)
{
    lock held(mine()->mutex);
    mine()->shared = true;
}

size_t fake_cuda_pending(void)
{
    lock held(mine()->mutex);
    size_t pending = 0;

    if (mine()->lost != cudaSuccess) {
        return 0;
    }
    for (const CUstream_st *stream : mine()->streams) {
        pending += stream->queue.size();
    }
    return pending;
}

size_t fake_cuda_left(void)
{
    lock held(mine()->mutex);
    return mine()->streams.size() - 1 + mine()->events + fake_cuda::memory_ranges(mine()->own);
}

} /* extern "C" */
