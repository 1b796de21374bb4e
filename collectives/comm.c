#include "collectives/comm.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "collectives/comm_ops.h"

static void ensure_receives(const struct lane *lane, int32_t landing)
{
    ENSURE(!lane->config.sends, "rank %d sends on this lane and has no landing buffer there",
           lane->comm->rank);
    ENSURE(landing >= 0 && landing < lane->config.landings, "landing buffer %d of %d, from rank %d",
           landing, lane->config.landings, lane->config.peer);
    ENSURE(lane->comm->connected, "a landing buffer exists after comm_connect()");
}

static void ensure_sends(const struct lane *lane)
{
    ENSURE(lane->config.sends, "rank %d receives on this lane from rank %d", lane->comm->rank,
           lane->config.peer);
    ENSURE(lane->comm->connected, "a lane carries messages after comm_connect()");
}

enum status comm_lane_open(struct comm *comm, const struct lane_config *config,
                           struct lane **lane_out)
{
    ENSURE(!comm->connected, "lanes are declared before comm_connect()");
    if (config->peer < 0 || config->peer >= comm->world || config->peer == comm->rank) {
        return status_fail(STATUS_ERR_INVALID,
                           "opening a lane of rank %" PRId32 ": its peer is rank %" PRId32
                           ", but must be another rank of 0 to %" PRId32,
                           comm->rank, config->peer, comm->world - 1);
    }
    if (config->direction < 0 || config->direction >= COMM_DIRECTIONS || config->landings < 1 ||
        config->landing_bytes < 1) {
        return status_fail(STATUS_ERR_INVALID,
                           "opening a lane of rank %" PRId32 " with rank %" PRId32
                           ": direction must be 0 to 2 and there must be landing buffers, but it "
                           "is direction %" PRId32 " with %" PRId32 " landing buffers of %zu bytes",
                           comm->rank, config->peer, config->direction, config->landings,
                           config->landing_bytes);
    }
    if (comm->ops->lane_exists(comm, config)) {
        return status_fail(STATUS_ERR_INVALID,
                           "opening a lane of rank %" PRId32 " with rank %" PRId32
                           ": the lane in direction %" PRId32 " on which it %s exists already",
                           comm->rank, config->peer, config->direction,
                           config->sends ? "sends" : "receives");
    }
    return comm->ops->lane_open(comm, config, lane_out);
}

enum status comm_share(struct comm *comm, size_t bytes)
{
    ENSURE(!comm->connected, "a shared block is declared before comm_connect()");
    ENSURE(!comm->shares, "comm_share() is called once");
    comm->shares = true;
    comm->shared_bytes = bytes;
    return STATUS_OK;
}

enum status comm_connect(struct comm *comm, const struct cancel *cancel, int64_t deadline_ns)
{
    ENSURE(!comm->connected, "comm_connect() is called once");
    TRY(comm->ops->connect(comm, cancel, deadline_ns));
    comm->connected = true;
    return STATUS_OK;
}

void *comm_landing(const struct lane *lane, int32_t landing)
{
    ensure_receives(lane, landing);
    return lane->comm->ops->landing(lane, landing);
}

enum status comm_post_send(struct lane *lane, int32_t landing, uint64_t tag, const void *data,
                           size_t bytes)
{
    ensure_sends(lane);
    ENSURE(landing >= 0 && landing < lane->config.landings, "landing buffer %d of %d, to rank %d",
           landing, lane->config.landings, lane->config.peer);
    ENSURE(bytes <= lane->config.landing_bytes,
           "a message of %zu bytes for landing buffers of %zu, to rank %d", bytes,
           lane->config.landing_bytes, lane->config.peer);
    ENSURE(lane->comm->ops->sent(lane), "a send is pending on this lane to rank %d",
           lane->config.peer);
    return lane->comm->ops->post_send(lane, landing, tag, data, bytes);
}

enum status comm_post_receive(struct lane *lane, int32_t landing, uint64_t tag)
{
    ensure_receives(lane, landing);
    return lane->comm->ops->post_receive != NULL ? lane->comm->ops->post_receive(lane, landing, tag)
                                                 : STATUS_OK;
}

bool comm_sent(const struct lane *lane)
{
    ensure_sends(lane);
    return lane->comm->ops->sent(lane);
}

void comm_last_copy(const struct lane *lane, int64_t *begin_ns, int64_t *end_ns)
{
    ensure_sends(lane);
    lane->comm->ops->last_copy(lane, begin_ns, end_ns);
}

int32_t comm_progress(struct comm *comm)
{
    ENSURE(comm->connected, "sends make progress after comm_connect()");
    return comm->ops->progress(comm);
}

enum status comm_arrived(const struct lane *lane, int32_t landing, uint64_t tag)
{
    ensure_receives(lane, landing);
    return lane->comm->ops->arrived(lane, landing, tag);
}

enum status comm_wait_arrival(struct lane *lane, int32_t landing, uint64_t tag,
                              const struct cancel *cancel, int64_t deadline_ns)
{
    ensure_receives(lane, landing);
    return lane->comm->ops->wait_arrival(lane, landing, tag, cancel, deadline_ns);
}

enum status comm_wait_sent(struct lane *lane, const struct cancel *cancel, int64_t deadline_ns)
{
    ensure_sends(lane);
    return lane->comm->ops->wait_sent(lane, cancel, deadline_ns);
}

void comm_credit(struct lane *lane, int32_t landing)
{
    ensure_receives(lane, landing);
    lane->comm->ops->credit(lane, landing);
}

void *comm_shared(const struct comm *comm)
{
    ENSURE(comm->connected, "a shared block exists after comm_connect()");
    return comm->shared_bytes > 0 ? comm->ops->shared(comm) : NULL;
}

bool comm_reads(const struct comm *comm)
{
    return comm->ops->read != NULL;
}

enum status comm_read(struct comm *comm, int32_t peer, size_t offset, void *data, size_t bytes)
{
    ENSURE(comm->connected, "shared blocks are read after comm_connect()");
    if (!comm_reads(comm)) {
        return status_fail(
            STATUS_ERR_UNSUPPORTED,
            "rank %d cannot read %zu bytes at %zu of rank %d: they lie in the memory "
            "of its device",
            (int)comm->rank, bytes, offset, (int)peer);
    }
    return comm->ops->read(comm, peer, offset, data, bytes);
}

size_t comm_lane_bytes(const struct lane *lane)
{
    return lane->config.landing_bytes;
}

struct comm_traffic comm_lane_traffic(const struct lane *lane)
{
    return lane->beneath != NULL ? lane->beneath->traffic : lane->traffic;
}

enum status comm_check(struct comm *comm)
{
    ENSURE(comm->connected, "a plane is well after comm_connect()");
    return comm->ops->check != NULL ? comm->ops->check(comm) : STATUS_OK;
}

bool comm_stands(const struct comm *comm)
{
    return comm->ops->stands != NULL && comm->ops->stands(comm);
}

size_t comm_reserved_bytes(const struct comm *comm)
{
    return comm->ops->reserved_bytes(comm);
}

void comm_abort(struct comm *comm)
{
    comm->ops->abort(comm);
}

void comm_close(struct comm **comm)
{
    struct comm *closing = comm != NULL ? *comm : NULL;

    if (closing != NULL) {
        *comm = NULL;
        closing->ops->close(closing);
    }
}

char comm_direction_letter(int32_t direction)
{
    static const char letters[] = "?FBE";

    return letters[direction >= 0 && direction < COMM_DIRECTIONS ? direction + 1 : 0];
}

const char *comm_lane_name(const struct lane *lane, char *text)
{
    int32_t own = lane->comm->rank;
    int32_t peer = lane->config.peer;

    (void)snprintf(text, COMM_LANE_NAME_BYTES, "%c from rank %" PRId32 " to rank %" PRId32,
                   comm_direction_letter(lane->config.direction), lane->config.sends ? own : peer,
                   lane->config.sends ? peer : own);
    return text;
}
