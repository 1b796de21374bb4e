/*
 * cublaslt_names -- what weir uses of cuBLASLt, as cuda_names.h has it of the runtime.
 */
#ifndef TESTS_EMULATED_CUBLASLT_NAMES_H
#define TESTS_EMULATED_CUBLASLT_NAMES_H

/* name, value */
#define CUBLAS_STATUSES(X)                \
    X(CUBLAS_STATUS_SUCCESS, 0)           \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)   \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)      \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)     \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13) \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14)   \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)

#define CUBLAS_OPERATIONS(X) \
    X(CUBLAS_OP_N, 0)        \
    X(CUBLAS_OP_T, 1)

#define CUBLAS_COMPUTE_TYPES(X) \
    X(CUBLAS_COMPUTE_32F, 68)   \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)

#define CUDA_DATA_TYPES(X) \
    X(CUDA_R_32F, 0)       \
    X(CUDA_R_16F, 2)       \
    X(CUDA_R_16BF, 14)

#define CUBLASLT_PRODUCT_ATTRIBUTES(X)               \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)              \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)          \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11) \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)

#define CUBLASLT_EPILOGUES(X)       \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1) \
    X(CUBLASLT_EPILOGUE_BIAS, 4)    \
    X(CUBLASLT_EPILOGUE_DGELU, 192)

#define CUBLASLT_PREFERENCE_ATTRIBUTES(X)            \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)   \
    X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define CUBLASLT_REDUCTION_SCHEMES(X) X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)

#define CUBLASLT_ALGO_BYTES 64

/* name, result, arguments */
#define CUBLASLT_FUNCTIONS(X)                                                                      \
    X(cublasLtCreate, cublasStatus_t, (cublasLtHandle_t *))                                        \
    X(cublasLtDestroy, cublasStatus_t, (cublasLtHandle_t))                                         \
    X(cublasLtGetVersion, size_t, (void))                                                          \
    X(cublasLtGetStatusString, const char *, (cublasStatus_t))                                     \
    X(cublasLtMatmulDescCreate, cublasStatus_t,                                                    \
      (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t))                               \
    X(cublasLtMatmulDescSetAttribute, cublasStatus_t,                                              \
      (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t))                \
    X(cublasLtMatmulDescDestroy, cublasStatus_t, (cublasLtMatmulDesc_t))                           \
    X(cublasLtMatrixLayoutCreate, cublasStatus_t,                                                  \
      (cublasLtMatrixLayout_t *, cudaDataType_t, uint64_t, uint64_t, int64_t))                     \
    X(cublasLtMatrixLayoutDestroy, cublasStatus_t, (cublasLtMatrixLayout_t))                       \
    X(cublasLtMatmulPreferenceCreate, cublasStatus_t, (cublasLtMatmulPreference_t *))              \
    X(cublasLtMatmulPreferenceSetAttribute, cublasStatus_t,                                        \
      (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t))    \
    X(cublasLtMatmulPreferenceDestroy, cublasStatus_t, (cublasLtMatmulPreference_t))               \
    X(cublasLtMatmulAlgoGetHeuristic, cublasStatus_t,                                              \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,     \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,            \
       cublasLtMatmulHeuristicResult_t *, int *))                                                  \
    X(cublasLtMatmul, cublasStatus_t,                                                              \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t, \
       const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,   \
       void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,               \
       cudaStream_t))

#endif /* TESTS_EMULATED_CUBLASLT_NAMES_H */
