#include "stages/tied_lanes.h"

static enum status open_lane(struct comm *comm, struct lane_config config, bool sends, size_t bytes,
                             struct lane **lane_out)
{
    config.sends = sends;
    config.landing_bytes = bytes;
    return comm_lane_open(comm, &config, lane_out);
}

enum status tied_lanes_open(struct tied_lanes *lanes, struct comm *comm, int32_t peer, int32_t wave,
                            size_t out_bytes, size_t in_bytes)
{
    const struct lane_config config = {
        .peer = peer, .direction = COMM_TIED, .landings = 1, .wave = wave};

    TRY(open_lane(comm, config, true, out_bytes, &lanes->out));
    return open_lane(comm, config, false, in_bytes, &lanes->in);
}

enum status tied_lanes_send(struct tied_lanes *lanes, int64_t number, const void *data)
{
    return comm_post_send(lanes->out, 0, (uint64_t)number, data, comm_lane_bytes(lanes->out));
}

enum status tied_lanes_free_out(const struct tied_lanes *lanes, int64_t deadline_ns)
{
    return lanes->out != NULL ? comm_wait_sent(lanes->out, lanes->cancel, deadline_ns) : STATUS_OK;
}

enum status tied_lanes_receive(struct tied_lanes *lanes, int64_t number, int64_t deadline_ns,
                               const void **data_out)
{
    TRY(comm_post_receive(lanes->in, 0, (uint64_t)number));
    TRY(comm_wait_arrival(lanes->in, 0, (uint64_t)number, lanes->cancel, deadline_ns));
    *data_out = comm_landing(lanes->in, 0);
    return STATUS_OK;
}

void tied_lanes_free_in(struct tied_lanes *lanes)
{
    comm_credit(lanes->in, 0);
}

uint64_t tied_lanes_sent_bytes(const struct tied_lanes *lanes)
{
    return lanes->out != NULL ? comm_lane_traffic(lanes->out).bytes : 0;
}
