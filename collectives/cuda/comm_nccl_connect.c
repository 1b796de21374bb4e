/* How the communicators come: the id's way round, the world, its splits, first uses. */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "collectives/cuda/comm_nccl_state.h"

/* A lane's first message: what both ends must have alike. */
struct first_message {
    uint64_t landings;
    uint64_t bytes;
};

/* First uses of a group: elements of 4 bytes, for each member a slice; and one more, for none but the first. */
#define FIRST_ELEMS ((size_t)16)

/* Lanes of one wave, by who is above whom and F or B; those of tied embeddings have a wave to themselves. */
#define KINDS 4

_Static_assert(2 * NCCL_UNIQUE_ID_BYTES + 1 <= CONTROL_TEXT_BYTES, "an id fits into a note");

static void print_id(const ncclUniqueId *id, char *text)
{
    for (size_t i = 0; i < NCCL_UNIQUE_ID_BYTES; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", (unsigned)(unsigned char)id->internal[i]);
    }
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False where the text is no id. */
static bool parse_id(const char *text, ncclUniqueId *id)
{
    if (strlen(text) != 2 * (size_t)NCCL_UNIQUE_ID_BYTES) {
        return false;
    }
    for (size_t i = 0; i < NCCL_UNIQUE_ID_BYTES; i++) {
        const int high = digit_of(text[2 * i]);
        const int low = digit_of(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        id->internal[i] = (char)(16 * high + low);
    }
    return true;
}

/* One control round: rank 0's note is the id, and all have as many groups and waves. */
static enum status share_id(struct comm_nccl *comm, ncclUniqueId *id)
{
    const struct control_key keys[] = {{"groups of the data plane", CONTROL_SAME},
                                       {"waves of lanes", CONTROL_SAME}};
    const struct control_value values[] = {{.key = 0, .bits = (uint64_t)comm->group_count},
                                           {.key = 1, .bits = (uint64_t)comm->waves}};
    double numbers[2] = {0.0};
    struct control_answer answer = {.numbers = numbers};
    char note[CONTROL_TEXT_BYTES] = "";
    const struct control_round round = {
        .name = "NCCL",
        .keys = keys,
        .key_count = 2,
        .values = values,
        .value_count = 2,
        .note = note,
    };
    ncclResult_t result = ncclSuccess;

    if (comm->base.rank == 0) {
        result = ncclGetUniqueId(id);
        if (result == ncclSuccess) {
            print_id(id, note);
        } else { /* the others wait in the round */
            (void)snprintf(note, sizeof(note), "no id: %s", ncclGetLastError(NULL));
        }
    }
    TRY(control_reduce(comm->control, &round, &answer, comm->deadline_ns));
    if (result != ncclSuccess) {
        return nccl_failure(comm, &comm->world, "the id", (int)result);
    }
    if (answer.note_rank != 0 || !parse_id(answer.note, id)) {
        return status_fail(STATUS_ERR_PEER, "NCCL's id from rank 0, as rank %d has it: \"%s\"",
                           (int)comm->base.rank, answer.note);
    }
    return STATUS_OK;
}

static ncclConfig_t config_of(const char *name)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = name;
#else
    (void)name;
#endif
    return config;
}

static enum status make_world(struct comm_nccl *comm)
{
    ncclConfig_t config = config_of("weir");
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;

    TRY(share_id(comm, &id));
    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    result =
        ncclCommInitRankConfig(&comm->world.handle, comm->base.world, id, comm->base.rank, &config);
    nccl_leave(comm);
    return nccl_settle(comm, &comm->world, "the creation", (int)result);
}

/* The new communicator has these members in this order. */
static enum status check_members(struct comm_nccl *comm, struct nccl_link *link, int32_t count,
                                 int32_t index)
{
    int members = 0;
    int rank = -1;
    ncclResult_t result = ncclSuccess;

    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    result = ncclCommCount(link->handle, &members);
    if (result == ncclSuccess) {
        result = ncclCommUserRank(link->handle, &rank);
    }
    nccl_leave(comm);
    if (result != ncclSuccess) {
        return nccl_failure(comm, link, "the members", (int)result);
    }
    return members == count && rank == index
               ? STATUS_OK
               : status_fail(STATUS_ERR_REFUSED,
                             "rank %d, the %s: it has %d members, of which this is number %d, but "
                             "%d and number %d were opened: its ranks disagree on it",
                             (int)comm->base.rank, link->name, members, rank, (int)count,
                             (int)index);
}

/* One split of all ranks; `link` NULL: this rank gets none. In the order of ranks. */
static enum status split(struct comm_nccl *comm, struct nccl_link *link, int32_t lowest,
                         int32_t count, int32_t index)
{
    ncclConfig_t config = config_of(link != NULL ? link->name : NULL);
    ncclComm_t none = NULL;
    ncclResult_t result = ncclSuccess;

    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    result = ncclCommSplit(comm->world.handle, link != NULL ? lowest : NCCL_SPLIT_NOCOLOR,
                           comm->base.rank, link != NULL ? &link->handle : &none, &config);
    nccl_leave(comm);
    /* The parent fills the child in, which then has a creation of its own. */
    TRY(nccl_settle(comm, &comm->world, "a split", (int)result));
    if (link == NULL) {
        return STATUS_OK;
    }
    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    link->next = comm->links;
    comm->links = link;
    nccl_leave(comm);
    TRY(nccl_settle(comm, link, "the creation", ncclInProgress));
    TRY(check_members(comm, link, count, index));
    return nccl_flight_make(comm, link);
}

static enum status split_groups(struct comm_nccl *comm)
{
    for (struct nccl_group *group = comm->groups; group != NULL; group = group->next) {
        TRY(split(comm, &group->link, group->ranks[0], group->base.count, group->base.index));
        TRY(nccl_group_make(comm, group));
    }
    return STATUS_OK;
}

/* Which of the splits of its wave a lane is: the same at both ends. */
static int32_t kind_of(const struct comm_nccl *comm, const struct lane_config *config)
{
    const bool upwards = config->sends == (comm->base.rank < config->peer);

    return 2 * (upwards ? 0 : 1) + config->direction % 2;
}

static struct nccl_lane *find_lane(const struct comm_nccl *comm, int32_t wave, int32_t kind)
{
    struct nccl_lane *lane = comm->lanes;

    while (lane != NULL &&
           (lane->base.config.wave != wave || kind_of(comm, &lane->base.config) != kind)) {
        lane = lane->next;
    }
    return lane;
}

/* `lane` NULL: this rank has none of that wave and kind. */
static enum status split_lane(struct comm_nccl *comm, struct nccl_lane *lane)
{
    const int32_t own = comm->base.rank;

    if (lane == NULL) {
        return split(comm, NULL, 0, 0, 0);
    }
    if (own < lane->base.config.peer) {
        TRY(split(comm, &lane->link, own, 2, 0));
    } else {
        TRY(split(comm, &lane->link, lane->base.config.peer, 2, 1));
    }
    return nccl_lane_make(comm, lane);
}

static enum status split_lanes(struct comm_nccl *comm)
{
    for (int32_t i = 0; i < KINDS * comm->waves; i++) {
        TRY(split_lane(comm, find_lane(comm, i / KINDS, i % KINDS)));
    }
    return STATUS_OK;
}

/* So that NCCL can move the block without copies of its own, where it knows how. */
static enum status register_shared(struct comm_nccl *comm)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    for (struct nccl_group *group = comm->groups; group != NULL && comm->shared != NULL;
         group = group->next) {
        ncclResult_t result = ncclSuccess;

        if (!nccl_enter(comm)) {
            return nccl_aborted(comm);
        }
        result = ncclCommRegister(group->link.handle, comm->shared, comm->base.shared_bytes,
                                  &group->link.registration);
        nccl_leave(comm);
        TRY(nccl_settle(comm, &group->link, "registering the shared block", (int)result));
    }
#endif
    return STATUS_OK;
}

static enum status take_memory(struct comm_nccl *comm)
{
    const size_t messages = (size_t)comm->lane_count * sizeof(struct first_message);
    void *memory = NULL;

    if (comm->base.shared_bytes > 0) {
        TRY(device_take(comm->device, DEVICE_TENSORS, "the shared block", comm->base.shared_bytes,
                        &memory));
        comm->shared = memory;
    }
    comm->first_bytes = (COMM_GROUP_MEMBERS + 1) * FIRST_ELEMS * sizeof(float) + messages;
    TRY(device_take(comm->device, DEVICE_TENSORS, "first messages", comm->first_bytes, &memory));
    comm->first = memory;
    return STATUS_OK;
}

static struct first_message first_of(const struct lane_config *config)
{
    return (struct first_message){.landings = (uint64_t)config->landings,
                                  .bytes = config->landing_bytes};
}

/* In the memory at *at, and on behind it; `lane` NULL: nothing. */
static enum status use_lane(struct comm_nccl *comm, struct nccl_lane *lane, unsigned char **at)
{
    struct first_message message;

    if (lane == NULL) {
        return STATUS_OK;
    }
    message = first_of(&lane->base.config);
    lane->first_message = *at;
    *at += sizeof(message);
    if (lane->base.config.sends) {
        TRY(device_copy(comm->device, lane->first_message, &message, sizeof(message)));
    }
    return nccl_lane_move(lane, lane->first_message, sizeof(message));
}

/* Pair by pair, in the order of the splits, so that no two wait for each other crosswise. */
static enum status use_lanes(struct comm_nccl *comm)
{
    unsigned char *at = comm->first + (COMM_GROUP_MEMBERS + 1) * FIRST_ELEMS * sizeof(float);

    for (int32_t i = 0; i < KINDS * comm->waves; i++) {
        TRY(use_lane(comm, find_lane(comm, i / KINDS, i % KINDS), &at));
    }
    return STATUS_OK;
}

/* Each kind of call that a group may make. */
static enum status use_group(struct comm_nccl *comm, struct nccl_group *group)
{
    struct group *base = &group->base;
    const struct comm_piece pieces[] = {
        {.data = comm->first, .elems = (size_t)base->count * FIRST_ELEMS, .elem_bytes = 4},
        {.data = comm->first + (size_t)base->count * FIRST_ELEMS * 4, .elems = 1, .elem_bytes = 4},
    };

    TRY(nccl_all_reduce(base, &pieces[0], COMM_SUM, NULL, CLOCK_NEVER));
    TRY(nccl_reduce_scatter(base, pieces, 2, NULL, CLOCK_NEVER));
    return nccl_all_gather(base, pieces, 2, NULL, CLOCK_NEVER);
}

/* What the other end of a lane has said. */
static enum status check_lane(struct comm_nccl *comm, const struct nccl_lane *lane)
{
    const struct first_message own = first_of(&lane->base.config);
    struct first_message theirs;

    if (lane->base.config.sends) {
        return STATUS_OK;
    }
    TRY(device_copy(comm->device, &theirs, lane->first_message, sizeof(theirs)));
    return theirs.landings == own.landings && theirs.bytes == own.bytes
               ? STATUS_OK
               : status_fail(STATUS_ERR_REFUSED,
                             "%s: rank %d has %" PRIu64 " landing buffers of %" PRIu64
                             " bytes, where rank %d would send to %" PRIu64 " of %" PRIu64,
                             lane->link.name, (int)comm->base.rank, own.landings, own.bytes,
                             (int)lane->base.config.peer, theirs.landings, theirs.bytes);
}

/* All that has been put in has ended. */
static enum status wait_for_all(struct comm_nccl *comm)
{
    for (struct nccl_link *link = comm->links; link != NULL; link = link->next) {
        TRY(nccl_wait_link(comm, link));
        link->flight.called = 0; /* messages count from here */
    }
    return STATUS_OK;
}

static enum status make_all(struct comm_nccl *comm)
{
    TRY(make_world(comm));
    TRY(take_memory(comm));
    TRY(split_groups(comm));
    TRY(split_lanes(comm));
    return register_shared(comm);
}

static enum status use_all(struct comm_nccl *comm)
{
    TRY(use_lanes(comm));
    for (struct nccl_group *group = comm->groups; group != NULL; group = group->next) {
        TRY(use_group(comm, group));
    }
    TRY(wait_for_all(comm));
    for (struct nccl_lane *lane = comm->lanes; lane != NULL; lane = lane->next) {
        TRY(check_lane(comm, lane));
    }
    return STATUS_OK;
}

enum status nccl_connect(struct comm *base, const struct cancel *cancel, int64_t deadline_ns)
{
    struct comm_nccl *comm = (struct comm_nccl *)base;
    enum status status = STATUS_OK;

    comm->cancel = cancel;
    comm->deadline_ns = deadline_ns;
    status = make_all(comm);
    status = status < 0 ? status : use_all(comm);
    comm->cancel = NULL;
    comm->deadline_ns = CLOCK_NEVER;
    comm->sick = comm->sick || status < 0;
    return status;
}
