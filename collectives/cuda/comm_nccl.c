/* Life of the data plane over NCCL, and what all its parts ask of it. */
#include "collectives/cuda/comm_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "collectives/cuda/comm_nccl_state.h"
#include "tensor/stream.h"

/* What the end of a plane that is well may take. */
#define CLOSE_S 5.0

/* An abort waits so long for the thread that is inside NCCL, then goes on: that one hangs. */
#define ABORT_PATIENCE_S 2

static struct comm_nccl *of(const struct comm *base)
{
    return (struct comm_nccl *)base;
}

static enum status slot_lane_open(struct comm *base, const struct lane_config *config,
                                  struct lane **lane_out)
{
    struct comm_nccl *comm = of(base);
    struct nccl_lane *lane = NULL;
    char name[COMM_LANE_NAME_BYTES];

    if (config->wave < 0 || config->wave >= comm->waves) {
        return status_fail(STATUS_ERR_INVALID,
                           "opening a lane of rank %d with rank %d: wave %d of %d", (int)base->rank,
                           (int)config->peer, (int)config->wave, (int)comm->waves);
    }
    lane = calloc(1, sizeof(*lane));
    if (lane == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening a lane with rank %d", (int)config->peer);
    }
    lane->base.comm = base;
    lane->base.config = *config;
    lane->link.peer = config->peer;
    (void)snprintf(lane->link.name, sizeof(lane->link.name), "lane %s",
                   comm_lane_name(&lane->base, name));
    lane->next = comm->lanes;
    comm->lanes = lane;
    comm->lane_count++;
    *lane_out = &lane->base;
    return STATUS_OK;
}

static bool slot_lane_exists(const struct comm *base, const struct lane_config *config)
{
    const struct nccl_lane *lane = of(base)->lanes;

    while (lane != NULL && (lane->base.config.peer != config->peer ||
                            lane->base.config.direction != config->direction ||
                            lane->base.config.sends != config->sends)) {
        lane = lane->next;
    }
    return lane != NULL;
}

static enum status slot_group_open(struct comm *base, const struct group_config *config,
                                   struct group **group_out)
{
    struct comm_nccl *comm = of(base);
    struct nccl_group **end = &comm->groups;
    struct nccl_group *group = NULL;
    char ranks[RANK_LIST_BYTES];

    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening a group of %d ranks", (int)config->count);
    }
    for (int32_t i = 0; i < config->count; i++) {
        group->ranks[i] = config->ranks[i];
        group->base.index = config->ranks[i] == base->rank ? i : group->base.index;
    }
    group->base.comm = base;
    group->base.ranks = group->ranks;
    group->base.count = config->count;
    group->link.peer = -1;
    group->aside = config->aside;
    (void)snprintf(group->link.name, sizeof(group->link.name), "group%s of ranks %s",
                   config->aside ? " aside" : "",
                   rank_list_text(config->ranks, config->count, ranks));
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = group;
    comm->group_count++;
    *group_out = &group->base;
    return STATUS_OK;
}

static void slot_last_copy(const struct lane *base, int64_t *begin_ns, int64_t *end_ns)
{
    (void)base;
    *begin_ns = 0;
    *end_ns = 0;
}

/* Streams go on by themselves; what is pending waits for comm_wait_sent(). */
static int32_t slot_progress(struct comm *base)
{
    int32_t pending = 0;

    for (const struct nccl_lane *lane = of(base)->lanes; lane != NULL; lane = lane->next) {
        pending += lane->pending ? 1 : 0;
    }
    return pending;
}

static void *slot_shared(const struct comm *base)
{
    return of(base)->shared;
}

static enum status slot_check(struct comm *base)
{
    return nccl_check(of(base));
}

static size_t slot_reserved_bytes(const struct comm *base)
{
    return of(base)->reserved_bytes;
}

/* All at once: NCCL frees memory in an abort, which waits for the kernels of the other communicators too. */
static void abort_links(struct comm_nccl *comm)
{
    (void)ncclGroupStart();
    for (struct nccl_link *link = comm->links; link != NULL; link = link->next) {
        if (link->handle != NULL) {
            (void)ncclCommAbort(link->handle);
            link->handle = NULL;
        }
    }
    (void)ncclGroupEnd();
}

static void slot_abort(struct comm *base)
{
    struct comm_nccl *comm = of(base);
    struct timespec until;
    int locked = 0;

    if (__atomic_exchange_n(&comm->aborted, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_PATIENCE_S;
    locked = pthread_mutex_timedlock(&comm->gate, &until);
    abort_links(comm);
    if (locked == 0) {
        (void)pthread_mutex_unlock(&comm->gate);
    }
}

static enum status finalize(struct comm_nccl *comm, struct nccl_link *link)
{
    ncclResult_t result = ncclSuccess;

    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    if (link->registration != NULL) {
        (void)ncclCommDeregister(link->handle, link->registration);
        link->registration = NULL;
    }
    result = ncclCommFinalize(link->handle);
    nccl_leave(comm);
    return result == ncclSuccess || result == ncclInProgress
               ? STATUS_OK
               : nccl_failure(comm, link, "the end", (int)result);
}

static enum status destroy(struct comm_nccl *comm, struct nccl_link *link)
{
    TRY(nccl_settle(comm, link, "the end", ncclInProgress));
    if (!nccl_enter(comm)) {
        return nccl_aborted(comm);
    }
    (void)ncclCommDestroy(link->handle);
    link->handle = NULL;
    nccl_leave(comm);
    return STATUS_OK;
}

/* All that was put in has ended here, then everywhere; each rank comes to this with all its communicators. */
static enum status finish(struct comm_nccl *comm)
{
    for (struct nccl_link *link = comm->links; link != NULL; link = link->next) {
        TRY(nccl_wait_link(comm, link));
    }
    for (struct nccl_link *link = comm->links; link != NULL; link = link->next) {
        TRY(finalize(comm, link));
    }
    for (struct nccl_link *link = comm->links; link != NULL; link = link->next) {
        TRY(destroy(comm, link));
    }
    return STATUS_OK;
}

static void release(struct comm_nccl *comm)
{
    while (comm->lanes != NULL) {
        struct nccl_lane *lane = comm->lanes;

        comm->lanes = lane->next;
        nccl_lane_release(comm, lane);
    }
    while (comm->groups != NULL) {
        struct nccl_group *group = comm->groups;

        comm->groups = group->next;
        nccl_group_release(group);
    }
    if (comm->shared != NULL) {
        device_give(comm->device, DEVICE_TENSORS, comm->shared, comm->base.shared_bytes);
    }
    if (comm->first != NULL) {
        device_give(comm->device, DEVICE_TENSORS, comm->first, comm->first_bytes);
    }
}

static void slot_close(struct comm *base)
{
    struct comm_nccl *comm = of(base);
    enum status status = STATUS_ERR_CANCELLED;

    if (base->connected && !comm->sick && comm->failed == STATUS_OK && !nccl_is_aborted(comm)) {
        comm->deadline_ns = clock_deadline(CLOSE_S);
        status = finish(comm);
    }
    if (status < 0) {
        slot_abort(base);
    }
    device_watch(comm->device, NULL, NULL);
    release(comm);
    (void)pthread_mutex_destroy(&comm->gate);
    free(comm);
}

static const struct comm_ops ops = {
    .lane_open = slot_lane_open,
    .lane_exists = slot_lane_exists,
    .group_open = slot_group_open,
    .connect = nccl_connect,
    .landing = nccl_lane_landing,
    .post_send = nccl_lane_post_send,
    .post_receive = nccl_lane_post_receive,
    .sent = nccl_lane_sent,
    .last_copy = slot_last_copy,
    .progress = slot_progress,
    .arrived = nccl_lane_arrived,
    .wait_arrival = nccl_lane_wait_arrival,
    .wait_sent = nccl_lane_wait_sent,
    .credit = nccl_lane_credit,
    .shared = slot_shared,
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .join = nccl_group_join,
    .check = slot_check,
    .stands = nccl_stands,
    .reserved_bytes = slot_reserved_bytes,
    .abort = slot_abort,
    .close = slot_close,
};

static enum status check_version(void)
{
    int version = 0;

    if (ncclGetVersion(&version) != ncclSuccess || version < NCCL_VERSION_CODE) {
        return status_fail(STATUS_ERR_UNSUPPORTED,
                           "the NCCL found at run time is %d, but weir was built with %d", version,
                           NCCL_VERSION_CODE);
    }
    return STATUS_OK;
}

enum status comm_nccl_open(const struct comm_nccl_config *config, struct comm **comm_out)
{
    struct comm_nccl *comm = NULL;

    ENSURE(device_kind(config->device) == DEVICE_CUDA, "NCCL joins GPUs, not rank %d's device",
           (int)config->rank);
    TRY(check_version());
    comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "opening the data plane of rank %d",
                           (int)config->rank);
    }
    comm->base = (struct comm){.ops = &ops, .rank = config->rank, .world = config->world};
    comm->device = config->device;
    comm->control = config->control;
    comm->compute = stream_queue(device_stream(config->device))->handle;
    comm->waves = config->waves;
    comm->deadline_ns = CLOCK_NEVER;
    comm->world.peer = -1;
    (void)snprintf(comm->world.name, sizeof(comm->world.name), "communicator of all ranks");
    comm->links = &comm->world;
    (void)pthread_mutex_init(&comm->gate, NULL);
    device_watch(comm->device, nccl_watch, comm);
    *comm_out = &comm->base;
    return STATUS_OK;
}

void comm_nccl_prepare(void)
{
    int runtime = 0;
    int driver = 0;

    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess &&
        cudaDriverGetVersion(&driver) == cudaSuccess && runtime >= 12030 && driver >= 12030) {
        (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    }
}
