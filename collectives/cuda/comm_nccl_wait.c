/* The gate around NCCL's calls, what went wrong in them, and waits that ask every communicator. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "collectives/cuda/comm_nccl_state.h"

/* For what NCCL answers "in progress" inside a step. */
#define CALL_S 60.0

/* Between two questions. */
#define POLL_NS ((int64_t)50000)

bool nccl_is_aborted(const struct comm_nccl *comm)
{
    return __atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE) != 0;
}

bool nccl_enter(struct comm_nccl *comm)
{
    (void)pthread_mutex_lock(&comm->gate);
    if (nccl_is_aborted(comm)) {
        (void)pthread_mutex_unlock(&comm->gate);
        return false;
    }
    return true;
}

void nccl_leave(struct comm_nccl *comm)
{
    (void)pthread_mutex_unlock(&comm->gate);
}

enum status nccl_aborted(const struct comm_nccl *comm)
{
    return status_note(STATUS_ERR_CANCELLED, "the data plane of rank %d has been aborted",
                       (int)comm->base.rank);
}

enum status nccl_failure(struct comm_nccl *comm, struct nccl_link *link, const char *what,
                         int result)
{
    char words[256] = "";

    comm->sick = true;
    if (nccl_enter(comm)) {
        (void)snprintf(words, sizeof(words), "%s",
                       link->handle != NULL ? ncclGetLastError(link->handle)
                                            : ncclGetLastError(NULL));
        nccl_leave(comm);
    }
    return status_fail(result == ncclRemoteError ? STATUS_ERR_PEER : STATUS_ERR_CUDA,
                       "rank %d, %s of the %s: NCCL: %s%s%s", (int)comm->base.rank, what,
                       link->name, ncclGetErrorString((ncclResult_t)result),
                       words[0] != '\0' ? ": " : "", words);
}

enum status nccl_cuda_failure(struct comm_nccl *comm, const char *what, int error)
{
    comm->sick = true;
    (void)cudaGetLastError(); /* reported here, not by the next launch */
    return status_fail(STATUS_ERR_CUDA, "the data plane of rank %d: %s: %s", (int)comm->base.rank,
                       what, cudaGetErrorString((cudaError_t)error));
}

enum status nccl_make_event(struct comm_nccl *comm, struct CUevent_st **event_out)
{
    const cudaError_t error = cudaEventCreateWithFlags(event_out, cudaEventDisableTiming);

    return error == cudaSuccess ? STATUS_OK : nccl_cuda_failure(comm, "an event", error);
}

enum status nccl_order_behind(struct comm_nccl *comm, struct CUstream_st *waits,
                              struct CUevent_st *event, struct CUstream_st *recorded)
{
    cudaError_t error = recorded != NULL ? cudaEventRecord(event, recorded) : cudaSuccess;

    if (error == cudaSuccess) {
        error = cudaStreamWaitEvent(waits, event, 0);
    }
    return error == cudaSuccess ? STATUS_OK : nccl_cuda_failure(comm, "waiting in a stream", error);
}

int nccl_ask_event(struct CUevent_st *event)
{
    const cudaError_t error = cudaEventQuery(event);

    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
    }
    return (int)error;
}

/* One communicator's state; under the gate. Of a communicator in creation its own. */
static ncclResult_t state_of(const struct nccl_link *link)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t result =
        link->handle != NULL ? ncclCommGetAsyncError(link->handle, &state) : ncclSuccess;

    return result != ncclSuccess ? result : state;
}

static int64_t call_deadline(const struct comm_nccl *comm)
{
    return comm->deadline_ns != CLOCK_NEVER ? comm->deadline_ns : clock_deadline(CALL_S);
}

static enum status wait_failure(struct comm_nccl *comm, const struct nccl_link *link,
                                const char *what, enum status status)
{
    comm->sick = true;
    if (status == STATUS_ERR_CANCELLED) {
        return status_note(status, "cancelled while rank %d was at %s of the %s",
                           (int)comm->base.rank, what, link->name);
    }
    return status_fail(status, "rank %d, %s of the %s: its other ranks do not come: %s",
                       (int)comm->base.rank, what, link->name, status_text(status));
}

enum status nccl_settle(struct comm_nccl *comm, struct nccl_link *link, const char *what,
                        int result)
{
    int64_t deadline_ns = 0;
    ncclResult_t state = (ncclResult_t)result;

    if (state == ncclInProgress) {
        deadline_ns = call_deadline(comm);
    }
    while (state == ncclInProgress) {
        enum status status = cancel_check(comm->cancel, deadline_ns);

        if (status < 0) {
            return wait_failure(comm, link, what, status);
        }
        if (!nccl_enter(comm)) {
            return nccl_aborted(comm);
        }
        state = state_of(link);
        nccl_leave(comm);
        if (state == ncclInProgress) {
            clock_sleep_ns(POLL_NS);
        }
    }
    return state == ncclSuccess ? STATUS_OK : nccl_failure(comm, link, what, (int)state);
}

enum status nccl_check(struct comm_nccl *comm)
{
    struct nccl_link *link = comm->links;
    ncclResult_t state = ncclSuccess;

    if (comm->failed < 0) {
        return comm->failed;
    }
    if (!nccl_enter(comm)) {
        comm->sick = true;
        return nccl_aborted(comm);
    }
    for (; link != NULL; link = link->next) {
        state = state_of(link);
        if (state != ncclSuccess && state != ncclInProgress) {
            break;
        }
    }
    nccl_leave(comm);
    return link == NULL ? STATUS_OK : nccl_failure(comm, link, "work", (int)state);
}

/* An abort empties the streams, and with them what a wait stood at: so a long wait looks now and then, and what it saw
 * holds until it ends, however long this thread was away since. */
#define LOOK_NS ((int64_t)200000000)

static void look(struct comm_nccl *comm)
{
    const int64_t now_ns = clock_now_ns();
    char text[NCCL_FLIGHT_TEXT_BYTES];
    bool in_call = false;
    bool stands = false;

    if (now_ns - comm->looked_ns < LOOK_NS) {
        return;
    }
    stands = nccl_flight_text(comm, text, sizeof(text));
    for (struct nccl_group *group = comm->groups; group != NULL; group = group->next) {
        in_call = in_call || (!group->aside && nccl_flight_stands(&group->link));
    }
    if (nccl_is_aborted(comm)) {
        return; /* the streams may have been empty by then */
    }
    comm->looked_ns = now_ns;
    comm->stands = stands;
    (void)snprintf(comm->stood_at, sizeof(comm->stood_at), "%s", stands ? text : "");
    __atomic_store_n(&comm->in_call, in_call ? 1 : 0, __ATOMIC_RELEASE);
}

/* The wait is over: what it stood at says nothing of the next one. */
static void forget(struct comm_nccl *comm)
{
    comm->stands = false;
    __atomic_store_n(&comm->in_call, 0, __ATOMIC_RELEASE);
}

bool nccl_stands(const struct comm *base)
{
    return __atomic_load_n(&((const struct comm_nccl *)base)->in_call, __ATOMIC_ACQUIRE) != 0;
}

/* Of the device's waits; see device_watch(). */
enum status nccl_watch(void *context, enum status ended)
{
    struct comm_nccl *comm = context;
    const bool over = !device_is_awaited(comm->device);
    char text[NCCL_FLIGHT_TEXT_BYTES];

    if (ended == STATUS_OK) {
        ended = nccl_check(comm);
        if (ended == STATUS_OK && !over) {
            look(comm);
        }
        if (!over) {
            return ended; /* the wait ends with a failure, and asks a last time */
        }
    }
    if (ended == STATUS_OK) {
        forget(comm);
        return STATUS_OK;
    }
    comm->sick = true;
    if (ended == STATUS_ERR_TIMEOUT && nccl_flight_text(comm, text, sizeof(text))) {
        forget(comm);
        return status_fail(STATUS_ERR_PEER, "%s: %s", text, status_text(ended));
    }
    /* Others have ended the job: what this rank stood at may be its cause. */
    if (comm->stands) {
        log_error("%s", comm->stood_at);
    }
    forget(comm);
    return ended;
}

enum status nccl_wait_event(struct comm_nccl *comm, struct CUevent_st *event,
                            const struct nccl_link *link)
{
    const int64_t deadline_ns = call_deadline(comm);

    for (;;) {
        const cudaError_t error = (cudaError_t)nccl_ask_event(event);
        enum status status = cancel_check(comm->cancel, deadline_ns);

        TRY(nccl_check(comm));
        if (error == cudaSuccess) {
            return STATUS_OK;
        }
        if (error != cudaErrorNotReady) {
            return nccl_cuda_failure(comm, "waiting for the GPU", error);
        }
        if (status < 0) {
            return wait_failure(comm, link, "an operation", status);
        }
        clock_sleep_ns(POLL_NS);
    }
}

enum status nccl_wait_link(struct comm_nccl *comm, struct nccl_link *link)
{
    const struct nccl_entry *entry = nccl_flight_oldest(link);

    while (entry != NULL) {
        TRY(nccl_wait_event(comm, entry->ended, link));
        entry = nccl_flight_oldest(link);
    }
    return STATUS_OK;
}
