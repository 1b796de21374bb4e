/* Collectives, in place, on the compute stream or beside it: each call one launch. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>

#include "collectives/cuda/comm_nccl_state.h"

static struct comm_nccl *comm_of(const struct group *group)
{
    return (struct comm_nccl *)group->comm;
}

static struct nccl_group *group_of(struct group *base)
{
    return (struct nccl_group *)base;
}

static unsigned char *at(const struct comm_piece *piece, size_t first)
{
    return (unsigned char *)piece->data + first * piece->elem_bytes;
}

/* Whether every member's comm_slice() is as long, so that one collective does; then of `elems_out` elements. */
static bool is_even(const struct group *group, const struct comm_piece *piece, size_t *elems_out)
{
    size_t first = 0;
    size_t elems = 0;

    comm_slice(piece->elems, group->count, 0, &first, elems_out);
    comm_slice(piece->elems, group->count, group->count - 1, &first, &elems);
    return elems == *elems_out;
}

/* How one piece is put in, in a group of calls. */
typedef ncclResult_t (*piece_fn)(const struct group *group, const struct comm_piece *piece,
                                 ncclComm_t handle, cudaStream_t stream);

static ncclResult_t scatter_piece(const struct group *group, const struct comm_piece *piece,
                                  ncclComm_t handle, cudaStream_t stream)
{
    ncclResult_t result = ncclSuccess;
    size_t elems = 0;

    if (is_even(group, piece, &elems)) {
        return ncclReduceScatter(piece->data, at(piece, (size_t)group->index * elems), elems,
                                 ncclFloat32, ncclSum, handle, stream);
    }
    for (int32_t k = 0; k < group->count && result == ncclSuccess; k++) {
        size_t first = 0;

        comm_slice(piece->elems, group->count, k, &first, &elems);
        if (elems > 0) {
            void *part = at(piece, first);

            result = ncclReduce(part, k == group->index ? part : NULL, elems, ncclFloat32, ncclSum,
                                k, handle, stream);
        }
    }
    return result;
}

static ncclResult_t gather_piece(const struct group *group, const struct comm_piece *piece,
                                 ncclComm_t handle, cudaStream_t stream)
{
    ncclResult_t result = ncclSuccess;
    size_t elems = 0;

    if (is_even(group, piece, &elems)) {
        return ncclAllGather(at(piece, (size_t)group->index * elems), piece->data,
                             elems * piece->elem_bytes, ncclUint8, handle, stream);
    }
    for (int32_t k = 0; k < group->count && result == ncclSuccess; k++) {
        size_t first = 0;

        comm_slice(piece->elems, group->count, k, &first, &elems);
        if (elems > 0) {
            result = ncclBroadcast(at(piece, first), at(piece, first), elems * piece->elem_bytes,
                                   ncclUint8, k, handle, stream);
        }
    }
    return result;
}

static size_t elems_of(const struct comm_piece *pieces, int32_t count)
{
    size_t elems = 0;

    for (int32_t i = 0; i < count; i++) {
        elems += pieces[i].elems;
    }
    return elems;
}

enum status nccl_group_make(struct comm_nccl *comm, struct nccl_group *group)
{
    cudaError_t error = cudaSuccess;

    group->stream = comm->compute;
    if (!group->aside) {
        return STATUS_OK;
    }
    group->stream = NULL;
    error = cudaStreamCreateWithFlags(&group->stream, cudaStreamNonBlocking);
    return error == cudaSuccess ? nccl_make_event(comm, &group->reached)
                                : nccl_cuda_failure(comm, "a stream", error);
}

void nccl_group_release(struct nccl_group *group)
{
    if (group->aside && group->stream != NULL) {
        (void)cudaStreamDestroy(group->stream);
    }
    if (group->reached != NULL) {
        (void)cudaEventDestroy(group->reached);
    }
    nccl_flight_release(&group->link.flight);
    free(group);
}

/* What the compute stream has been given comes before the call. */
static enum status come_behind(struct comm_nccl *comm, struct nccl_group *group)
{
    if (group->aside) {
        TRY(nccl_order_behind(comm, group->stream, group->reached, comm->compute));
    }
    return nccl_flight_begin(comm, &group->link, group->stream);
}

enum status nccl_group_join(struct group *base, uint64_t calls)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_group *group = group_of(base);
    /* Calls without elements are no operations, so that what is found may be a later one, which is behind it too. */
    const struct nccl_entry *entry = group->aside ? nccl_flight_find(&group->link, calls) : NULL;

    return entry != NULL ? nccl_order_behind(comm, comm->compute, entry->ended, NULL) : STATUS_OK;
}

/* All pieces as one launch; nothing where nothing is in them, which is so at every member. */
static enum status call(struct group *base, const struct comm_piece *pieces, int32_t count,
                        piece_fn put, const char *what)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_group *group = group_of(base);
    const size_t elems = elems_of(pieces, count);
    ncclResult_t result = ncclSuccess;
    ncclResult_t ended = ncclSuccess;

    if (elems == 0) {
        return STATUS_OK;
    }
    TRY(come_behind(comm, group));
    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    result = ncclGroupStart();
    for (int32_t i = 0; i < count && result == ncclSuccess; i++) {
        if (pieces[i].elems > 0) {
            result = put(base, &pieces[i], group->link.handle, group->stream);
        }
    }
    ended = ncclGroupEnd();
    nccl_leave(comm);
    TRY(nccl_settle(comm, &group->link, what, (int)(result != ncclSuccess ? result : ended)));
    return nccl_flight_note(comm, &group->link, what, elems, group->stream);
}

enum status nccl_all_reduce(struct group *base, const struct comm_piece *piece, enum comm_op op,
                            const struct cancel *cancel, int64_t deadline_ns)
{
    struct comm_nccl *comm = comm_of(base);
    struct nccl_group *group = group_of(base);
    const char *what = op == COMM_SUM ? "all_reduce (sum)" : "all_reduce (max)";
    ncclResult_t result = ncclSuccess;

    (void)cancel; /* nothing blocks here */
    (void)deadline_ns;
    if (piece->elems == 0) {
        return STATUS_OK;
    }
    TRY(come_behind(comm, group));
    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    result = ncclAllReduce(piece->data, piece->data, piece->elems, ncclFloat32,
                           op == COMM_SUM ? ncclSum : ncclMax, group->link.handle, group->stream);
    nccl_leave(comm);
    TRY(nccl_settle(comm, &group->link, what, (int)result));
    return nccl_flight_note(comm, &group->link, what, piece->elems, group->stream);
}

enum status nccl_reduce_scatter(struct group *base, const struct comm_piece *pieces, int32_t count,
                                const struct cancel *cancel, int64_t deadline_ns)
{
    (void)cancel;
    (void)deadline_ns;
    return call(base, pieces, count, scatter_piece, "reduce_scatter");
}

enum status nccl_all_gather(struct group *base, const struct comm_piece *pieces, int32_t count,
                            const struct cancel *cancel, int64_t deadline_ns)
{
    (void)cancel;
    (void)deadline_ns;
    return call(base, pieces, count, gather_piece, "all_gather");
}
