#include "collectives/comm_staged.h"

#include <stdlib.h>

#include "base/check.h"
#include "collectives/comm_ops.h"

struct staged_lane {
    struct lane base;
    struct lane *inner;       /* borrows; of the comm beneath */
    struct staged_lane *next; /* of the comm */
    void *landings;           /* owns; receiver: all of them, in the device's memory */
    void *outgoing;           /* owns, of DEVICE_HOST; sender: the message that leaves */
};

struct staged_group {
    struct group base;
    struct group *inner; /* borrows */
    struct staged_group *next;
};

struct comm_staged {
    struct comm base;
    struct comm *inner;    /* owns */
    struct device *device; /* borrows */
    struct staged_lane *lanes;
    struct staged_group *groups;
    unsigned char *shared; /* owns; the block, in the device's memory */
};

static struct comm_staged *of(const struct comm *base)
{
    return (struct comm_staged *)base;
}

static const struct staged_lane *lane_of(const struct lane *base)
{
    return (const struct staged_lane *)base;
}

static enum status staged_lane_open(struct comm *base, const struct lane_config *config,
                                    struct lane **lane_out)
{
    struct comm_staged *comm = of(base);
    struct staged_lane *lane = calloc(1, sizeof(*lane));

    if (lane == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening a lane with rank %d", (int)config->peer);
    }
    lane->base.comm = base;
    lane->base.config = *config;
    lane->next = comm->lanes;
    comm->lanes = lane;
    *lane_out = &lane->base;
    TRY(comm_lane_open(comm->inner, config, &lane->inner));
    lane->base.beneath = lane->inner;
    return STATUS_OK;
}

static bool staged_lane_exists(const struct comm *base, const struct lane_config *config)
{
    const struct comm_staged *comm = of(base);

    return comm->inner->ops->lane_exists(comm->inner, config);
}

static enum status staged_group_open(struct comm *base, const struct group_config *config,
                                     struct group **group_out)
{
    struct comm_staged *comm = of(base);
    struct staged_group *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening a group of %d ranks", (int)config->count);
    }
    group->base.comm = base;
    group->next = comm->groups;
    comm->groups = group;
    *group_out = &group->base;
    TRY(comm_group_open(comm->inner, config, &group->inner));
    group->base.ranks = group->inner->ranks;
    group->base.count = group->inner->count;
    group->base.index = group->inner->index;
    return STATUS_OK;
}

/* Landing buffers lie one behind the other. */
static size_t landings_bytes(const struct lane_config *config)
{
    return (size_t)config->landings * config->landing_bytes;
}

static enum status place_lane(const struct comm_staged *comm, struct staged_lane *lane)
{
    const struct lane_config *config = &lane->base.config;

    if (!config->sends) {
        return device_take(comm->device, DEVICE_TENSORS, "landing buffers", landings_bytes(config),
                           &lane->landings);
    }
    return device_take(comm->device, DEVICE_HOST, "staging of messages", config->landing_bytes,
                       &lane->outgoing);
}

static enum status staged_connect(struct comm *base, const struct cancel *cancel,
                                  int64_t deadline_ns)
{
    struct comm_staged *comm = of(base);
    void *shared = NULL;

    if (base->shared_bytes > 0) {
        TRY(comm_share(comm->inner, base->shared_bytes));
        TRY(device_take(comm->device, DEVICE_TENSORS, "the shared block", base->shared_bytes,
                        &shared));
        comm->shared = shared;
    }
    for (struct staged_lane *lane = comm->lanes; lane != NULL; lane = lane->next) {
        TRY(place_lane(comm, lane));
    }
    return comm_connect(comm->inner, cancel, deadline_ns);
}

static void *staged_landing(const struct lane *base, int32_t landing)
{
    return (unsigned char *)lane_of(base)->landings + (size_t)landing * base->config.landing_bytes;
}

static enum status staged_post_send(struct lane *base, int32_t landing, uint64_t tag,
                                    const void *data, size_t bytes)
{
    const struct staged_lane *lane = lane_of(base);

    TRY(device_copy_now(of(base->comm)->device, lane->outgoing, data, bytes));
    return comm_post_send(lane->inner, landing, tag, lane->outgoing, bytes);
}

static bool staged_sent(const struct lane *base)
{
    return comm_sent(lane_of(base)->inner);
}

static void staged_last_copy(const struct lane *base, int64_t *begin_ns, int64_t *end_ns)
{
    comm_last_copy(lane_of(base)->inner, begin_ns, end_ns);
}

static int32_t staged_progress(struct comm *base)
{
    return comm_progress(of(base)->inner);
}

static enum status staged_arrived(const struct lane *base, int32_t landing, uint64_t tag)
{
    return comm_arrived(lane_of(base)->inner, landing, tag);
}

static enum status staged_wait_arrival(struct lane *base, int32_t landing, uint64_t tag,
                                       const struct cancel *cancel, int64_t deadline_ns)
{
    const struct staged_lane *lane = lane_of(base);

    TRY(comm_wait_arrival(lane->inner, landing, tag, cancel, deadline_ns));
    return device_copy(of(base->comm)->device, staged_landing(base, landing),
                       comm_landing(lane->inner, landing), base->config.landing_bytes);
}

static enum status staged_wait_sent(struct lane *base, const struct cancel *cancel,
                                    int64_t deadline_ns)
{
    return comm_wait_sent(lane_of(base)->inner, cancel, deadline_ns);
}

static void staged_credit(struct lane *base, int32_t landing)
{
    comm_credit(lane_of(base)->inner, landing);
}

static void *staged_shared(const struct comm *base)
{
    return of(base)->shared;
}

/* The same bytes of the comm beneath. */
static void *on_host(const struct comm_staged *comm, const struct comm_piece *piece, size_t first)
{
    size_t at = (size_t)((const unsigned char *)piece->data - comm->shared);

    return (unsigned char *)comm_shared(comm->inner) + at + first * piece->elem_bytes;
}

static void *on_device(const struct comm_piece *piece, size_t first)
{
    return (unsigned char *)piece->data + first * piece->elem_bytes;
}

static enum status copy_piece(const struct group *group, const struct comm_piece *piece, bool whole,
                              bool back)
{
    const struct comm_staged *comm = of(group->comm);
    size_t first = 0;
    size_t elems = piece->elems;
    void *host = NULL;
    void *device = NULL;

    if (!whole) {
        comm_slice(piece->elems, group->count, group->index, &first, &elems);
    }
    if (elems == 0) {
        return STATUS_OK;
    }
    host = on_host(comm, piece, first);
    device = on_device(piece, first);
    return device_copy(comm->device, back ? device : host, back ? host : device,
                       elems * piece->elem_bytes);
}

/* The whole of each piece, or the slice of this member alone, to the host or back. */
static enum status copy_pieces(const struct group *group, const struct comm_piece *pieces,
                               int32_t count, bool whole, bool back)
{
    for (int32_t i = 0; i < count; i++) {
        TRY(copy_piece(group, &pieces[i], whole, back));
    }
    return STATUS_OK;
}

/* The pieces as the comm beneath has them; the caller frees the list. */
static enum status list_on_host(const struct group *group, const struct comm_piece *pieces,
                                int32_t count, struct comm_piece **list_out)
{
    struct comm_piece *list = calloc((size_t)count + 1, sizeof(*list));

    if (list == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "a list of %d pieces", (int)count);
    }
    for (int32_t i = 0; i < count; i++) {
        list[i] = pieces[i];
        list[i].data = on_host(of(group->comm), &pieces[i], 0);
    }
    *list_out = list;
    return STATUS_OK;
}

static enum status staged_all_reduce(struct group *base, const struct comm_piece *piece,
                                     enum comm_op op, const struct cancel *cancel,
                                     int64_t deadline_ns)
{
    const struct staged_group *group = (const struct staged_group *)base;

    TRY(copy_pieces(base, piece, 1, true, false));
    TRY(comm_all_reduce(group->inner, on_host(of(base->comm), piece, 0), piece->elems, op, cancel,
                        deadline_ns));
    return copy_pieces(base, piece, 1, true, true);
}

static enum status staged_reduce_scatter(struct group *base, const struct comm_piece *pieces,
                                         int32_t count, const struct cancel *cancel,
                                         int64_t deadline_ns)
{
    const struct staged_group *group = (const struct staged_group *)base;
    struct comm_piece *list = NULL;
    enum status status = STATUS_OK;

    TRY(copy_pieces(base, pieces, count, true, false));
    TRY(list_on_host(base, pieces, count, &list));
    status = comm_reduce_scatter_pieces(group->inner, list, count, cancel, deadline_ns);
    free(list);
    TRY(status);
    return copy_pieces(base, pieces, count, false, true);
}

static enum status staged_all_gather(struct group *base, const struct comm_piece *pieces,
                                     int32_t count, const struct cancel *cancel,
                                     int64_t deadline_ns)
{
    const struct staged_group *group = (const struct staged_group *)base;
    struct comm_piece *list = NULL;
    enum status status = STATUS_OK;

    TRY(copy_pieces(base, pieces, count, false, false));
    TRY(list_on_host(base, pieces, count, &list));
    status = comm_all_gather_pieces(group->inner, list, count, cancel, deadline_ns);
    free(list);
    TRY(status);
    return copy_pieces(base, pieces, count, true, true);
}

static size_t staged_reserved_bytes(const struct comm *base)
{
    return comm_reserved_bytes(of(base)->inner);
}

static void staged_abort(struct comm *base)
{
    comm_abort(of(base)->inner);
}

static void release_lane(const struct comm_staged *comm, struct staged_lane *lane)
{
    if (lane->landings != NULL) {
        device_give(comm->device, DEVICE_TENSORS, lane->landings,
                    landings_bytes(&lane->base.config));
    }
    if (lane->outgoing != NULL) {
        device_give(comm->device, DEVICE_HOST, lane->outgoing, lane->base.config.landing_bytes);
    }
    free(lane);
}

static void staged_close(struct comm *base)
{
    struct comm_staged *comm = of(base);

    while (comm->lanes != NULL) {
        struct staged_lane *lane = comm->lanes;

        comm->lanes = lane->next;
        release_lane(comm, lane);
    }
    while (comm->groups != NULL) {
        struct staged_group *group = comm->groups;

        comm->groups = group->next;
        free(group);
    }
    if (comm->shared != NULL) {
        device_give(comm->device, DEVICE_TENSORS, comm->shared, base->shared_bytes);
    }
    comm_close(&comm->inner);
    free(comm);
}

static const struct comm_ops ops = {
    .lane_open = staged_lane_open,
    .lane_exists = staged_lane_exists,
    .group_open = staged_group_open,
    .connect = staged_connect,
    .landing = staged_landing,
    .post_send = staged_post_send,
    .sent = staged_sent,
    .last_copy = staged_last_copy,
    .progress = staged_progress,
    .arrived = staged_arrived,
    .wait_arrival = staged_wait_arrival,
    .wait_sent = staged_wait_sent,
    .credit = staged_credit,
    .shared = staged_shared,
    .all_reduce = staged_all_reduce,
    .reduce_scatter = staged_reduce_scatter,
    .all_gather = staged_all_gather,
    .reserved_bytes = staged_reserved_bytes,
    .abort = staged_abort,
    .close = staged_close,
};

enum status comm_staged_open(const struct comm_config *config, struct device *device,
                             struct comm **comm_out)
{
    struct comm_staged *comm = NULL;
    struct comm *inner = NULL;

    TRY(comm_shm_open(config, &inner));
    comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        comm_close(&inner);
        return status_fail(STATUS_ERR_NO_MEMORY, "opening the data plane of rank %d",
                           (int)config->rank);
    }
    comm->base = (struct comm){.ops = &ops, .rank = config->rank, .world = config->world};
    comm->inner = inner;
    comm->device = device;
    *comm_out = &comm->base;
    return STATUS_OK;
}
