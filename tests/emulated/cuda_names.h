/*
 * cuda_names -- what weir uses of the CUDA runtime, and of NVTX: types, values and functions, once.
 *
 * include/cuda_runtime_api.h makes a header of it for builds without a toolkit;
 * real_declarations.cpp holds it against the toolkit's own where there is one.
 */
#ifndef TESTS_EMULATED_CUDA_NAMES_H
#define TESTS_EMULATED_CUDA_NAMES_H

/* name, value */
#define CUDA_ERRORS(X)                     \
    X(cudaSuccess, 0)                      \
    X(cudaErrorInvalidValue, 1)            \
    X(cudaErrorMemoryAllocation, 2)        \
    X(cudaErrorInsufficientDriver, 35)     \
    X(cudaErrorNoDevice, 100)              \
    X(cudaErrorInvalidDevice, 101)         \
    X(cudaErrorInvalidResourceHandle, 400) \
    X(cudaErrorNotReady, 600)              \
    X(cudaErrorIllegalAddress, 700)        \
    X(cudaErrorLaunchFailure, 719)

#define CUDA_COPY_KINDS(X)         \
    X(cudaMemcpyHostToHost, 0)     \
    X(cudaMemcpyHostToDevice, 1)   \
    X(cudaMemcpyDeviceToHost, 2)   \
    X(cudaMemcpyDeviceToDevice, 3) \
    X(cudaMemcpyDefault, 4)

#define CUDA_MEMORY_TYPES(X)         \
    X(cudaMemoryTypeUnregistered, 0) \
    X(cudaMemoryTypeHost, 1)         \
    X(cudaMemoryTypeDevice, 2)

#define CUDA_ATTRIBUTES(X)                   \
    X(cudaDevAttrMultiProcessorCount, 16)    \
    X(cudaDevAttrComputeCapabilityMajor, 75) \
    X(cudaDevAttrComputeCapabilityMinor, 76)

#define CUDA_FLAGS(X)           \
    X(cudaStreamNonBlocking, 1) \
    X(cudaEventDefault, 0)      \
    X(cudaEventDisableTiming, 2)

/* name, result, arguments */
#define NVTX_FUNCTIONS(X)                  \
    X(nvtxRangePushA, int, (const char *)) \
    X(nvtxRangePop, int, (void))

#define CUDA_FUNCTIONS(X)                                                                    \
    X(cudaGetDeviceCount, cudaError_t, (int *))                                              \
    X(cudaSetDevice, cudaError_t, (int))                                                     \
    X(cudaDeviceGetAttribute, cudaError_t, (int *, enum cudaDeviceAttr, int))                \
    X(cudaDeviceSynchronize, cudaError_t, (void))                                            \
    X(cudaDriverGetVersion, cudaError_t, (int *))                                            \
    X(cudaRuntimeGetVersion, cudaError_t, (int *))                                           \
    X(cudaGetLastError, cudaError_t, (void))                                                 \
    X(cudaPeekAtLastError, cudaError_t, (void))                                              \
    X(cudaGetErrorString, const char *, (cudaError_t))                                       \
    X(cudaMemGetInfo, cudaError_t, (size_t *, size_t *))                                     \
    X(cudaMalloc, cudaError_t, (void **, size_t))                                            \
    X(cudaFree, cudaError_t, (void *))                                                       \
    X(cudaMallocHost, cudaError_t, (void **, size_t))                                        \
    X(cudaFreeHost, cudaError_t, (void *))                                                   \
    X(cudaPointerGetAttributes, cudaError_t, (struct cudaPointerAttributes *, const void *)) \
    X(cudaMemcpyAsync, cudaError_t,                                                          \
      (void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t))                     \
    X(cudaMemsetAsync, cudaError_t, (void *, int, size_t, cudaStream_t))                     \
    X(cudaStreamCreateWithFlags, cudaError_t, (cudaStream_t *, unsigned int))                \
    X(cudaStreamCreateWithPriority, cudaError_t, (cudaStream_t *, unsigned int, int))        \
    X(cudaDeviceGetStreamPriorityRange, cudaError_t, (int *, int *))                         \
    X(cudaStreamDestroy, cudaError_t, (cudaStream_t))                                        \
    X(cudaStreamSynchronize, cudaError_t, (cudaStream_t))                                    \
    X(cudaStreamQuery, cudaError_t, (cudaStream_t))                                          \
    X(cudaStreamWaitEvent, cudaError_t, (cudaStream_t, cudaEvent_t, unsigned int))           \
    X(cudaEventCreateWithFlags, cudaError_t, (cudaEvent_t *, unsigned int))                  \
    X(cudaEventDestroy, cudaError_t, (cudaEvent_t))                                          \
    X(cudaEventElapsedTime, cudaError_t, (float *, cudaEvent_t, cudaEvent_t))                \
    X(cudaEventRecord, cudaError_t, (cudaEvent_t, cudaStream_t))                             \
    X(cudaEventQuery, cudaError_t, (cudaEvent_t))                                            \
    X(cudaEventSynchronize, cudaError_t, (cudaEvent_t))                                      \
    X(cudaLaunchHostFunc, cudaError_t, (cudaStream_t, cudaHostFn_t, void *))

#endif /* TESTS_EMULATED_CUDA_NAMES_H */
