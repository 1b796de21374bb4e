# The kernels, by the nouns of their files, for whoever compiles them; each has a twin on the CPU, and its test.
set(TENSOR_CUDA_NOUNS
  adam add attention bias convert count_zeros dropout embedding gelu head layernorm projection residual sgd sum_squares)
# What belongs to one of these, or has no twin.
set(TENSOR_CUDA_PARTS attention_backward attention_fp32 columns mark scale_rows)
set(TENSOR_CUDA_KERNELS ${TENSOR_CUDA_NOUNS} ${TENSOR_CUDA_PARTS})
list(TRANSFORM TENSOR_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM TENSOR_CUDA_KERNELS APPEND .cu)
# The host's side, in C.
set(TENSOR_CUDA_SOURCES device_cuda.c fetch_cuda.c gemm_cuda.c kernels_cuda.c range_cuda.c stamps_cuda.c)
list(TRANSFORM TENSOR_CUDA_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
