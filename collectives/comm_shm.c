/* The life of a comm over shared memory; comm_shm_connect.c has its start. */
#include "collectives/comm_shm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/kernels.h"

static enum status comm_shm_lane_open(struct comm *base, const struct lane_config *config,
                                      struct lane **lane_out)
{
    struct comm_shm *comm = comm_shm_of(base);
    struct comm_shm_lane **lanes;
    struct comm_shm_lane *lane = calloc(1, sizeof(*lane));

    lanes = realloc(comm->lanes, ((size_t)comm->lane_count + 1) * sizeof(struct comm_shm_lane *));
    if (lanes != NULL) {
        comm->lanes = lanes;
    }
    if (lane == NULL || lanes == NULL) {
        free(lane);
        return status_fail(STATUS_ERR_NO_MEMORY, "opening a lane with rank %" PRId32, config->peer);
    }
    lane->base.comm = base;
    lane->base.config = *config;
    lanes[comm->lane_count++] = lane;
    *lane_out = &lane->base;
    return STATUS_OK;
}

static const struct comm_shm_lane *find_lane(const struct comm_shm *comm, int32_t peer,
                                             int32_t direction, bool sends)
{
    for (int32_t i = 0; i < comm->lane_count; i++) {
        const struct lane_config *config = &comm->lanes[i]->base.config;

        if (config->peer == peer && config->direction == direction && config->sends == sends) {
            return comm->lanes[i];
        }
    }
    return NULL;
}

static bool lane_exists(const struct comm *base, const struct lane_config *config)
{
    return find_lane(comm_shm_of_const(base), config->peer, config->direction, config->sends) !=
           NULL;
}

/* This rank's own page comes last: once its main thread is freed, the process may end, and the peers
 * must have been told by then. */
void comm_shm_abort(struct comm *base)
{
    struct comm_shm *comm = comm_shm_of(base);
    struct segment_page *own;
    int32_t peer_count;

    __atomic_store_n(&comm->aborted, 1, __ATOMIC_SEQ_CST);
    peer_count = __atomic_load_n(&comm->peer_count, __ATOMIC_SEQ_CST);
    for (int32_t i = 0; i < peer_count; i++) {
        struct segment_page *page = __atomic_load_n(&comm->peers[i].page, __ATOMIC_SEQ_CST);

        if (page != NULL) {
            segment_page_abort(page);
        }
    }
    own = __atomic_load_n(&comm->page, __ATOMIC_SEQ_CST);
    if (own != NULL) {
        segment_page_abort(own);
    }
}

static void *shared_block(const struct comm *base)
{
    const struct comm_shm *comm = comm_shm_of_const(base);

    return comm->segment.base + comm->shared;
}

static enum status read_block(struct comm *base, int32_t rank, size_t offset, void *data,
                              size_t bytes)
{
    const struct comm_shm *comm = comm_shm_of(base);
    const struct comm_shm_peer *peer = comm->peers;

    for (int32_t left = comm->peer_count; left > 0 && peer->rank != rank; left--) {
        peer++;
    }
    if (peer == comm->peers + comm->peer_count) {
        return status_fail(STATUS_ERR_INVALID,
                           "reading the shared block of rank %" PRId32 ": rank %" PRId32
                           " has neither a lane nor a group with it",
                           rank, base->rank);
    }
    if (offset > peer->shared_bytes || bytes > peer->shared_bytes - offset) {
        return status_fail(STATUS_ERR_INVALID,
                           "reading %zu bytes at %zu of the shared block of rank %" PRId32
                           ", which has %zu",
                           bytes, offset, rank, peer->shared_bytes);
    }
    if (bytes > 0) {
        memcpy(data, peer->shared + offset, bytes);
    }
    return STATUS_OK;
}

static size_t reserved_bytes(const struct comm *base)
{
    const struct comm_shm *comm = comm_shm_of_const(base);

    return comm->page != NULL ? comm->landing_bytes : 0;
}

static void comm_shm_close(struct comm *base)
{
    struct comm_shm *comm = comm_shm_of(base);

    for (int32_t i = 0; i < comm->peer_count; i++) {
        segment_release(&comm->peers[i].segment);
    }
    segment_release(&comm->segment);
    for (int32_t i = 0; i < comm->lane_count; i++) {
        free(comm->lanes[i]);
    }
    for (int32_t i = 0; i < comm->group_count; i++) {
        free(comm->groups[i]);
    }
    free(comm->peers);
    free(comm->lanes);
    free(comm->groups);
    free(comm);
}

static const struct comm_ops ops = {
    .lane_open = comm_shm_lane_open,
    .lane_exists = lane_exists,
    .group_open = comm_shm_group_open,
    .connect = comm_shm_connect,
    .landing = comm_shm_landing,
    .post_send = comm_shm_post_send,
    .sent = comm_shm_sent,
    .last_copy = comm_shm_last_copy,
    .progress = comm_shm_progress,
    .arrived = comm_shm_arrived,
    .wait_arrival = comm_shm_wait_arrival,
    .wait_sent = comm_shm_wait_sent,
    .credit = comm_shm_credit,
    .shared = shared_block,
    .read = read_block,
    .all_reduce = comm_shm_all_reduce,
    .reduce_scatter = comm_shm_reduce_scatter,
    .all_gather = comm_shm_all_gather,
    .reserved_bytes = reserved_bytes,
    .abort = comm_shm_abort,
    .close = comm_shm_close,
};

enum status comm_shm_open(const struct comm_config *config, struct comm **comm_out)
{
    struct comm_shm *comm;

    if (config->world < 1 || config->rank < 0 || config->rank >= config->world) {
        return status_fail(STATUS_ERR_INVALID,
                           "opening the data plane: rank %" PRId32 " is not in a job of %" PRId32
                           " ranks",
                           config->rank, config->world);
    }
    comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening the data plane of rank %" PRId32,
                           config->rank);
    }
    comm->base = (struct comm){.ops = &ops, .rank = config->rank, .world = config->world};
    comm->kernels = kernels_cpu();
    comm->job_directory = config->job_directory;
    comm->crowded = config->crowded;
    *comm_out = &comm->base;
    return STATUS_OK;
}
