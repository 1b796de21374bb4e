/*
 * mark -- writes how far a stream has come into memory of the host's.
 */
#ifndef TENSOR_CUDA_MARK_H
#define TENSOR_CUDA_MARK_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

/* *mark, in pinned memory, becomes `index` when the stream has come to it. */
enum status mark_cuda(int32_t *mark, int32_t index, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_MARK_H */
