/*
 * add -- the sum of two tensors.
 *
 *   a, b  (elems)  read
 *   out   (elems)  overwritten; may be a or b
 *
 * out = a + b, element by element; the team's size changes no bit. Cannot fail.
 */
#ifndef TENSOR_KERNELS_ADD_H
#define TENSOR_KERNELS_ADD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum status KERNEL(add)(float *out, const float *a, const float *b, size_t elems,
                        struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_ADD_H */
