/*
 * fake_nccl -- NCCL between GPUs of fake_cuda.h, for tests: ranks are threads of one process, or one thread in turn.
 *
 * Operations are items of streams: one ends only when its peers have come to theirs, and until then the stream stands. A
 * group (ncclGroupStart) is one item, in which everything goes on at once. Sums are folded in ascending order of ranks, so
 * that they have the bits of collectives/comm_shm.h: a real NCCL has others.
 *
 * Communicators are non-blocking, and the fake makes much of it: a call answers ncclInProgress at the first use of a
 * communicator and now and then later, and is put into its stream when ncclCommGetAsyncError() has been asked often enough. A
 * call on a communicator that is still in progress is refused. A split fills its result in when the parent is ready. Two
 * ranks of one GPU are refused.
 *
 * Collectives of one communicator match in order, kind, count, type, operator and root, messages of a pair in order, count and
 * type; where they do not, all members have an asynchronous error that names both (a real NCCL would hang). Memory that is not a GPU's,
 * or is too short, is refused. A communicator that is used after its end ends the program.
 */
#ifndef TESTS_EMULATED_FAKE_NCCL_H
#define TESTS_EMULATED_FAKE_NCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The n-th operation from now on of rank `rank` (of the first communicator, whichever it is called on) is an
 * asynchronous error: ncclSystemError there, ncclRemoteError at the other members; it does not end before an abort. 0: none. */
void fake_nccl_fail(int rank, int nth);

/* It never ends before an abort, and nobody says so. */
void fake_nccl_hang(int rank, int nth);

/* When rank `rank` called the last operation that failed or hung; 0: it has called none. */
int64_t fake_nccl_struck_ns(int rank);

/* Operations that rank `rank` has called so far. */
int fake_nccl_operations(int rank);

/* Communicators that are neither destroyed nor aborted, and memory that is still registered. */
size_t fake_nccl_left(void);

/* How many were aborted so far. */
size_t fake_nccl_aborted(void);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_FAKE_NCCL_H */
