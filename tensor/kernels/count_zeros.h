/*
 * count_zeros -- how many elements are zero.
 *
 *   in  (elems)  read
 *
 * *count_out = the elements that equal 0, of either sign. It is memory that the kernel reaches, as
 * sum_squares has it. Cannot fail.
 */
#ifndef TENSOR_KERNELS_COUNT_ZEROS_H
#define TENSOR_KERNELS_COUNT_ZEROS_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum status KERNEL(count_zeros)(size_t *count_out, const float *in, size_t elems,
                                struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_COUNT_ZEROS_H */
