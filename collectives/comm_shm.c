/* The life of a comm over shared memory; comm_shm_lane.c moves the messages. */
#include "collectives/comm_shm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "collectives/segment_exchange.h"

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
    return find_lane((const struct comm_shm *)(const void *)base, config->peer, config->direction,
                     config->sends) != NULL;
}

/* Gives every lane that this rank receives on its place in the segment; *bytes_out is the whole. */
static enum status lay_out(struct comm_shm *comm, size_t *bytes_out)
{
    size_t bytes = 0;

    for (int32_t i = 0; i < comm->lane_count; i++) {
        struct comm_shm_lane *lane = comm->lanes[i];
        const struct lane_config *config = &lane->base.config;

        if (config->sends) {
            continue;
        }
        if (!segment_place_lane(&bytes, config->landings, config->landing_bytes, &lane->place)) {
            return status_fail(STATUS_ERR_NO_MEMORY,
                               "rank %" PRId32 " reserves %" PRId32
                               " landing buffers of %zu bytes for messages of rank %" PRId32
                               ": more than this machine can address",
                               comm->base.rank, config->landings, config->landing_bytes,
                               config->peer);
        }
        comm->landing_bytes += (size_t)config->landings * segment_stride(config->landing_bytes);
    }
    *bytes_out = bytes;
    return STATUS_OK;
}

static void point_lane(struct comm_shm_lane *lane, const struct segment *segment,
                       const struct segment_place *place, struct segment_page *peer)
{
    lane->marks = (struct landing_mark *)(void *)(segment->base + place->marks);
    lane->buffers = segment->base + place->buffers;
    lane->stride = segment_stride(lane->base.config.landing_bytes);
    lane->peer = peer;
}

/* Finds the ranks that this rank shares lanes with, and writes what each of them is told. */
static int32_t list_peers(const struct comm_shm *comm, struct segment_peer *peers)
{
    int32_t count = 0;

    for (int32_t i = 0; i < comm->lane_count; i++) {
        const struct comm_shm_lane *lane = comm->lanes[i];
        const struct lane_config *config = &lane->base.config;
        struct segment_peer *peer = peers;

        while (peer < peers + count && peer->rank != config->peer) {
            peer++;
        }
        if (peer == peers + count) {
            peer->rank = config->peer;
            peer->fd = -1;
            segment_offer_init(&peer->mine, comm->base.world, comm->base.rank, config->peer,
                               comm->segment.bytes);
            count++;
        }
        peer->mine.lanes[peer->mine.lane_count++] = (struct segment_lane){
            .direction = config->direction,
            .sends = config->sends ? 1 : 0,
            .landings = config->landings,
            .landing_bytes = config->landing_bytes,
            .place = lane->place,
        };
    }
    return count;
}

/* Maps what a peer has sent, and points the lanes with it at their landing buffers. */
static enum status adopt_peer(struct comm_shm *comm, struct comm_shm_peer *peer,
                              const struct segment_peer *met)
{
    struct segment_page *page;

    TRY(segment_attach(met->rank, met->fd, (size_t)met->theirs.segment_bytes, &peer->segment));
    page = segment_page(&peer->segment);
    for (int32_t i = 0; i < comm->lane_count; i++) {
        struct comm_shm_lane *lane = comm->lanes[i];
        const struct lane_config *config = &lane->base.config;
        const struct segment_lane *there;

        if (config->peer != met->rank) {
            continue;
        }
        if (!config->sends) {
            point_lane(lane, &comm->segment, &lane->place, page);
            continue;
        }
        there = segment_offer_find(&met->theirs, config->direction, false);
        point_lane(lane, &peer->segment, &there->place, page);
    }
    __atomic_store_n(&peer->page, page, __ATOMIC_SEQ_CST);
    return STATUS_OK;
}

static enum status meet_peers(struct comm_shm *comm, struct segment_peer *met, int32_t met_count,
                              int segment_fd, const struct cancel *cancel, int64_t deadline_ns)
{
    const struct segment_exchange_config config = {
        .directory = comm->job_directory,
        .rank = comm->base.rank,
        .segment_fd = segment_fd,
        .aborted = &comm->aborted,
    };
    enum status status = segment_exchange(&config, met, met_count, cancel, deadline_ns);

    for (int32_t i = 0; i < met_count; i++) {
        if (status >= 0) {
            status = adopt_peer(comm, &comm->peers[i], &met[i]);
        }
        if (met[i].fd >= 0) {
            (void)close(met[i].fd); /* the mapping keeps the memory */
        }
    }
    return status;
}

/* This rank's own page comes last: once its main thread is freed, the process may end, and the peers
 * must have been told by then. */
static void comm_shm_abort(struct comm *base)
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

/* Allocates what the peers need; a rank without lanes has none. */
static enum status connect_peers(struct comm_shm *comm, int segment_fd, const struct cancel *cancel,
                                 int64_t deadline_ns)
{
    size_t most = (size_t)comm->lane_count;
    struct segment_peer *met = calloc(most, sizeof(*met));
    enum status status;
    int32_t met_count;

    comm->peers = calloc(most, sizeof(*comm->peers));
    if (met == NULL || comm->peers == NULL) {
        free(met);
        return status_fail(STATUS_ERR_NO_MEMORY, "rank %" PRId32 " meets its peers",
                           comm->base.rank);
    }
    met_count = list_peers(comm, met);
    __atomic_store_n(&comm->peer_count, met_count, __ATOMIC_SEQ_CST);
    status = meet_peers(comm, met, met_count, segment_fd, cancel, deadline_ns);
    free(met);
    return status;
}

static enum status comm_shm_connect(struct comm *base, const struct cancel *cancel,
                                    int64_t deadline_ns)
{
    struct comm_shm *comm = comm_shm_of(base);
    enum status status;
    size_t bytes = 0;
    int segment_fd = -1;

    if (comm->lane_count == 0) {
        return STATUS_OK;
    }
    TRY(lay_out(comm, &bytes));
    TRY(segment_create(base->rank, bytes, &comm->segment, &segment_fd));
    __atomic_store_n(&comm->page, segment_page(&comm->segment), __ATOMIC_SEQ_CST);
    status = connect_peers(comm, segment_fd, cancel, deadline_ns);
    (void)close(segment_fd);
    if (status >= 0 && __atomic_load_n(&comm->aborted, __ATOMIC_SEQ_CST) != 0) {
        /* An abort that came while the peers were being mapped may not have reached them all. */
        comm_shm_abort(base);
        status = status_note(STATUS_ERR_CANCELLED, "rank %" PRId32 " was aborted at its start",
                             base->rank);
    }
    return status;
}

static size_t reserved_bytes(const struct comm *base)
{
    const struct comm_shm *comm = (const struct comm_shm *)(const void *)base;

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
    free(comm->peers);
    free(comm->lanes);
    free(comm);
}

static const struct comm_ops ops = {
    .lane_open = comm_shm_lane_open,
    .lane_exists = lane_exists,
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
    comm->job_directory = config->job_directory;
    comm->crowded = config->crowded;
    *comm_out = &comm->base;
    return STATUS_OK;
}
