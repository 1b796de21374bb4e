/*
 * bias -- one number a column, added to every row; backward, the sum of each column.
 *
 *   forward
 *   inout  (N,K)  of `type`, read and overwritten
 *   bias   (K)    of `type`, read
 *   backward
 *   dout   (N,K)  of `type`, read
 *   dbias  (K)    accumulated, in fp32; overlaps nothing
 *
 * inout[n][k] += bias[k]
 * dbias[k] += sum over n of dout[n][k]
 *
 * A column is summed by one member of the team, in ascending rows: first within blocks of
 * BIAS_BLOCK_ROWS, then the blocks, which keeps the rounding errors of long columns small. The
 * team's size changes no bit. On CUDA the rows are cut into blocks, in which 8 threads sum a column, each every 8th row; sums
 * are added in a fixed order: N and K alone decide. Cannot fail.
 */
#ifndef TENSOR_KERNELS_BIAS_H
#define TENSOR_KERNELS_BIAS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

#define BIAS_BLOCK_ROWS 64

enum status KERNEL(bias_forward)(void *inout, const void *bias, size_t rows, size_t K,
                                 enum dtype type, struct stream *stream);
enum status KERNEL(bias_backward)(float *dbias, const void *dout, size_t rows, size_t K,
                                  enum dtype type, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_BIAS_H */
