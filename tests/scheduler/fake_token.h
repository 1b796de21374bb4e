/*
 * fake_token -- what the operations of the fake worker compute: hashes in place of tensors.
 */
#ifndef TESTS_SCHEDULER_FAKE_TOKEN_H
#define TESTS_SCHEDULER_FAKE_TOKEN_H

#include <stdint.h>

enum fake_role {
    FAKE_DATA,     /* input of virtual stage 0 */
    FAKE_OUTPUT,   /* of F */
    FAKE_STASH,    /* what F keeps for the backward */
    FAKE_HEAD,     /* what the fused head keeps as the gradient of its input */
    FAKE_INPUT,    /* dX, of I */
    FAKE_GRADIENT, /* the dY set that I leaves to W */
    FAKE_WEIGHT,   /* one addition of W */
    FAKE_SYNC      /* the head's gradient on its way to the owner */
};

#define FAKE_POISON UINT64_C(0xDEADDEADDEADDEAD)

/* Spreads every bit of its argument over the result. */
static inline uint64_t fake_mix(uint64_t value)
{
    value += UINT64_C(0x9E3779B97F4A7C15);
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

/* The result of an operation on up to three inputs. */
static inline uint64_t fake_token(enum fake_role role, int32_t virtual_stage, int32_t microbatch,
                                  uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t value = fake_mix((uint64_t)role);

    value = fake_mix(value ^ (uint64_t)virtual_stage);
    value = fake_mix(value ^ (uint64_t)microbatch);
    value = fake_mix(value ^ a);
    value = fake_mix(value ^ b);
    return fake_mix(value ^ c);
}

/* One addition to a chain: not commutative. */
static inline uint64_t fake_chain(uint64_t chain, uint64_t token)
{
    return fake_mix(fake_mix(chain) ^ token);
}

#endif /* TESTS_SCHEDULER_FAKE_TOKEN_H */
