/*
 * scale_rows -- what is left of a matrix product where nothing is summed: C = beta · C.
 */
#ifndef TENSOR_CUDA_SCALE_ROWS_H
#define TENSOR_CUDA_SCALE_ROWS_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

/* c (rows,columns), rows `distance` elements apart, of `type`; beta = 0 does not read it. rows and columns >= 1. */
enum status scale_rows_cuda(void *c, enum dtype type, size_t rows, size_t columns, size_t distance,
                            float beta, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_CUDA_SCALE_ROWS_H */
