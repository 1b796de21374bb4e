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

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_RNG_H */
