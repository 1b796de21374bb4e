/*
 * typed -- tensors in a 16-bit format, read and written as blocks of fp32.
 *
 * A kernel is one source for all formats: it reads a block with typed_read(), computes in fp32
 * where typed_place() tells it to, and ends with typed_keep(). In fp32 those are the tensors
 * themselves, nothing is copied, and one block is as long as the row; in a 16-bit format they are
 * small buffers of the caller, so that a block is widened once and rounded once. The bits are those
 * of tensor/dtype.h.
 *
 *     for (size_t c = 0; c < C; c += step) {              step = typed_step(type, C)
 *         size_t elems = typed_elems(c, C, step);
 *         const float *in = typed_read(row_in, type, c, elems, read);
 *         float *out = typed_place(row_out, type, c, result);
 *         ... out[i] = f(in[i]) for i < elems ...
 *         typed_keep(row_out, type, c, elems, result);
 *     }
 *
 * For kernel files (*_cpu.c) only; inlined there, as math_cpu.h is.
 */
#ifndef TENSOR_KERNELS_TYPED_CPU_H
#define TENSOR_KERNELS_TYPED_CPU_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "tensor/dtype.h"
#include "tensor/kernels/math_cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of a block in a 16-bit format, and of the buffers it goes through. */
#define TYPED_BLOCK 1024

static inline uint32_t typed_narrow_bf16(float number)
{
    const uint32_t bits = math_bits(number);
    const uint32_t nearest = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x0040U;

    return (bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : nearest;
}

/* Without a branch, for the vectoriser: the multiplication moves the exponent of what is finite and
 * normalizes what is subnormal. */
static inline float typed_widen_fp16(uint16_t bits)
{
    const uint32_t magnitude = (uint32_t)bits & 0x7FFFU;
    const uint32_t finite = math_bits(math_from_bits(magnitude << 13) * 0x1p112F);
    const uint32_t quiet = magnitude > 0x7C00U ? 0x00400000U : 0U;
    const uint32_t special = 0x7F800000U | quiet | (magnitude << 13);

    return math_from_bits(((uint32_t)bits & 0x8000U) << 16 |
                          (magnitude >= 0x7C00U ? special : finite));
}

/* The same, of the cases of dtype_to_fp16(): all are computed, one is taken. */
static inline uint32_t typed_narrow_fp16(float number)
{
    const uint32_t bits = math_bits(number);
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    const uint32_t normal = (magnitude - 0x37FFF001U + ((magnitude >> 13) & 1U)) >> 13;
    const uint32_t subnormal = math_bits(math_from_bits(magnitude) + 0.5F) - 0x3F000000U;
    const uint32_t quiet = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
    uint32_t result = magnitude < 0x38800000U ? subnormal : normal;

    result = magnitude >= 0x477FF000U ? 0x7C00U : result;
    result = magnitude > 0x7F800000U ? quiet : result;
    return ((bits >> 16) & 0x8000U) | result;
}

static inline void typed_load_bf16(float *restrict out, const uint16_t *restrict in, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        out[i] = math_from_bits((uint32_t)in[i] << 16);
    }
}

static inline void typed_store_bf16(uint16_t *restrict out, const float *restrict in, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        out[i] = (uint16_t)typed_narrow_bf16(in[i]);
    }
}

static inline void typed_load_fp16(float *restrict out, const uint16_t *restrict in, size_t elems)
{
    size_t i = 0;

#ifdef __F16C__
    for (; i + 8 <= elems; i += 8) {
        __m128i halves;
        memcpy(&halves, in + i, sizeof(halves));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
    }
#endif
    for (; i < elems; i++) {
        out[i] = typed_widen_fp16(in[i]);
    }
}

static inline void typed_store_fp16(uint16_t *restrict out, const float *restrict in, size_t elems)
{
    size_t i = 0;

#ifdef __F16C__
    for (; i + 8 <= elems; i += 8) {
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        memcpy(out + i, &halves, sizeof(halves));
    }
#endif
    for (; i < elems; i++) {
        out[i] = (uint16_t)typed_narrow_fp16(in[i]);
    }
}

/* out (elems) = elements [first, first + elems) of `tensor`. */
__attribute__((always_inline)) static inline void
typed_load(float *restrict out, const void *tensor, enum dtype type, size_t first, size_t elems)
{
    if (type == DTYPE_FP32) {
        memcpy(out, (const float *)tensor + first, elems * sizeof(*out));
    } else if (type == DTYPE_BF16) {
        typed_load_bf16(out, (const uint16_t *)tensor + first, elems);
    } else {
        typed_load_fp16(out, (const uint16_t *)tensor + first, elems);
    }
}

/* Elements [first, first + elems) of `tensor` = in (elems), rounded. */
__attribute__((always_inline)) static inline void
typed_store(void *tensor, enum dtype type, size_t first, const float *restrict in, size_t elems)
{
    if (type == DTYPE_FP32) {
        memcpy((float *)tensor + first, in, elems * sizeof(*in));
    } else if (type == DTYPE_BF16) {
        typed_store_bf16((uint16_t *)tensor + first, in, elems);
    } else {
        typed_store_fp16((uint16_t *)tensor + first, in, elems);
    }
}

/* The same out of line, for formats that are no constants: the loops of fp32 stay short. */
__attribute__((noinline, unused)) static void typed_load_block(float *restrict out,
                                                               const void *tensor, enum dtype type,
                                                               size_t first, size_t elems)
{
    typed_load(out, tensor, type, first, elems);
}

__attribute__((noinline, unused)) static void typed_store_block(void *tensor, enum dtype type,
                                                                size_t first,
                                                                const float *restrict in,
                                                                size_t elems)
{
    typed_store(tensor, type, first, in, elems);
}

/* How long the blocks of a row of `elems` are; at least 1. */
static inline size_t typed_step(enum dtype type, size_t elems)
{
    return type != DTYPE_FP32 || elems == 0 ? TYPED_BLOCK : elems;
}

/* Elements of the block at `first`. */
static inline size_t typed_elems(size_t first, size_t elems, size_t step)
{
    return elems - first < step ? elems - first : step;
}

/* The elements [first, first + elems) in fp32: in place, or in `buffer` (TYPED_BLOCK). */
static inline const float *typed_read(const void *tensor, enum dtype type, size_t first,
                                      size_t elems, float *buffer)
{
    if (type == DTYPE_FP32) {
        return (const float *)tensor + first;
    }
    typed_load_block(buffer, tensor, type, first, elems);
    return buffer;
}

/* Where elements `first` and following are to be computed: in place, or in `buffer`. */
static inline float *typed_place(void *tensor, enum dtype type, size_t first, float *buffer)
{
    return type == DTYPE_FP32 ? (float *)tensor + first : buffer;
}

/* Ends what typed_place() began. */
static inline void typed_keep(void *tensor, enum dtype type, size_t first, size_t elems,
                              const float *buffer)
{
    if (type != DTYPE_FP32) {
        typed_store_block(tensor, type, first, buffer, elems);
    }
}

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_TYPED_CPU_H */
