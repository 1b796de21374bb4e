/*
 * queued -- small operations that show what fake_cuda.h does with a stream.
 */
#ifndef TESTS_EMULATED_QUEUED_H
#define TESTS_EMULATED_QUEUED_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

/* A kernel: inout[0] = factor · inout[0] + term. */
enum status queued_scale(float *inout, float factor, float term, struct stream *stream);

/* An operation of a cudaStream_t that has not ended while *flag is 0. A cudaError_t. */
int queued_until(void *queue, const int *flag);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_QUEUED_H */
