#include "tensor/cuda/stamps_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/clock.h"

struct stamps_cuda {
    cudaStream_t queue;  /* borrows */
    cudaEvent_t *events; /* owns; `count` slots, then the one behind a wait */
    int32_t count;
    int32_t made;
    int64_t seen_ns; /* when the end of the last wait was */
};

static enum status failure(const char *what, cudaError_t error)
{
    (void)cudaGetLastError(); /* reported here, not by the next launch */
    return status_fail(STATUS_ERR_CUDA, "%s: %s", what, cudaGetErrorString(error));
}

enum status stamps_cuda_create(int32_t count, void *queue, struct stamps_cuda **stamps_out)
{
    struct stamps_cuda *stamps = calloc(1, sizeof(*stamps));
    cudaError_t error = cudaSuccess;

    *stamps_out = stamps;
    if (stamps != NULL) {
        stamps->events = calloc((size_t)count + 1, sizeof(cudaEvent_t));
    }
    if (stamps == NULL || stamps->events == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%d time stamps of a GPU", (int)count);
    }
    stamps->queue = queue;
    stamps->count = count;
    while (stamps->made <= count && error == cudaSuccess) {
        error = cudaEventCreateWithFlags(&stamps->events[stamps->made], cudaEventDefault);
        stamps->made += error == cudaSuccess;
    }
    return error == cudaSuccess ? STATUS_OK : failure("making time stamps of a GPU", error);
}

static enum status put(struct stamps_cuda *stamps, int32_t slot)
{
    const cudaError_t error = cudaEventRecord(stamps->events[slot], stamps->queue);

    return error == cudaSuccess ? STATUS_OK : failure("a time stamp of the GPU", error);
}

enum status stamps_cuda_put(struct stamps_cuda *stamps, int32_t slot)
{
    return put(stamps, slot);
}

enum status stamps_cuda_begin_wait(struct stamps_cuda *stamps)
{
    return stamps->count > 0 ? put(stamps, stamps->count) : STATUS_OK;
}

void stamps_cuda_end_wait(struct stamps_cuda *stamps)
{
    stamps->seen_ns = clock_now_ns();
}

int64_t stamps_cuda_ns(const struct stamps_cuda *stamps, int32_t slot)
{
    float ms = 0.0F;

    if (cudaEventElapsedTime(&ms, stamps->events[slot], stamps->events[stamps->count]) !=
        cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return stamps->seen_ns - (int64_t)((double)ms * 1e6);
}

void stamps_cuda_destroy(struct stamps_cuda **stamps)
{
    struct stamps_cuda *gone = *stamps;

    if (gone == NULL) {
        return;
    }
    for (int32_t i = 0; i < gone->made; i++) {
        (void)cudaEventDestroy(gone->events[i]);
    }
    free(gone->events);
    free(gone);
    *stamps = NULL;
}
