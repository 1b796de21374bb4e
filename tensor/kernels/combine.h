/*
 * combine -- the sum, or the largest, of several tensors, written to several places.
 *
 *   ins[k]   (elems)  read; in_count >= 1 of them
 *   outs[k]  (elems)  overwritten, all with the same bits; each may be one of the ins, and may not
 *                     overlap them otherwise
 *
 * COMBINE_SUM: ((ins[0] + ins[1]) + ins[2]) + ..., element by element, each sum rounded once: the
 * bits of the plain loop, on every variant. A NaN anywhere gives NaN.
 * COMBINE_MAX: the largest, folded from the left in the same way; a NaN anywhere gives NaN, and of
 * equal values (the two zeros) the first stays.
 *
 * Reads and writes every tensor once, in blocks that stay in the nearest cache. Cannot fail.
 */
#ifndef TENSOR_KERNELS_COMBINE_H
#define TENSOR_KERNELS_COMBINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/kernels.h"
#include "tensor/kernels/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

enum status KERNEL(combine)(float *const *outs, size_t out_count, const float *const *ins,
                            size_t in_count, size_t elems, enum combine_op op);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_COMBINE_H */
