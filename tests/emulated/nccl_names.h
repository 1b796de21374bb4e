/*
 * nccl_names -- what weir uses of NCCL: values and functions, once.
 *
 * include/nccl.h makes a header of it for builds without the library; real_declarations.cpp holds it against the
 * library's own where there is one.
 */
#ifndef TESTS_EMULATED_NCCL_NAMES_H
#define TESTS_EMULATED_NCCL_NAMES_H

/* name, value */
#define NCCL_RESULTS(X)          \
    X(ncclSuccess, 0)            \
    X(ncclUnhandledCudaError, 1) \
    X(ncclSystemError, 2)        \
    X(ncclInternalError, 3)      \
    X(ncclInvalidArgument, 4)    \
    X(ncclInvalidUsage, 5)       \
    X(ncclRemoteError, 6)        \
    X(ncclInProgress, 7)

#define NCCL_SUMS(X) \
    X(ncclSum, 0)    \
    X(ncclMax, 2)

#define NCCL_TYPES(X) \
    X(ncclUint8, 1)   \
    X(ncclFloat32, 7)

#define NCCL_NO_COLOR (-1)
#define NCCL_ID_BYTES 128

/* type, name: fields of ncclConfig_t */
#define NCCL_CONFIG_FIELDS(X) \
    X(size_t, size)           \
    X(unsigned int, magic)    \
    X(unsigned int, version)  \
    X(int, blocking)          \
    X(int, splitShare)        \
    X(const char *, commName)

/* name, result, arguments */
#define NCCL_FUNCTIONS(X)                                                                         \
    X(ncclGetVersion, ncclResult_t, (int *))                                                      \
    X(ncclGetUniqueId, ncclResult_t, (ncclUniqueId *))                                            \
    X(ncclCommInitRankConfig, ncclResult_t,                                                       \
      (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))                                     \
    X(ncclCommSplit, ncclResult_t, (ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *))          \
    X(ncclCommFinalize, ncclResult_t, (ncclComm_t))                                               \
    X(ncclCommDestroy, ncclResult_t, (ncclComm_t))                                                \
    X(ncclCommAbort, ncclResult_t, (ncclComm_t))                                                  \
    X(ncclCommCount, ncclResult_t, (ncclComm_t, int *))                                           \
    X(ncclCommUserRank, ncclResult_t, (ncclComm_t, int *))                                        \
    X(ncclCommGetAsyncError, ncclResult_t, (ncclComm_t, ncclResult_t *))                          \
    X(ncclGetErrorString, const char *, (ncclResult_t))                                           \
    X(ncclGetLastError, const char *, (ncclComm_t))                                               \
    X(ncclCommRegister, ncclResult_t, (ncclComm_t, void *, size_t, void **))                      \
    X(ncclCommDeregister, ncclResult_t, (ncclComm_t, void *))                                     \
    X(ncclGroupStart, ncclResult_t, (void))                                                       \
    X(ncclGroupEnd, ncclResult_t, (void))                                                         \
    X(ncclAllReduce, ncclResult_t,                                                                \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))      \
    X(ncclReduceScatter, ncclResult_t,                                                            \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))      \
    X(ncclAllGather, ncclResult_t,                                                                \
      (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))                   \
    X(ncclReduce, ncclResult_t,                                                                   \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t)) \
    X(ncclBroadcast, ncclResult_t,                                                                \
      (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))              \
    X(ncclSend, ncclResult_t,                                                                     \
      (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                      \
    X(ncclRecv, ncclResult_t, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))

#endif /* TESTS_EMULATED_NCCL_NAMES_H */
