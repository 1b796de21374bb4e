/*
 * philox -- the 16-bit numbers of a dropout mask (rng_mask, tensor/rng.h), many at once.
 *
 * The same numbers as rng_mask_number() gives one by one, with the counters of several blocks side
 * by side in a register. A multiplication of 32 by 32 to 64 bits in each 64-bit lane is the one
 * operation that the compiler's vector types cannot say, so it is an intrinsic where there is one.
 * For kernel files (*_cpu.c) only; inlined there, as math_cpu.h is.
 */
#ifndef TENSOR_KERNELS_PHILOX_CPU_H
#define TENSOR_KERNELS_PHILOX_CPU_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "tensor/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of one counter, and counters in one register. */
#define PHILOX_NUMBERS 8
#ifdef __AVX2__
#define PHILOX_LANES 4
#else
#define PHILOX_LANES 2
#endif

/* Numbers that are made together. */
#define PHILOX_GROUP ((size_t)(2 * PHILOX_LANES * PHILOX_NUMBERS))

typedef uint64_t philox_lanes __attribute__((vector_size(8 * PHILOX_LANES)));

/* The product of the lower halves of each lane. */
static inline philox_lanes philox_product(philox_lanes a, philox_lanes b)
{
#if defined(__AVX2__)
    return (philox_lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (philox_lanes)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xFFFFFFFFU) * (b & 0xFFFFFFFFU);
#endif
}

/* A counter a lane; what is in the upper halves counts for nothing. */
struct philox_state {
    philox_lanes word[4];
};

static inline philox_lanes philox_all(uint64_t number)
{
    const philox_lanes zero = {0};

    return zero + number;
}

/* Counters block, block + 1, ... */
__attribute__((always_inline)) static inline struct philox_state philox_counters(uint64_t block)
{
#if PHILOX_LANES == 4
    const philox_lanes steps = {0, 1, 2, 3};
#else
    const philox_lanes steps = {0, 1};
#endif
    const philox_lanes counter = steps + block;

    return (struct philox_state){{counter, counter >> 32, philox_all(0), philox_all(0)}};
}

__attribute__((always_inline)) static inline struct philox_state
philox_round(struct philox_state x, philox_lanes even_key, philox_lanes odd_key)
{
    const philox_lanes even = philox_product(x.word[0], philox_all(0xD2511F53U));
    const philox_lanes odd = philox_product(x.word[2], philox_all(0xCD9E8D57U));

    return (struct philox_state){
        {(odd >> 32) ^ x.word[1] ^ even_key, odd, (even >> 32) ^ x.word[3] ^ odd_key, even}};
}

/* The 128 bits of each lane, lane by lane. */
__attribute__((always_inline)) static inline void philox_store(uint16_t *numbers,
                                                               const struct philox_state *x)
{
    const philox_lanes low = (x->word[0] & philox_all(0xFFFFFFFFU)) | x->word[1] << 32;
    const philox_lanes high = (x->word[2] & philox_all(0xFFFFFFFFU)) | x->word[3] << 32;
#if PHILOX_LANES == 4
    const philox_lanes first = __builtin_shufflevector(low, high, 0, 4, 1, 5);
    const philox_lanes second = __builtin_shufflevector(low, high, 2, 6, 3, 7);
#else
    const philox_lanes first = __builtin_shufflevector(low, high, 0, 2);
    const philox_lanes second = __builtin_shufflevector(low, high, 1, 3);
#endif

    memcpy(numbers, &first, sizeof(first));
    memcpy(numbers + sizeof(first) / sizeof(*numbers), &second, sizeof(second));
}

/* The keys of the ten rounds, in every lane; made once for a mask. */
struct philox_keys {
    philox_lanes even[10];
    philox_lanes odd[10];
};

static inline void philox_keys_init(struct philox_keys *keys, struct rng_mask mask)
{
    for (uint32_t round = 0; round < 10; round++) {
        keys->even[round] = philox_all((uint32_t)mask.key + round * 0x9E3779B9U);
        keys->odd[round] = philox_all((uint32_t)(mask.key >> 32) + round * 0xBB67AE85U);
    }
}

/* The PHILOX_GROUP numbers of counters block, block + 1, ...; two registers of counters hide each
 * other's waiting. */
__attribute__((always_inline)) static inline void
philox_group(uint16_t *numbers, const struct philox_keys *keys, uint64_t block)
{
    struct philox_state a = philox_counters(block);
    struct philox_state b = philox_counters(block + PHILOX_LANES);

#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        a = philox_round(a, keys->even[round], keys->odd[round]);
        b = philox_round(b, keys->even[round], keys->odd[round]);
    }
    philox_store(numbers, &a);
    philox_store(numbers + PHILOX_GROUP / 2, &b);
}

/* numbers (count) = those of elements first, first + 1, ... of the mask with these keys; any first
 * and count, fastest where `first` is a multiple of PHILOX_NUMBERS and `count` of PHILOX_GROUP. */
static inline void philox_numbers(uint16_t *numbers, const struct philox_keys *keys, uint64_t first,
                                  size_t count)
{
    const size_t skip = (size_t)(first % PHILOX_NUMBERS);
    uint64_t block = first / PHILOX_NUMBERS;
    uint16_t group[PHILOX_GROUP];
    size_t done = 0;

    if (skip != 0) {
        done = PHILOX_GROUP - skip < count ? PHILOX_GROUP - skip : count;
        philox_group(group, keys, block);
        memcpy(numbers, group + skip, done * sizeof(*numbers));
        block += PHILOX_GROUP / PHILOX_NUMBERS;
    }
    for (; done + PHILOX_GROUP <= count; done += PHILOX_GROUP) {
        philox_group(numbers + done, keys, block);
        block += PHILOX_GROUP / PHILOX_NUMBERS;
    }
    if (done < count) {
        philox_group(group, keys, block);
        memcpy(numbers + done, group, (count - done) * sizeof(*numbers));
    }
}

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_KERNELS_PHILOX_CPU_H */
