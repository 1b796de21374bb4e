/*
 * dtype -- the number formats of tensors.
 *
 *   fp32  IEEE 754 binary32
 *   bf16  the upper half of a binary32: 8 bits of exponent, 7 of fraction
 *   fp16  IEEE 754 binary16: 5 bits of exponent, 10 of fraction, subnormals, infinities
 *
 * Everything is computed in fp32; 16-bit formats are for keeping and sending. Rounding is to the
 * nearest, ties to even; what is too large becomes an infinity, infinities keep their sign, a NaN
 * stays a NaN (quiet, its sign and upper bits kept), subnormals are numbers like all others.
 *
 * Blocks are converted by kernel_ops.convert (tensor/kernels/convert.h), with the same bits.
 */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype {
    DTYPE_FP32,
    DTYPE_BF16,
    DTYPE_FP16,
    DTYPES
};

/* Of one element. */
size_t dtype_bytes(enum dtype type);

/* "fp32", "bf16", "fp16"; static strings. */
const char *dtype_text(enum dtype type);

/* The largest finite number. */
double dtype_largest(enum dtype type);

/* One number at a time, by its bits; exact in the widening direction. */
float dtype_from_bf16(uint16_t bits);
uint16_t dtype_to_bf16(float number);
float dtype_from_fp16(uint16_t bits);
uint16_t dtype_to_fp16(float number);

/* `number` as it comes back from a tensor of `type`. */
float dtype_round(enum dtype type, float number);

/* The address of element `index` of a tensor of `type`. */
static inline void *dtype_at(void *tensor, enum dtype type, size_t index)
{
    return (unsigned char *)tensor + index * dtype_bytes(type);
}

static inline const void *dtype_const_at(const void *tensor, enum dtype type, size_t index)
{
    return (const unsigned char *)tensor + index * dtype_bytes(type);
}

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_DTYPE_H */
