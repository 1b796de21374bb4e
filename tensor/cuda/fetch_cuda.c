#include "tensor/cuda/fetch_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "tensor/device.h"

/* Each with an event, so that a large fetch has larger parts, not more. */
#define PARTS_MOST 64

struct fetch_cuda {
    int ordinal;
    cudaStream_t compute;          /* borrows */
    cudaStream_t queue;            /* owns these */
    cudaEvent_t reached;           /* the compute stream has come to the fetch */
    cudaEvent_t ended[PARTS_MOST]; /* part by part */
    size_t bytes;                  /* of the last fetch, */
    size_t part_bytes;             /* of each of its parts but the last, */
    int parts;
    int seen; /* of them, to have ended */
};

static enum status failure(const char *what, cudaError_t error)
{
    (void)cudaGetLastError(); /* reported here, not by the next launch */
    return status_fail(STATUS_ERR_CUDA, "%s: %s", what, cudaGetErrorString(error));
}

static cudaError_t make(struct fetch_cuda *fetch)
{
    cudaError_t error = cudaStreamCreateWithFlags(&fetch->queue, cudaStreamNonBlocking);

    if (error == cudaSuccess) {
        error = cudaEventCreateWithFlags(&fetch->reached, cudaEventDisableTiming);
    }
    for (int i = 0; i < PARTS_MOST && error == cudaSuccess; i++) {
        error = cudaEventCreateWithFlags(&fetch->ended[i], cudaEventDisableTiming);
    }
    return error;
}

enum status fetch_cuda_create(int ordinal, void *queue, struct fetch_cuda **fetch_out)
{
    struct fetch_cuda *fetch = calloc(1, sizeof(*fetch));
    cudaError_t error = cudaSuccess;

    *fetch_out = fetch;
    if (fetch == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening GPU %d: %zu bytes", ordinal,
                           sizeof(*fetch));
    }
    fetch->ordinal = ordinal;
    fetch->compute = queue;
    error = make(fetch);
    return error == cudaSuccess ? STATUS_OK : failure("a stream for copies to the host", error);
}

static cudaError_t put_part(struct fetch_cuda *fetch, void *to, const void *from, int part)
{
    const size_t at = (size_t)part * fetch->part_bytes;
    const size_t left = fetch->bytes - at;
    const cudaError_t error = cudaMemcpyAsync(
        (unsigned char *)to + at, (const unsigned char *)from + at,
        left < fetch->part_bytes ? left : fetch->part_bytes, cudaMemcpyDefault, fetch->queue);

    return error != cudaSuccess ? error : cudaEventRecord(fetch->ended[part], fetch->queue);
}

enum status fetch_cuda_begin(struct fetch_cuda *fetch, void *to, const void *from, size_t bytes)
{
    const size_t most = DEVICE_FETCH_PART_BYTES * (size_t)PARTS_MOST;
    const size_t times = bytes > most ? (bytes + most - 1) / most : 1;
    cudaError_t error = cudaEventRecord(fetch->reached, fetch->compute);

    fetch->bytes = bytes;
    fetch->part_bytes = DEVICE_FETCH_PART_BYTES * times;
    fetch->parts = (int)((bytes + fetch->part_bytes - 1) / fetch->part_bytes);
    fetch->seen = 0;
    if (error == cudaSuccess) {
        error = cudaStreamWaitEvent(fetch->queue, fetch->reached, 0);
    }
    for (int part = 0; part < fetch->parts && error == cudaSuccess; part++) {
        error = put_part(fetch, to, from, part);
    }
    return error == cudaSuccess ? STATUS_OK : failure("copying to the host", error);
}

enum status fetch_cuda_look(struct fetch_cuda *fetch, size_t *bytes_out)
{
    /* The thread may not have this GPU, or any, and would open another one's context by its first call. */
    cudaError_t error = cudaSetDevice(fetch->ordinal);

    while (error == cudaSuccess && fetch->seen < fetch->parts) {
        error = cudaEventQuery(fetch->ended[fetch->seen]);
        fetch->seen += error == cudaSuccess ? 1 : 0;
    }
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
    } else if (error != cudaSuccess) {
        return failure("a copy to the host", error);
    }
    *bytes_out =
        fetch->seen < fetch->parts ? (size_t)fetch->seen * fetch->part_bytes : fetch->bytes;
    return STATUS_OK;
}

void fetch_cuda_finish(struct fetch_cuda *fetch)
{
    (void)cudaStreamSynchronize(fetch->queue);
    (void)cudaGetLastError();
}

static void destroy_event(cudaEvent_t event)
{
    if (event != NULL) {
        (void)cudaEventDestroy(event);
    }
}

void fetch_cuda_destroy(struct fetch_cuda **fetch)
{
    struct fetch_cuda *gone = *fetch;

    if (gone == NULL) {
        return;
    }
    if (gone->queue != NULL) {
        (void)cudaStreamDestroy(gone->queue);
    }
    destroy_event(gone->reached);
    for (int i = 0; i < PARTS_MOST; i++) {
        destroy_event(gone->ended[i]);
    }
    free(gone);
    *fetch = NULL;
}
