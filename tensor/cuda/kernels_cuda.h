/*
 * kernels_cuda -- the table of the GPU's kernels.
 */
#ifndef TENSOR_CUDA_KERNELS_CUDA_H
#define TENSOR_CUDA_KERNELS_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_ops;

/* Not complete yet: what has no kernel is NULL. */
const struct kernel_ops *kernels_cuda(void);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_KERNELS_CUDA_H */
