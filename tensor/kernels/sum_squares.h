/*
 * sum_squares -- what a gradient norm is made of.
 *
 *   in  (elems)  read
 *
 * *sum_out = sum of in² in double. A square of a finite float is exact in double and no sum of
 * them overflows, so the result is finite exactly when every element is.
 *
 * The elements are cut into at most SUM_SQUARES_BLOCKS blocks whose edges depend on `elems` only,
 * each summed in fixed lanes, and the blocks are added in ascending order: the team's size changes
 * no bit. On CUDA the lanes are a block's threads and the blocks are added in pairs, in a fixed order too.
 *
 * sum_out is memory that the kernel reaches: on CUDA the device's, or pinned. It is written when the stream
 * has come to it. Cannot fail.
 */
#ifndef TENSOR_KERNELS_SUM_SQUARES_H
#define TENSOR_KERNELS_SUM_SQUARES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

#define SUM_SQUARES_BLOCKS 256

enum status KERNEL(sum_squares)(double *sum_out, const float *in, size_t elems,
                                struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_SUM_SQUARES_H */
