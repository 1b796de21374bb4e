/*
 * tied_lanes -- a tied embedding whose two ends have a device each, over the data plane: the head's gradient goes to the
 * owner and the updated weights come back, each as one message on a lane of its own.
 *
 * What collectives/embedding_sync.h does through the host is done here in the order of the device's stream: the calls of
 * a plane that blocks nobody (collectives/cuda/comm_nccl.h) block nobody. Both ends have one landing buffer. A gradient is sent in
 * SYNC and a version after each update, so that both lanes have the same order at both ends: that of the plan and of
 * the updates. The numbers are those of the other way, which moves the same bytes.
 *
 * Knows lanes; nothing of when an action has its turn.
 */
#ifndef STAGES_TIED_LANES_H
#define STAGES_TIED_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/status.h"
#include "collectives/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tied_lanes {
    struct lane *out; /* NULL: something else carries the embedding, or there is nothing of it */
    struct lane *in;
    const struct cancel *cancel; /* borrows */
};

/* One end, before comm_connect(): it sends `out_bytes` and receives `in_bytes` a message, where the other end says so the
 * other way round; both more than 0. `wave` as in lane_config. */
enum status tied_lanes_open(struct tied_lanes *lanes, struct comm *comm, int32_t peer, int32_t wave,
                            size_t out_bytes, size_t in_bytes);

/* Sends what lies at `data`, of the size of a message, as `number`; it stays as it is until tied_lanes_free_out(). */
enum status tied_lanes_send(struct tied_lanes *lanes, int64_t number, const void *data);

/* What was sent last may change, in the order of the stream. */
enum status tied_lanes_free_out(const struct tied_lanes *lanes, int64_t deadline_ns);

/* Lends message `number`, which lies there in the order of the stream, until tied_lanes_free_in(). */
enum status tied_lanes_receive(struct tied_lanes *lanes, int64_t number, int64_t deadline_ns,
                               const void **data_out);
void tied_lanes_free_in(struct tied_lanes *lanes);

/* Bytes that this end has sent. */
uint64_t tied_lanes_sent_bytes(const struct tied_lanes *lanes);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_TIED_LANES_H */
