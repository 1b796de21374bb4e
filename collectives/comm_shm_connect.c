/* How a comm over shared memory starts: lays out its own segment, meets the peers, and points lanes
 * and groups at theirs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm_shm.h"
#include "collectives/segment_exchange.h"

static enum status fail_size(const struct comm_shm *comm, size_t bytes, const char *what)
{
    return status_fail(STATUS_ERR_NO_MEMORY,
                       "rank %" PRId32 " reserves %s of %zu bytes: more than this machine can "
                       "address",
                       comm->base.rank, what, bytes);
}

/* Gives every lane that this rank receives on, every group and the shared block their places in the
 * segment; *bytes_out is the whole. */
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
    for (int32_t i = 0; i < comm->group_count; i++) {
        if (!segment_place_block(&bytes, sizeof(struct group_mark), SEGMENT_ALIGN_BYTES,
                                 &comm->groups[i]->mark)) {
            return fail_size(comm, sizeof(struct group_mark), "the mark of a group");
        }
    }
    if (comm->base.shared_bytes > 0 &&
        !segment_place_block(&bytes, comm->base.shared_bytes, SEGMENT_PAGE_BYTES, &comm->shared)) {
        return fail_size(comm, comm->base.shared_bytes, "a shared block");
    }
    *bytes_out = bytes;
    return STATUS_OK;
}

/* Finds what `rank` is told, or begins it. */
static struct segment_peer *note_peer(const struct comm_shm *comm, struct segment_peer *peers,
                                      int32_t *count, int32_t rank)
{
    struct segment_peer *peer = peers;

    while (peer < peers + *count && peer->rank != rank) {
        peer++;
    }
    if (peer == peers + *count) {
        peer->rank = rank;
        peer->fd = -1;
        segment_offer_init(&peer->mine, comm->base.world, comm->base.rank, rank,
                           comm->segment.bytes);
        peer->mine.shared =
            (struct segment_block){.offset = comm->shared, .bytes = comm->base.shared_bytes};
        (*count)++;
    }
    return peer;
}

static void offer_lane(const struct comm_shm_lane *lane, struct segment_offer *offer)
{
    const struct lane_config *config = &lane->base.config;

    offer->lanes[offer->lane_count++] = (struct segment_lane){
        .direction = config->direction,
        .sends = config->sends ? 1 : 0,
        .landings = config->landings,
        .landing_bytes = config->landing_bytes,
        .place = lane->place,
    };
}

static void offer_group(const struct comm_shm_group *group, struct segment_offer *offer)
{
    struct segment_group *told = &offer->groups[offer->group_count++];

    *told = (struct segment_group){.count = group->base.count, .mark = group->mark};
    memcpy(told->ranks, group->ranks, (size_t)group->base.count * sizeof(int32_t));
}

/* Finds the ranks that this rank shares lanes or groups with, and writes what each is told. */
static int32_t list_peers(const struct comm_shm *comm, struct segment_peer *peers)
{
    int32_t count = 0;

    for (int32_t i = 0; i < comm->lane_count; i++) {
        const struct comm_shm_lane *lane = comm->lanes[i];

        offer_lane(lane, &note_peer(comm, peers, &count, lane->base.config.peer)->mine);
    }
    for (int32_t i = 0; i < comm->group_count; i++) {
        const struct comm_shm_group *group = comm->groups[i];

        for (int32_t k = 0; k < group->base.count; k++) {
            if (k != group->base.index) {
                offer_group(group, &note_peer(comm, peers, &count, group->ranks[k])->mine);
            }
        }
    }
    return count;
}

static void point_lane(struct comm_shm_lane *lane, const struct segment *segment,
                       const struct segment_place *place, struct segment_page *peer)
{
    lane->marks = (struct landing_mark *)(void *)(segment->base + place->marks);
    lane->buffers = segment->base + place->buffers;
    lane->stride = segment_stride(lane->base.config.landing_bytes);
    lane->peer = peer;
}

static void point_lanes(const struct comm_shm *comm, const struct comm_shm_peer *peer,
                        const struct segment_offer *offer)
{
    for (int32_t i = 0; i < comm->lane_count; i++) {
        struct comm_shm_lane *lane = comm->lanes[i];
        const struct lane_config *config = &lane->base.config;
        const struct segment_lane *there;

        if (config->peer != peer->rank) {
            continue;
        }
        if (!config->sends) {
            point_lane(lane, &comm->segment, &lane->place, segment_page(&peer->segment));
            continue;
        }
        there = segment_offer_find(offer, config->direction, false);
        point_lane(lane, &peer->segment, &there->place, segment_page(&peer->segment));
    }
}

/* Enters the member `rank` into the group, with what lies in its segment. */
static void point_member(struct comm_shm_group *group, int32_t rank, const struct segment *segment,
                         uint64_t mark, const struct segment_block *shared)
{
    for (int32_t k = 0; k < group->base.count; k++) {
        if (group->ranks[k] != rank) {
            continue;
        }
        group->members[k] = (struct comm_shm_member){
            .mark = (struct group_mark *)(void *)(segment->base + mark),
            .page = segment_page(segment),
            .block = segment->base + shared->offset,
        };
    }
}

static bool has_member(const struct comm_shm_group *group, int32_t rank)
{
    for (int32_t k = 0; k < group->base.count; k++) {
        if (group->ranks[k] == rank) {
            return true;
        }
    }
    return false;
}

/* The peer's groups have been compared with this rank's: they are the same, in the same order. */
static void point_groups(const struct comm_shm *comm, const struct comm_shm_peer *peer,
                         const struct segment_offer *offer)
{
    int32_t common = 0;

    for (int32_t i = 0; i < comm->group_count; i++) {
        if (has_member(comm->groups[i], peer->rank)) {
            point_member(comm->groups[i], peer->rank, &peer->segment, offer->groups[common].mark,
                         &offer->shared);
            common++;
        }
    }
}

static void point_own(const struct comm_shm *comm)
{
    const struct segment_block shared = {.offset = comm->shared, .bytes = comm->base.shared_bytes};

    for (int32_t i = 0; i < comm->group_count; i++) {
        point_member(comm->groups[i], comm->base.rank, &comm->segment, comm->groups[i]->mark,
                     &shared);
    }
}

/* Maps what a peer has sent, and points lanes and groups with it there. */
static enum status adopt_peer(const struct comm_shm *comm, struct comm_shm_peer *peer,
                              const struct segment_peer *met)
{
    const struct segment_block *shared = &met->theirs.shared;

    peer->rank = met->rank;
    TRY(segment_attach(met->rank, met->fd, (size_t)met->theirs.segment_bytes, &peer->segment));
    if (shared->bytes > 0) {
        peer->shared = peer->segment.base + shared->offset;
        peer->shared_bytes = (size_t)shared->bytes;
    }
    point_lanes(comm, peer, &met->theirs);
    point_groups(comm, peer, &met->theirs);
    __atomic_store_n(&peer->page, segment_page(&peer->segment), __ATOMIC_SEQ_CST);
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

/* Peers that this rank may have, at most and at least one. */
static size_t most_peers(const struct comm_shm *comm)
{
    size_t most = 1 + (size_t)comm->lane_count;

    for (int32_t i = 0; i < comm->group_count; i++) {
        most += (size_t)comm->groups[i]->base.count - 1;
    }
    return most < (size_t)comm->base.world ? most : (size_t)comm->base.world;
}

/* Allocates what the peers need. */
static enum status connect_peers(struct comm_shm *comm, int segment_fd, const struct cancel *cancel,
                                 int64_t deadline_ns)
{
    size_t most = most_peers(comm);
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

enum status comm_shm_connect(struct comm *base, const struct cancel *cancel, int64_t deadline_ns)
{
    struct comm_shm *comm = comm_shm_of(base);
    enum status status;
    size_t bytes = 0;
    int segment_fd = -1;

    if (comm->lane_count == 0 && comm->group_count == 0 && base->shared_bytes == 0) {
        return STATUS_OK;
    }
    TRY(lay_out(comm, &bytes));
    TRY(segment_create(base->rank, bytes, &comm->segment, &segment_fd));
    point_own(comm);
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
