/*
 * range_cuda -- named ranges of a thread, as NVIDIA's profilers show them (NVTX). Without a profiler they are two calls
 * that do nothing.
 */
#ifndef TENSOR_CUDA_RANGE_CUDA_H
#define TENSOR_CUDA_RANGE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

struct device;

/* See device_begin_range(). */
void range_cuda_begin(struct device *device, const char *name);
void range_cuda_end(struct device *device);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_RANGE_CUDA_H */
