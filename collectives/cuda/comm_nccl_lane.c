/* Messages: each lane a stream beside the compute stream, and events between the two. */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <nccl.h>
#include <stdlib.h>

#include "base/check.h"
#include "collectives/cuda/comm_nccl_state.h"

/* Where a landing buffer may begin, as comm.h says. */
#define LANDING_ALIGN ((size_t)128)

static struct comm_nccl *comm_of(const struct lane *lane)
{
    return (struct comm_nccl *)lane->comm;
}

static struct nccl_lane *lane_of(struct lane *base)
{
    return (struct nccl_lane *)base;
}

static const struct nccl_lane *look_at(const struct lane *base)
{
    return (const struct nccl_lane *)base;
}

size_t nccl_landing_stride(const struct lane *lane)
{
    return (lane->config.landing_bytes + LANDING_ALIGN - 1) / LANDING_ALIGN * LANDING_ALIGN;
}

static size_t memory_bytes(const struct nccl_lane *lane)
{
    return (size_t)lane->base.config.landings * nccl_landing_stride(&lane->base);
}

/* Of the highest priority: kernels of messages are short, and somebody waits for them. */
static enum status make_stream(struct comm_nccl *comm, struct nccl_lane *lane)
{
    int least = 0;
    int greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    if (error == cudaSuccess) {
        error = cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking, greatest);
    }
    return error == cudaSuccess ? STATUS_OK : nccl_cuda_failure(comm, "a stream", error);
}

static enum status make_landings(struct comm_nccl *comm, struct nccl_lane *lane)
{
    const int32_t count = lane->base.config.landings;
    void *memory = NULL;

    lane->landings = calloc((size_t)count, sizeof(*lane->landings));
    if (lane->landings == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "%d landing buffers from rank %d", (int)count,
                           (int)lane->base.config.peer);
    }
    for (int32_t i = 0; i < count; i++) {
        TRY(nccl_make_event(comm, &lane->landings[i].free));
        TRY(nccl_make_event(comm, &lane->landings[i].arrived));
    }
    TRY(device_take(comm->device, DEVICE_TENSORS, "landing buffers", memory_bytes(lane), &memory));
    lane->memory = memory;
    comm->reserved_bytes += memory_bytes(lane);
    return STATUS_OK;
}

enum status nccl_lane_make(struct comm_nccl *comm, struct nccl_lane *lane)
{
    TRY(make_stream(comm, lane));
    TRY(nccl_make_event(comm, &lane->written));
    TRY(nccl_make_event(comm, &lane->sent));
    return lane->base.config.sends ? STATUS_OK : make_landings(comm, lane);
}

static void destroy_event(cudaEvent_t event)
{
    if (event != NULL) {
        (void)cudaEventDestroy(event);
    }
}

void nccl_lane_release(const struct comm_nccl *comm, struct nccl_lane *lane)
{
    if (lane->stream != NULL) {
        (void)cudaStreamDestroy(lane->stream);
    }
    destroy_event(lane->written);
    destroy_event(lane->sent);
    for (int32_t i = 0; i < lane->base.config.landings && lane->landings != NULL; i++) {
        destroy_event(lane->landings[i].free);
        destroy_event(lane->landings[i].arrived);
    }
    free(lane->landings);
    if (lane->memory != NULL) {
        device_give(comm->device, DEVICE_TENSORS, lane->memory, memory_bytes(lane));
    }
    nccl_flight_release(&lane->link.flight);
    free(lane);
}

/* The message itself, behind what is in the lane's stream: `from` is sent, or received `to`. */
static enum status transfer(struct comm_nccl *comm, struct nccl_lane *lane, const void *from,
                            void *to, size_t bytes)
{
    const bool sends = lane->base.config.sends;
    const int peer = lane->base.config.peer > comm->base.rank ? 1 : 0;
    ncclResult_t result = ncclSuccess;

    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    result = sends ? ncclSend(from, bytes, ncclUint8, peer, lane->link.handle, lane->stream)
                   : ncclRecv(to, bytes, ncclUint8, peer, lane->link.handle, lane->stream);
    nccl_leave(comm);
    TRY(nccl_settle(comm, &lane->link, sends ? "sending" : "receiving", (int)result));
    return nccl_flight_note(comm, &lane->link, "a message", bytes, lane->stream);
}

/* Behind what is in the compute stream. */
static enum status move(struct comm_nccl *comm, struct nccl_lane *lane, const void *from, void *to,
                        size_t bytes)
{
    TRY(nccl_order_behind(comm, lane->stream, lane->written, comm->compute));
    return transfer(comm, lane, from, to, bytes);
}

enum status nccl_lane_move(struct nccl_lane *lane, void *memory, size_t bytes)
{
    return move(comm_of(&lane->base), lane, memory, memory, bytes);
}

void *nccl_lane_landing(const struct lane *base, int32_t landing)
{
    return look_at(base)->memory + (size_t)landing * nccl_landing_stride(base);
}

enum status nccl_lane_post_send(struct lane *base, int32_t landing, uint64_t tag, const void *data,
                                size_t bytes)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_lane *lane = lane_of(base);
    cudaError_t error = cudaSuccess;

    (void)landing; /* the receiver has posted it: messages have one order */
    (void)tag;
    if (bytes != base->config.landing_bytes) {
        return status_fail(STATUS_ERR_INVALID,
                           "a message of %zu bytes to rank %d: over NCCL it has those of a landing "
                           "buffer, %zu",
                           bytes, (int)base->config.peer, base->config.landing_bytes);
    }
    TRY(move(comm, lane, data, NULL, bytes));
    error = cudaEventRecord(lane->sent, lane->stream);
    if (error != cudaSuccess) {
        return nccl_cuda_failure(comm, "recording a send", error);
    }
    lane->pending = true;
    base->traffic.calls++;
    base->traffic.bytes += bytes;
    return STATUS_OK;
}

bool nccl_lane_sent(const struct lane *base)
{
    return !look_at(base)->pending;
}

enum status nccl_lane_wait_sent(struct lane *base, const struct cancel *cancel, int64_t deadline_ns)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_lane *lane = lane_of(base);

    (void)cancel; /* nothing blocks here */
    (void)deadline_ns;
    if (lane->pending) {
        TRY(nccl_order_behind(comm, comm->compute, lane->sent, NULL));
        lane->pending = false;
    }
    return STATUS_OK;
}

enum status nccl_lane_post_receive(struct lane *base, int32_t landing, uint64_t tag)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_lane *lane = lane_of(base);
    struct nccl_landing *place = &lane->landings[landing];
    cudaError_t error = cudaSuccess;

    ENSURE(place->state == NCCL_LANDING_FREE,
           "landing buffer %d from rank %d is posted before its credit", (int)landing,
           (int)base->config.peer);
    TRY(nccl_order_behind(comm, lane->stream, place->free, NULL));
    TRY(transfer(comm, lane, NULL, nccl_lane_landing(base, landing), base->config.landing_bytes));
    error = cudaEventRecord(place->arrived, lane->stream);
    if (error != cudaSuccess) {
        return nccl_cuda_failure(comm, "recording a receive", error);
    }
    place->state = NCCL_LANDING_POSTED;
    place->tag = tag;
    return STATUS_OK;
}

static enum status check_tag(const struct lane *base, int32_t landing, uint64_t tag)
{
    const struct nccl_landing *place = &look_at(base)->landings[landing];
    char name[COMM_LANE_NAME_BYTES];

    if (place->tag == tag) {
        return STATUS_OK;
    }
    return status_fail(STATUS_ERR_FORMAT,
                       "lane %s: landing buffer %d was posted for message %#" PRIx64
                       ", where %#" PRIx64 " was expected",
                       comm_lane_name(base, name), (int)landing, place->tag, tag);
}

enum status nccl_lane_arrived(const struct lane *base, int32_t landing, uint64_t tag)
{
    const struct nccl_landing *place = &look_at(base)->landings[landing];
    cudaError_t error = cudaSuccess;

    if (place->state == NCCL_LANDING_FREE) {
        return STATUS_IN_PROGRESS;
    }
    TRY(check_tag(base, landing, tag));
    if (place->state == NCCL_LANDING_FULL) {
        return STATUS_OK;
    }
    error = (cudaError_t)nccl_ask_event(place->arrived);
    if (error == cudaErrorNotReady) {
        return STATUS_IN_PROGRESS;
    }
    return error == cudaSuccess ? STATUS_OK
                                : nccl_cuda_failure(comm_of(base), "asking for a message", error);
}

enum status nccl_lane_wait_arrival(struct lane *base, int32_t landing, uint64_t tag,
                                   const struct cancel *cancel, int64_t deadline_ns)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_landing *place = &lane_of(base)->landings[landing];

    (void)cancel; /* nothing blocks here */
    (void)deadline_ns;
    ENSURE(place->state != NCCL_LANDING_FREE, "landing buffer %d from rank %d is not posted",
           (int)landing, (int)base->config.peer);
    TRY(check_tag(base, landing, tag));
    if (place->state == NCCL_LANDING_POSTED) {
        TRY(nccl_order_behind(comm, comm->compute, place->arrived, NULL));
        place->state = NCCL_LANDING_FULL;
    }
    return STATUS_OK;
}

void nccl_lane_credit(struct lane *base, int32_t landing)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_landing *place = &lane_of(base)->landings[landing];
    cudaError_t error = cudaSuccess;

    ENSURE(place->state == NCCL_LANDING_FULL, "landing buffer %d from rank %d holds no message",
           (int)landing, (int)base->config.peer);
    error = cudaEventRecord(place->free, comm->compute);
    if (error != cudaSuccess) {
        comm->failed = nccl_cuda_failure(comm, "recording a credit", error);
    }
    place->state = NCCL_LANDING_FREE;
    base->traffic.calls++;
    base->traffic.bytes += base->config.landing_bytes;
}
