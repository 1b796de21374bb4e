/*
 * cuda_runtime_api -- stands for the toolkit's header of this name where weir's CUDA side is built over
 * tests/emulated/fake_cuda.cpp: what weir uses, and nothing else.
 */
#ifndef TESTS_EMULATED_INCLUDE_CUDA_RUNTIME_API_H
#define TESTS_EMULATED_INCLUDE_CUDA_RUNTIME_API_H

#include <stddef.h>

#include "tests/emulated/cuda_names.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_VERSION 13000

/* NOLINTBEGIN(readability-identifier-naming): the toolkit's names */
#define FAKE_VALUE(name, value) name = (value),
enum cudaError {
    CUDA_ERRORS(FAKE_VALUE)
};
enum cudaMemcpyKind {
    CUDA_COPY_KINDS(FAKE_VALUE)
};
enum cudaDeviceAttr {
    CUDA_ATTRIBUTES(FAKE_VALUE)
};
enum cudaMemoryType {
    CUDA_MEMORY_TYPES(FAKE_VALUE)
};
enum {
    CUDA_FLAGS(FAKE_VALUE)
};
#undef FAKE_VALUE

struct cudaPointerAttributes {
    enum cudaMemoryType type;
};

typedef enum cudaError cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *);

#define FAKE_FUNCTION(name, result, arguments) result name arguments;
CUDA_FUNCTIONS(FAKE_FUNCTION)
#undef FAKE_FUNCTION
/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_INCLUDE_CUDA_RUNTIME_API_H */
