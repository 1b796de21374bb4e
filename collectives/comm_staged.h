/*
 * comm_staged -- the data plane of ranks whose tensors lie in a device's memory, through the host.
 *
 * For several ranks on one GPU, which NCCL does not join, and for GPUs without a way to each other: what
 * travels is copied to the host, goes through another comm (shared memory), and is copied back. So the numbers are
 * those of that comm, to the last bit, and no CUDA is known here: copies are the device's.
 *
 * "Has come" and "has ended" are meant in the order of the device's stream: what is put into the stream behind a
 * call finds what the call promises. But a send, and a collective, block until the stream has come to them, because
 * the host takes the bytes there: the right plane for tests and for small machines, not a fast one.
 *
 * comm_read() is refused: no peer can reach a device's memory (comm_reads()). Memory on the host, as much again
 * as landing buffers and shared block, is in no table.
 */
#ifndef COLLECTIVES_COMM_STAGED_H
#define COLLECTIVES_COMM_STAGED_H

#include "base/status.h"
#include "collectives/comm.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Over a comm_shm of the same configuration. The device outlives the comm. */
enum status comm_staged_open(const struct comm_config *config, struct device *device,
                             struct comm **comm_out);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_COMM_STAGED_H */
