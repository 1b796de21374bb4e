#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "collectives/comm_shm.h"

/* Waits for a message, or for the end of a lane's pending send. */
struct lane_goal {
    struct comm_shm_goal base; /* first */
    const struct comm_shm_lane *lane;
    bool arrival;
    int32_t landing;
    uint64_t tag;
};

static struct comm_shm_lane *lane_of(struct lane *base)
{
    return (struct comm_shm_lane *)(void *)base;
}

static const struct comm_shm_lane *const_lane_of(const struct lane *base)
{
    return (const struct comm_shm_lane *)(const void *)base;
}

void *comm_shm_landing(const struct lane *base, int32_t landing)
{
    const struct comm_shm_lane *lane = const_lane_of(base);

    return lane->buffers + (size_t)landing * lane->stride;
}

static void count_message(struct comm_shm_lane *lane, uint64_t bytes)
{
    lane->base.traffic.calls++;
    lane->base.traffic.bytes += bytes;
}

/* Copies the lane's pending send where its landing buffer is free. */
static void try_copy(struct comm_shm *comm, struct comm_shm_lane *lane)
{
    struct landing_mark *mark = &lane->marks[lane->landing];

    if (__atomic_load_n(&mark->state, __ATOMIC_ACQUIRE) != LANDING_FREE) {
        return;
    }
    lane->copy_begin_ns = clock_now_ns();
    if (lane->bytes > 0) {
        memcpy(lane->buffers + (size_t)lane->landing * lane->stride, lane->data, lane->bytes);
    }
    mark->tag = lane->tag;
    mark->bytes = lane->bytes;
    __atomic_store_n(&mark->state, LANDING_FULL, __ATOMIC_RELEASE);
    doorbell_ring(&lane->peer->doorbell);
    lane->copy_end_ns = clock_now_ns();
    lane->pending = false;
    lane->data = NULL;
    count_message(lane, lane->bytes);
    comm->pending_count--;
}

enum status comm_shm_post_send(struct lane *base, int32_t landing, uint64_t tag, const void *data,
                               size_t bytes)
{
    struct comm_shm *comm = comm_shm_of(base->comm);
    struct comm_shm_lane *lane = lane_of(base);

    lane->pending = true;
    lane->landing = landing;
    lane->tag = tag;
    lane->data = data;
    lane->bytes = bytes;
    comm->pending_count++;
    try_copy(comm, lane);
    return STATUS_OK;
}

bool comm_shm_sent(const struct lane *base)
{
    return !const_lane_of(base)->pending;
}

void comm_shm_last_copy(const struct lane *base, int64_t *begin_ns, int64_t *end_ns)
{
    const struct comm_shm_lane *lane = const_lane_of(base);

    *begin_ns = lane->copy_begin_ns;
    *end_ns = lane->copy_end_ns;
}

int32_t comm_shm_progress(struct comm *base)
{
    struct comm_shm *comm = comm_shm_of(base);

    for (int32_t i = 0; comm->pending_count > 0 && i < comm->lane_count; i++) {
        if (comm->lanes[i]->pending) {
            try_copy(comm, comm->lanes[i]);
        }
    }
    return comm->pending_count;
}

static enum status fail_mark(const struct comm_shm_lane *lane, int32_t landing, uint64_t tag,
                             uint32_t state)
{
    char name[COMM_LANE_NAME_BYTES];

    (void)comm_lane_name(&lane->base, name);
    if (state != LANDING_FULL) {
        return status_fail(STATUS_ERR_FORMAT,
                           "lane %s, landing buffer %" PRId32 ": its mark is %" PRIu32
                           ", neither free (0) nor full (1)",
                           name, landing, state);
    }
    return status_fail(STATUS_ERR_FORMAT,
                       "lane %s, landing buffer %" PRId32
                       ": expected the message with tag 0x%" PRIx64
                       ", found that with tag 0x%" PRIx64 "; the two ranks run different plans",
                       name, landing, tag, lane->marks[landing].tag);
}

enum status comm_shm_arrived(const struct lane *base, int32_t landing, uint64_t tag)
{
    const struct comm_shm_lane *lane = const_lane_of(base);
    const struct landing_mark *mark = &lane->marks[landing];
    uint32_t state = __atomic_load_n(&mark->state, __ATOMIC_ACQUIRE);

    if (state == LANDING_FREE) {
        return STATUS_IN_PROGRESS;
    }
    if (state != LANDING_FULL || mark->tag != tag) {
        return fail_mark(lane, landing, tag, state);
    }
    return STATUS_OK;
}

void comm_shm_credit(struct lane *base, int32_t landing)
{
    struct comm_shm_lane *lane = lane_of(base);
    struct landing_mark *mark = &lane->marks[landing];

    /* The sender does not touch the mark while it is full, so this is the owner's own bug. */
    ENSURE(__atomic_load_n(&mark->state, __ATOMIC_RELAXED) == LANDING_FULL,
           "a credit for landing buffer %d from rank %d, which holds no message", landing,
           base->config.peer);
    count_message(lane, mark->bytes);
    __atomic_store_n(&mark->state, LANDING_FREE, __ATOMIC_RELEASE);
    doorbell_ring(&lane->peer->doorbell);
}

static enum status look(const struct comm_shm_goal *base)
{
    const struct lane_goal *goal = (const struct lane_goal *)(const void *)base;

    if (goal->arrival) {
        return comm_shm_arrived(&goal->lane->base, goal->landing, goal->tag);
    }
    return goal->lane->pending ? STATUS_IN_PROGRESS : STATUS_OK;
}

/* Says what a wait was for that ended without it. */
static enum status fail_wait(const struct comm_shm_goal *base, enum status status)
{
    const struct lane_goal *goal = (const struct lane_goal *)(const void *)base;
    const struct comm_shm_lane *lane = goal->lane;
    int32_t landing = goal->arrival ? goal->landing : lane->landing;
    uint64_t tag = goal->arrival ? goal->tag : lane->tag;
    const char *what = goal->arrival ? "the message" : "a free landing buffer for the message";
    char name[COMM_LANE_NAME_BYTES];

    (void)comm_lane_name(&lane->base, name);
    if (status == STATUS_ERR_TIMEOUT) {
        return status_fail(status,
                           "rank %" PRId32 " waited on lane %s for %s with tag 0x%" PRIx64
                           " (landing buffer %" PRId32 "): it has not come before the deadline",
                           lane->base.comm->rank, name, what, tag, landing);
    }
    /* Who gave up has said why: the wait of each other rank is no news. */
    return status_note(status,
                       "rank %" PRId32 " was waiting on lane %s for %s with tag 0x%" PRIx64
                       " (landing buffer %" PRId32 ") when the job was given up",
                       lane->base.comm->rank, name, what, tag, landing);
}

enum status comm_shm_wait_arrival(struct lane *base, int32_t landing, uint64_t tag,
                                  const struct cancel *cancel, int64_t deadline_ns)
{
    const struct lane_goal goal = {.base = {.look = look, .fail = fail_wait},
                                   .lane = lane_of(base),
                                   .arrival = true,
                                   .landing = landing,
                                   .tag = tag};

    return comm_shm_wait(comm_shm_of(base->comm), &goal.base, cancel, deadline_ns);
}

enum status comm_shm_wait_sent(struct lane *base, const struct cancel *cancel, int64_t deadline_ns)
{
    const struct lane_goal goal = {.base = {.look = look, .fail = fail_wait},
                                   .lane = lane_of(base)};

    return comm_shm_wait(comm_shm_of(base->comm), &goal.base, cancel, deadline_ns);
}
