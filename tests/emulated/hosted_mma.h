/*
 * hosted_mma -- one warp that does one instruction of tensor/cuda/mma.cuh.
 */
#ifndef TESTS_EMULATED_HOSTED_MMA_H
#define TESTS_EMULATED_HOSTED_MMA_H

#include <stdint.h>

#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c (32,4) += the product of a (32,4) and b (32,2): the registers of each lane; `type` of 16 bits. */
void hosted_multiply_add(float *c, const uint32_t *a, const uint32_t *b, enum dtype type);

/* out (32,4): what each lane gets of in (32,8), whose row r is the one that lane r points to. */
void hosted_load_matrices(uint32_t *out, const uint16_t *in, int transposed);

/* Lanes of one warp are at different instructions. */
void hosted_mixed_instructions(unsigned threads);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_EMULATED_HOSTED_MMA_H */
