/* What each communicator has been given and what of it has ended. */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/cuda/comm_nccl_state.h"

enum status nccl_flight_make(struct comm_nccl *comm, struct nccl_link *link)
{
    struct nccl_flight *flight = &link->flight;

    flight->entries = calloc(NCCL_FLIGHT_ROOM, sizeof(*flight->entries));
    if (flight->entries == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "the record of a communicator of rank %d",
                           (int)comm->base.rank);
    }
    for (int i = 0; i < NCCL_FLIGHT_ROOM; i++) {
        TRY(nccl_make_event(comm, &flight->entries[i].ended));
        TRY(link->peer < 0 ? nccl_make_event(comm, &flight->entries[i].began) : STATUS_OK);
    }
    return STATUS_OK;
}

void nccl_flight_release(struct nccl_flight *flight)
{
    for (int i = 0; i < NCCL_FLIGHT_ROOM && flight->entries != NULL; i++) {
        if (flight->entries[i].ended != NULL) {
            (void)cudaEventDestroy(flight->entries[i].ended);
        }
        if (flight->entries[i].began != NULL) {
            (void)cudaEventDestroy(flight->entries[i].began);
        }
    }
    free(flight->entries);
    *flight = (struct nccl_flight){0};
}

static struct nccl_entry *entry_at(const struct nccl_flight *flight, uint64_t number)
{
    return &flight->entries[number % NCCL_FLIGHT_ROOM];
}

const struct nccl_entry *nccl_flight_oldest(struct nccl_link *link)
{
    struct nccl_flight *flight = &link->flight;

    while (flight->oldest < flight->next &&
           nccl_ask_event(entry_at(flight, flight->oldest)->ended) == cudaSuccess) {
        flight->oldest++;
    }
    return flight->oldest < flight->next ? entry_at(flight, flight->oldest) : NULL;
}

enum status nccl_flight_begin(struct comm_nccl *comm, struct nccl_link *link,
                              struct CUstream_st *stream)
{
    struct nccl_flight *flight = &link->flight;
    cudaError_t error = cudaSuccess;

    (void)nccl_flight_oldest(link);
    if (flight->next - flight->oldest < NCCL_FLIGHT_ROOM) { /* else it becomes part of another */
        error = cudaEventRecord(entry_at(flight, flight->next)->began, stream);
    }
    return error == cudaSuccess ? STATUS_OK : nccl_cuda_failure(comm, "recording an event", error);
}

bool nccl_flight_stands(struct nccl_link *link)
{
    const struct nccl_entry *oldest = nccl_flight_oldest(link);

    return oldest != NULL && nccl_ask_event(oldest->began) == cudaSuccess;
}

const struct nccl_entry *nccl_flight_find(struct nccl_link *link, uint64_t number)
{
    const struct nccl_flight *flight = &link->flight;
    const struct nccl_entry *found = NULL;

    for (uint64_t i = flight->oldest; i < flight->next && (found == NULL || found->last < number);
         i++) {
        found = entry_at(flight, i);
    }
    return found;
}

enum status nccl_flight_note(struct comm_nccl *comm, struct nccl_link *link, const char *what,
                             size_t count, struct CUstream_st *stream)
{
    struct nccl_flight *flight = &link->flight;
    struct nccl_entry *entry = NULL;
    cudaError_t error = cudaSuccess;

    (void)nccl_flight_oldest(link);
    comm->order++;
    flight->called++;
    if (flight->next - flight->oldest < NCCL_FLIGHT_ROOM) {
        entry = entry_at(flight, flight->next++);
        entry->first = flight->called;
        entry->order = comm->order;
    } else {
        entry = entry_at(flight, flight->next - 1);
    }
    entry->last = flight->called;
    entry->what = what;
    entry->count = count;
    error = cudaEventRecord(entry->ended, stream);
    return error == cudaSuccess ? STATUS_OK : nccl_cuda_failure(comm, "recording an event", error);
}

/* "message 7 of the lane F from rank 1 to rank 2 (512 bytes)" */
static void print_entry(const struct comm_nccl *comm, const struct nccl_link *link,
                        const struct nccl_entry *entry, char *text, size_t text_bytes)
{
    const uint64_t later = link->flight.called - entry->last;
    char which[48];

    if (entry->first == entry->last) {
        (void)snprintf(which, sizeof(which), "%" PRIu64, entry->first);
    } else {
        (void)snprintf(which, sizeof(which), "%" PRIu64 " to %" PRIu64, entry->first, entry->last);
    }
    if (link->peer >= 0) {
        (void)snprintf(text, text_bytes,
                       "rank %d waits for rank %d: message %s of the %s (%zu bytes) has not ended, "
                       "behind it %" PRIu64 " more",
                       (int)comm->base.rank, (int)link->peer, which, link->name, entry->count,
                       later);
    } else {
        (void)snprintf(text, text_bytes,
                       "rank %d waits for the other members of the %s: call %s, %s of %zu, has not "
                       "ended, behind it %" PRIu64 " more",
                       (int)comm->base.rank, link->name, which, entry->what, entry->count, later);
    }
}

bool nccl_flight_text(struct comm_nccl *comm, char *text, size_t text_bytes)
{
    const struct nccl_link *found = NULL;
    const struct nccl_entry *oldest = NULL;

    for (struct nccl_link *link = comm->links; link != NULL; link = link->next) {
        const struct nccl_entry *entry = nccl_flight_oldest(link);

        if (entry != NULL && (oldest == NULL || entry->order < oldest->order)) {
            found = link;
            oldest = entry;
        }
    }
    if (oldest == NULL) {
        return false;
    }
    print_entry(comm, found, oldest, text, text_bytes);
    return true;
}
