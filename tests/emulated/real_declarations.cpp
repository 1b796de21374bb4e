/* Compiled where a CUDA toolkit is: holds what the fakes declare against the toolkit's own headers. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <type_traits>

#include "tests/emulated/cublaslt_names.h"
#include "tests/emulated/cuda_names.h"

#define SAME_VALUE(name, value) static_assert((int)(name) == (value), #name);
#define SAME_FUNCTION(name, result, arguments) \
    static_assert(std::is_same<decltype(&name), result(*) arguments>::value, #name);

CUDA_ERRORS(SAME_VALUE)
CUDA_COPY_KINDS(SAME_VALUE)
CUDA_ATTRIBUTES(SAME_VALUE)
CUDA_MEMORY_TYPES(SAME_VALUE)
CUDA_FLAGS(SAME_VALUE)
CUDA_FUNCTIONS(SAME_FUNCTION)
NVTX_FUNCTIONS(SAME_FUNCTION)

CUBLAS_STATUSES(SAME_VALUE)
CUBLAS_OPERATIONS(SAME_VALUE)
CUBLAS_COMPUTE_TYPES(SAME_VALUE)
CUDA_DATA_TYPES(SAME_VALUE)
CUBLASLT_PRODUCT_ATTRIBUTES(SAME_VALUE)
CUBLASLT_EPILOGUES(SAME_VALUE)
CUBLASLT_PREFERENCE_ATTRIBUTES(SAME_VALUE)
CUBLASLT_REDUCTION_SCHEMES(SAME_VALUE)
CUBLASLT_FUNCTIONS(SAME_FUNCTION)

static_assert(std::is_same<decltype(cudaPointerAttributes::type), enum cudaMemoryType>::value,
              "type");
static_assert(sizeof(cublasLtMatmulAlgo_t) == CUBLASLT_ALGO_BYTES, "cublasLtMatmulAlgo_t");
