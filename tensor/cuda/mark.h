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

/* Of a mark, in pinned memory. */
enum {
    MARK_ENDED,  /* the action that has ended last */
    MARK_INSIDE, /* 1: another has begun */
    MARK_WORDS
};

/* When the stream has come to it: another action begins; and `index` has ended. */
enum status mark_cuda_begin(int32_t *mark, struct stream *stream);
enum status mark_cuda_end(int32_t *mark, int32_t index, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_MARK_H */
