/*
 * tolerance -- how far a kernel may be from an exact result, derived and not tuned.
 *
 * A sum of n terms in fp32, in any order, is off by at most n · u · (sum of the terms' magnitudes),
 * u = 2^-24; fused or not, each further rounding of a value adds u of its magnitude. `roundings`
 * counts the operations between the inputs and the result besides the sum. Twice the first-order
 * bound, so that the terms of second order do not matter.
 *
 * A result that is kept in a 16-bit format is rounded once more.
 */
#ifndef TESTS_TENSOR_TOLERANCE_H
#define TESTS_TENSOR_TOLERANCE_H

#include <math.h>
#include <stddef.h>

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TOLERANCE_UNIT_FP32 0x1p-24

/* `magnitude`: the sum of the magnitudes of `terms` terms, each of which took `roundings`. */
static inline double tolerance_fp32(double magnitude, size_t terms, size_t roundings)
{
    return 2.0 * (double)(terms + roundings) * TOLERANCE_UNIT_FP32 * magnitude;
}

/* How far a kept result may be from `want` where the computed one is off by `allowed` at most: half
 * a step of 8 or 11 bits of significand, of fp16 at least of its subnormals. */
static inline double tolerance_kept(enum dtype type, double want, double allowed)
{
    if (type == DTYPE_FP32) {
        return allowed;
    }
    const double half_step = (type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11) * (fabs(want) + allowed);
    return allowed + (type == DTYPE_FP16 ? fmax(half_step, 0x1p-25) : half_step);
}

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_TOLERANCE_H */
