/*
 * cublasLt -- stands for the library's header of this name over tests/emulated/fake_cublaslt.cpp: what weir uses, and
 * nothing else.
 */
#ifndef TESTS_EMULATED_INCLUDE_CUBLASLT_H
#define TESTS_EMULATED_INCLUDE_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

#include "tests/emulated/cublaslt_names.h"
#include "tests/emulated/include/cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_VALUE(name, value) name = (value),
typedef enum {
    CUBLAS_STATUSES(FAKE_VALUE)
} cublasStatus_t;
typedef enum {
    CUBLAS_OPERATIONS(FAKE_VALUE)
} cublasOperation_t;
typedef enum {
    CUBLAS_COMPUTE_TYPES(FAKE_VALUE)
} cublasComputeType_t;
typedef enum {
    CUDA_DATA_TYPES(FAKE_VALUE)
} cudaDataType_t;
typedef enum {
    CUBLASLT_PRODUCT_ATTRIBUTES(FAKE_VALUE)
} cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_EPILOGUES(FAKE_VALUE)
} cublasLtEpilogue_t;
typedef enum {
    CUBLASLT_PREFERENCE_ATTRIBUTES(FAKE_VALUE)
} cublasLtMatmulPreferenceAttributes_t;
enum {
    CUBLASLT_REDUCTION_SCHEMES(FAKE_VALUE)
};
#undef FAKE_VALUE

typedef struct fake_lt_handle *cublasLtHandle_t;
typedef struct fake_lt_product *cublasLtMatmulDesc_t;
typedef struct fake_lt_layout *cublasLtMatrixLayout_t;
typedef struct fake_lt_preference *cublasLtMatmulPreference_t;

typedef struct {
    uint64_t data[CUBLASLT_ALGO_BYTES / 8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#define FAKE_FUNCTION(name, result, arguments) result name arguments;
CUBLASLT_FUNCTIONS(FAKE_FUNCTION)
#undef FAKE_FUNCTION

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_INCLUDE_CUBLASLT_H */
