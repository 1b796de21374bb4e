/*
 * rng -- random numbers as a function of what they are for.
 *
 * Philox4x32-10 (Salmon et al., SC'11): 128 bits of counter and 64 bits of key give 128 random
 * bits, with no state. The counter says what the number is for (parameter, layer, element), the
 * key is the seed; so a weight does not depend on which rank makes it, in which order, or next
 * to what.
 */
#ifndef TENSOR_RNG_H
#define TENSOR_RNG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ten rounds; bit-equal to the published known-answer vectors. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* What a stream of numbers is for. Streams with different purposes share no number. */
struct rng_purpose {
    uint64_t seed;
    uint32_t site;  /* what: a parameter's kind, a dropout site, the data order, ... */
    uint32_t layer; /* which layer, 0 where it has none */
};

/* Elements first … first+count-1 of the purpose's normal distribution N(0, std²), by Box-Muller
 * in double, rounded once to fp32. Any split into calls gives the same numbers. */
void rng_fill_normal(const struct rng_purpose *purpose, uint64_t first, size_t count, float std,
                     float *out);

/* Element `index` of the purpose's uniform 64-bit integers. */
uint64_t rng_uniform(const struct rng_purpose *purpose, uint64_t index);

/* Place of item `index` in a random order of 0 … count-1, a bijection for every (purpose, epoch):
 * a Feistel network with cycle walking, so no array of items exists. count >= 1. */
uint64_t rng_permute(const struct rng_purpose *purpose, uint64_t epoch, uint64_t count,
                     uint64_t index);

/* The 16-bit numbers that decide which elements of one sample a dropout keeps. Element e has number
 * e % 8 of the 128 bits of counter e / 8, lowest bits first, so that any part of a tensor can be
 * asked for alone. kernels/philox_cpu.h makes many at once. */
struct rng_mask {
    uint64_t key;
};

/* Of sample `sample` of the whole run, counted through its epochs, at a site of a layer. Sites of
 * masks are no sites of other purposes. */
struct rng_mask rng_mask_of(uint64_t seed, uint32_t site, uint32_t layer, uint64_t sample);

uint16_t rng_mask_number(struct rng_mask mask, uint64_t element);

/* An element is kept where its number is the threshold or more: round(p · 65536) for dropping with
 * probability p in [0, 1), at most 65535; 0 keeps all. */
uint32_t rng_mask_threshold(double p);

/* What kept elements are multiplied by: 1 / (1 - threshold / 65536). */
float rng_mask_scale(uint32_t threshold);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_RNG_H */
