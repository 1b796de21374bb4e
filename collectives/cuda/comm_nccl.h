/*
 * comm_nccl -- the data plane of ranks that have a GPU each, over NCCL.
 *
 * What comm.h says, in the order of the device's compute stream, and nothing blocks the host inside a step: a call puts
 * its part into a stream, and waits are the stream's. A lane has a communicator and a stream of its own, so that messages
 * run beside compute and beside each other; the collectives of a group run on the compute stream, those of a group `aside` on
 * one of the group's, behind what the compute stream has by then.
 *
 *   comm_post_receive  once the landing's credit is given, in the stream's order, the message may come; required here.
 *   comm_wait_arrival  the compute stream waits for it. comm_arrived() says before whether it has come.
 *   comm_credit        here, in the compute stream, the last reader has ended.
 *   comm_post_send     what the compute stream has put into `data` goes, as many bytes as a landing buffer has; comm_sent() is false from here until
 *   comm_wait_sent     has the compute stream wait until `data` may change. comm_last_copy() knows no times.
 *   groups             in place, each call one launch. A sum is NCCL's: in the order of its rings, not of ranks, and a
 *                      maximum may lose a NaN. That members call alike is not checked: those that differ hang or fail. One
 *                      thread issues all, of groups aside too, and comm_group_join() has the compute stream wait. A wire of 16 bits carries bytes.
 *
 * A tag is checked against that of comm_post_receive() alone: messages of a lane are in the plan's order at both ends.
 * Every rank opens as many groups, in the same order: its tensor group first, say, then its replicas.
 *
 * Creation. Rank 0's id goes round in a control round "NCCL", in which ranks also compare how many groups and waves there
 * are; one communicator of all, and the others are its splits: groups in their order, then for each wave of lanes four
 * (lower rank to higher and back, F and B; lanes of tied embeddings have a wave to themselves, in which they are the F). All are used once before comm_connect() returns, so that what NCCL makes at a first use
 * is there. The two ends of a lane compare landings and bytes in that first message.
 *
 * Failure. Communicators are not blocking: every wait has its deadline. The plane watches the device's waits
 * (device_watch()): an error of any communicator, or comm_abort(), ends them, and where a deadline passes while something of
 * the plane has not ended the wait fails with STATUS_ERR_PEER and says what is oldest: "rank 2 waits for rank 1: message 7
 * of the lane F from rank 1 to rank 2". Each communicator keeps a record for that (comm_nccl_flight.c). comm_abort() ends this rank's part alone,
 * so every rank is told (the control plane does): peers see no more than silence.
 *
 * What NCCL takes for itself, some MiB of the GPU's memory a communicator, is in no table. Streams of other work on the GPU go
 * on beside it.
 *
 * comm_close() of a plane that is well takes all ranks, for a few seconds at most; else it aborts.
 */
#ifndef COLLECTIVES_CUDA_COMM_NCCL_H
#define COLLECTIVES_CUDA_COMM_NCCL_H

#include <stdint.h>

#include "base/status.h"
#include "collectives/comm.h"
#include "collectives/control.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct comm_nccl_config {
    int32_t rank;
    int32_t world;
    int32_t waves;         /* of lanes: each lane_config's wave is below; the same on every rank */
    struct device *device; /* device_cuda(); outlives the comm */
    struct control *control; /* used until comm_connect() returns */
};

/* STATUS_ERR_UNSUPPORTED where the library is older than the header that weir was built with. */
enum status comm_nccl_open(const struct comm_nccl_config *config, struct comm **comm_out);

/* What NCCL reads from the environment, where the user has not set it: communicators of one GPU start their kernels in the
 * order of the program (NCCL_LAUNCH_ORDER_IMPLICIT), where CUDA can do so without ending them in it too. Once, before the
 * program has a second thread. */
void comm_nccl_prepare(void);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_CUDA_COMM_NCCL_H */
