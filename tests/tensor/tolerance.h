/*
 * tolerance -- how far a kernel may be from an exact result, derived and not tuned.
 *
 * A sum of n terms in fp32, in any order, is off by at most n · u · (sum of the terms' magnitudes),
 * u = 2^-24; fused or not, each further rounding of a value adds u of its magnitude. `roundings`
 * counts the operations between the inputs and the result besides the sum. Twice the first-order
 * bound, so that the terms of second order do not matter.
 */
#ifndef TESTS_TENSOR_TOLERANCE_H
#define TESTS_TENSOR_TOLERANCE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOLERANCE_UNIT_FP32 0x1p-24

/* `magnitude`: the sum of the magnitudes of `terms` terms, each of which took `roundings`. */
static inline double tolerance_fp32(double magnitude, size_t terms, size_t roundings)
{
    return 2.0 * (double)(terms + roundings) * TOLERANCE_UNIT_FP32 * magnitude;
}

#ifdef __cplusplus
}
#endif

#endif /* TESTS_TENSOR_TOLERANCE_H */
