# The kernels, by the nouns of their files, for whoever compiles them.
set(TENSOR_CUDA_NOUNS adam add convert layernorm)
set(TENSOR_CUDA_KERNELS ${TENSOR_CUDA_NOUNS})
list(TRANSFORM TENSOR_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM TENSOR_CUDA_KERNELS APPEND .cu)
