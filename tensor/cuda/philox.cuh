/*
 * philox -- the 16-bit numbers of a dropout mask (rng_mask, tensor/rng.h), made where they are needed.
 *
 * The same bits as rng_mask_of() and rng_mask_number(). A thread makes the eight numbers of a counter at once;
 * which elements it takes is best chosen so that it uses all of them:
 *
 *     uint64_t key = mask_key(seed, site, layer, sample);
 *     mask_numbers numbers(key, element / 8);
 *     bool kept = numbers.at(element % 8) >= threshold;
 */
#ifndef TENSOR_CUDA_PHILOX_CUH
#define TENSOR_CUDA_PHILOX_CUH

#include "tensor/cuda/kernel.cuh"

/* Of one counter. */
#define MASK_NUMBERS 8

/* Ten rounds of Philox4x32. */
static __device__ __forceinline__ uint4 philox(uint4 counter, uint64_t key)
{
    uint4 x = counter;
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);

    UNROLL
    for (int round = 0; round < 10; round++) {
        uint64_t even = (uint64_t)0xD2511F53U * x.x;
        uint64_t odd = (uint64_t)0xCD9E8D57U * x.z;

        x = uint4{(uint32_t)(odd >> 32) ^ x.y ^ k0, (uint32_t)odd,
                  (uint32_t)(even >> 32) ^ x.w ^ k1, (uint32_t)even};
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return x;
}

/* What rng_mask_of() gives for a sample: once for many counters. */
static __device__ __forceinline__ uint64_t mask_key(uint64_t seed, uint32_t site, uint32_t layer,
                                                    uint64_t sample)
{
    uint4 words = philox(uint4{(uint32_t)sample, (uint32_t)(sample >> 32), site, layer}, seed);

    return words.x | (uint64_t)words.y << 32;
}

/* The numbers of elements 8 · counter to 8 · counter + 7. */
struct mask_numbers {
    uint32_t words[MASK_NUMBERS / 2];

    __device__ __forceinline__ mask_numbers(uint64_t key, uint64_t counter)
    {
        uint4 made = philox(uint4{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}, key);

        words[0] = made.x;
        words[1] = made.y;
        words[2] = made.z;
        words[3] = made.w;
    }

    /* A constant `i` in [0, 8) costs nothing. */
    __device__ __forceinline__ uint32_t at(unsigned i) const
    {
        return words[i / 2] >> (16 * (i % 2)) & 0xFFFFU;
    }
};

#endif /* TENSOR_CUDA_PHILOX_CUH */
