/*
 * convert -- a tensor in another number format.
 *
 *   in   (n)  read
 *   out  (n)  overwritten; the same memory as `in` for equal formats only, where nothing is done;
 *             overlaps it in no other way
 *
 * out = in: exact where fp32 is made of 16 bits, rounded to the nearest, ties to even, in the other
 * direction, with the bits of tensor/dtype.h for every number. From one 16-bit format to the other
 * by way of fp32. Between equal formats, the bits.
 *
 * Element by element; the team's size changes no bit. `stream` may be NULL: on the caller's thread,
 * which may be a member of a team at work. Cannot fail.
 */
#ifndef TENSOR_KERNELS_CONVERT_H
#define TENSOR_KERNELS_CONVERT_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stream;

enum status KERNEL(convert)(void *out, enum dtype out_type, const void *in, enum dtype in_type,
                            size_t elems, struct stream *stream);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_CONVERT_H */
