/* The functions of the CUDA runtime, over the streams of fake_cuda_gpu.hpp. */
#include <chrono>
#include <cstring>

#include "tests/emulated/fake_cuda_gpu.hpp"

using namespace fake_cuda;

namespace
{

double now_ms()
{
    const auto since = std::chrono::steady_clock::now().time_since_epoch();

    return std::chrono::duration<double, std::milli>(since).count();
}

/* A switch for tests. */
std::atomic<bool> forgets_waits{false};

} // namespace

extern "C" {

void fake_cuda_forget_waits(int forget)
{
    forgets_waits = forget != 0;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = mine()->devices;
    return answer(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int ordinal)
{
    return answer(ordinal >= 0 && ordinal < mine()->devices ? mine()->lost
                                                            : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int ordinal)
{
    if (ordinal < 0 || ordinal >= mine()->devices) {
        return answer(cudaErrorInvalidDevice);
    }
    *value = attribute == cudaDevAttrComputeCapabilityMajor   ? mine()->major
             : attribute == cudaDevAttrComputeCapabilityMinor ? mine()->minor
                                                              : 132;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = mine()->devices > 0 ? CUDART_VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error();

    last_error() = mine()->lost;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error();
}

/* The runtime's words. */
const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    }
    return "unrecognized error code";
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    fake_cuda::memory_info(mine()->own, available, total);
    return answer(mine()->lost);
}

static cudaError_t take(void **out, size_t bytes, bool device)
{
    fake_gpu *gpu = mine();
    lock held(gpu->mutex);

    *out = nullptr;
    if (gpu->lost != cudaSuccess) {
        return answer(gpu->lost);
    }
    if (gpu->mallocs_to_failure > 0 && --gpu->mallocs_to_failure == 0) {
        return answer(cudaErrorMemoryAllocation);
    }
    *out = bytes > 0 ? fake_cuda::memory_take(gpu->own, bytes, device) : nullptr;
    return answer(*out != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    return take(out, bytes, true);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return take(out, bytes, false);
}

cudaError_t cudaDeviceSynchronize(void)
{
    fake_gpu *gpu = mine();

    return wait_for(gpu, "cudaDeviceSynchronize", [gpu] {
        for (const CUstream_st *stream : gpu->streams) {
            if (!stream->queue.empty()) {
                return false;
            }
        }
        return true;
    });
}

/* Waits for the whole device first, as the runtime does; of one that is lost memory goes back all the same. */
static cudaError_t give(const char *call, void *start, bool device)
{
    if (start == nullptr) {
        return cudaSuccess;
    }
    const cudaError_t waited = cudaDeviceSynchronize();

    return fake_cuda::memory_give(start, device)
               ? waited
               : refuse(cudaErrorInvalidValue, call, "not the start of what was allocated");
}

cudaError_t cudaFree(void *start)
{
    return give("cudaFree", start, true);
}

cudaError_t cudaFreeHost(void *start)
{
    return give("cudaFreeHost", start, false);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const bool to_device = fake_cuda::is_device(to);
    const bool from_device = fake_cuda::is_device(from);
    const size_t behind_to = fake_cuda::bytes_behind(to);
    const size_t behind_from = fake_cuda::bytes_behind(from);
    const int found = (from_device ? 2 : 0) + (to_device ? 1 : 0);

    if ((behind_to > 0 && behind_to < bytes) || (behind_from > 0 && behind_from < bytes)) {
        return refuse(cudaErrorInvalidValue, "cudaMemcpyAsync", "beyond an allocation");
    }
    if (kind != cudaMemcpyDefault && (int)kind != found) {
        return refuse(cudaErrorInvalidValue, "cudaMemcpyAsync", "another direction than it says");
    }
    return fake_cuda::enqueue(stream, "copy", [=] {
        std::memcpy(to, from, bytes);
        return true;
    });
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    attributes->type = fake_cuda::is_device(memory)          ? cudaMemoryTypeDevice
                       : fake_cuda::bytes_behind(memory) > 0 ? cudaMemoryTypeHost
                                                             : cudaMemoryTypeUnregistered;
    return answer(mine()->lost);
}

cudaError_t cudaMemsetAsync(void *start, int value, size_t bytes, cudaStream_t stream)
{
    if (fake_cuda::bytes_behind(start) < bytes) {
        return refuse(cudaErrorInvalidValue, "cudaMemsetAsync", "beyond an allocation");
    }
    return fake_cuda::enqueue(stream, "memset", [=] {
        std::memset(start, value, bytes);
        return true;
    });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    fake_gpu *gpu = mine();
    lock held(gpu->mutex);

    if (flags != cudaStreamNonBlocking) {
        return refuse(cudaErrorInvalidValue, "cudaStreamCreateWithFlags",
                      "of non-blocking streams only");
    }
    if (gpu->lost == cudaSuccess) {
        *out = new CUstream_st{gpu, {}};
        gpu->streams.push_back(*out);
    }
    return answer(gpu->lost);
}

/* What has a higher priority may run first here too, as everything may. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority)
{
    return priority <= 0 && priority >= -5
               ? cudaStreamCreateWithFlags(out, flags)
               : refuse(cudaErrorInvalidValue, "cudaStreamCreateWithPriority", "out of range");
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return answer(mine()->lost);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CUstream_st *of = stream_or_standard(stream);

    return wait_for(of->gpu, "cudaStreamSynchronize", [of] { return of->queue.empty(); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    CUstream_st *of = stream_or_standard(stream);

    return ask(of->gpu, [of] { return of->queue.empty(); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const cudaError_t error = cudaStreamSynchronize(stream);
    lock held(stream->gpu->mutex);
    std::vector<CUstream_st *> &all = stream->gpu->streams;

    for (size_t i = 0; i < all.size(); i++) {
        if (all[i] == stream) {
            all.erase(all.begin() + (ptrdiff_t)i);
            break;
        }
    }
    delete stream;
    return error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    fake_gpu *gpu = mine();
    lock held(gpu->mutex);

    if (gpu->lost == cudaSuccess) {
        *out = new CUevent_st{gpu, nullptr, (flags & cudaEventDisableTiming) == 0};
        gpu->events++;
    }
    return answer(gpu->lost);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    fake_gpu *gpu = event->gpu;
    lock held(gpu->mutex);

    gpu->events--;
    delete event;
    return answer(gpu->lost);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    lock held(event->gpu->mutex);
    const auto made = std::make_shared<record>();

    event->last = made;
    return fake_cuda::enqueue(stream, "event's record", [made] {
        made->ms = now_ms();
        made->done = true;
        return true;
    });
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    lock held(start->gpu->mutex);

    if (!start->timed || !end->timed || start->last == nullptr || end->last == nullptr) {
        return refuse(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime",
                      "an event without a time");
    }
    if (!start->last->done || !end->last->done) {
        return answer(cudaErrorNotReady);
    }
    *ms = (float)(end->last->ms - start->last->ms);
    return answer(start->gpu->lost);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    std::shared_ptr<record> last;
    {
        lock held(event->gpu->mutex);
        last = event->last;
    }
    (void)flags;
    if (last == nullptr || forgets_waits) {
        return cudaSuccess;
    }
    return fake_cuda::enqueue(stream, "event's wait", [last] { return last->done.load(); });
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return ask(event->gpu, [event] { return event->last == nullptr || event->last->done; });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return wait_for(event->gpu, "cudaEventSynchronize",
                    [event] { return event->last == nullptr || event->last->done; });
}

/* The host's code, with the memory closed. */
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *context)
{
    fake_gpu *gpu = stream_or_standard(stream)->gpu;

    return fake_cuda::enqueue(stream, "host function", [=] {
        fake_cuda::memory_close(gpu->own);
        fn(context);
        fake_cuda::memory_open(gpu->own);
        return true;
    });
}

} /* extern "C" */
