/*
 * device_cuda -- a GPU as a device: a stream for compute and one for copies to the host beside it, kernels of tensor/cuda,
 * products of cuBLASLt.
 *
 * What device.h says of CUDA is done here. In particular:
 *   open    takes the GPU `ordinal` of the host, of compute capability 8.0 or more, for the calling thread;
 *           whatever another thread launches on it goes through cudaSetDevice() of its own. STATUS_ERR_UNSUPPORTED
 *           with the driver's words where there is none, or it is too old.
 *   wait    asks again and again, sleeping longer each time up to a tenth of a millisecond, and looks at the cancel and the
 *           deadline in between, and asks the watch. A failure names the action that was marked last.
 *   close   waits for nothing by itself, but the driver does for kernels that still run: what has them wait
 *           for a peer is ended before.
 * Nothing is allocated behind open() but what is taken. The whole GPU is never waited for inside a step: others may
 * share it.
 */
#ifndef TENSOR_CUDA_DEVICE_CUDA_H
#define TENSOR_CUDA_DEVICE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device_backend;

const struct device_backend *device_cuda(void);

/*
 * The GPUs of this host, where open() takes each of them; 0 where there is none, or one is too old. Takes nothing on
 * any. `words` says what was seen, or why there is none, in the driver's own words: "2 GPUs, the first of compute
 * capability 9.0", "no CUDA-capable device is detected".
 */
int32_t device_cuda_look(char *words, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_DEVICE_CUDA_H */
