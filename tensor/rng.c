#include "tensor/rng.h"

#include <math.h>

#include "base/check.h"

#define PHILOX_ROUNDS 10

/* Rounds of the permutation's Feistel network; four are enough for a pseudo-random permutation
 * of large sets, and small halves mix slower. */
#define FEISTEL_ROUNDS 8

static const double two_pi = 6.283185307179586476925286766559;

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t even = (uint64_t)0xD2511F53U * x[0];
        const uint64_t odd = (uint64_t)0xCD9E8D57U * x[2];
        x[0] = (uint32_t)(odd >> 32) ^ x[1] ^ k[0];
        x[1] = (uint32_t)odd;
        x[2] = (uint32_t)(even >> 32) ^ x[3] ^ k[1];
        x[3] = (uint32_t)even;
        k[0] += 0x9E3779B9U;
        k[1] += 0xBB67AE85U;
    }
    for (int i = 0; i < 4; i++) {
        out[i] = x[i];
    }
}

/* Block `index` of a purpose: 128 bits as two words. */
static void purpose_block(const struct rng_purpose *purpose, uint64_t index, uint64_t words[2])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), purpose->site,
                                 purpose->layer};
    const uint32_t key[2] = {(uint32_t)purpose->seed, (uint32_t)(purpose->seed >> 32)};
    uint32_t out[4];

    rng_philox(counter, key, out);
    words[0] = out[0] | (uint64_t)out[1] << 32;
    words[1] = out[2] | (uint64_t)out[3] << 32;
}

uint64_t rng_uniform(const struct rng_purpose *purpose, uint64_t index)
{
    uint64_t words[2];

    purpose_block(purpose, index / 2, words);
    return words[index % 2];
}

/* Elements 2·index and 2·index + 1 of the standard normal distribution. */
static void normal_pair(const struct rng_purpose *purpose, uint64_t index, double pair[2])
{
    uint64_t words[2];

    purpose_block(purpose, index, words);
    /* The upper 53 bits; (0, 1] for the logarithm, [0, 1) for the angle. */
    const double radial = ((double)(words[0] >> 11) + 1.0) * 0x1p-53;
    const double angle = two_pi * ((double)(words[1] >> 11) * 0x1p-53);
    const double radius = sqrt(-2.0 * log(radial));
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}

void rng_fill_normal(const struct rng_purpose *purpose, uint64_t first, size_t count, float std,
                     float *out)
{
    double pair[2] = {0.0, 0.0};

    for (size_t i = 0; i < count; i++) {
        const uint64_t element = first + i;
        if (i == 0 || element % 2 == 0) {
            normal_pair(purpose, element / 2, pair);
        }
        out[i] = (float)((double)std * pair[element % 2]);
    }
}

/* What one order's network needs: a key and two words that no other epoch has. */
struct order {
    uint32_t key[2];
    uint32_t tail[2];
    uint32_t half_bits; /* in [1, 32]: the network permutes 0 … 4^half_bits - 1 */
    uint32_t half_mask;
};

static void order_init(struct order *order, const struct rng_purpose *purpose, uint64_t epoch,
                       uint64_t count)
{
    const uint32_t counter[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), purpose->site,
                                 purpose->layer};
    const uint32_t seed[2] = {(uint32_t)purpose->seed, (uint32_t)(purpose->seed >> 32)};
    uint32_t derived[4];
    uint32_t bits = 2;

    rng_philox(counter, seed, derived);
    while (bits < 64 && (count - 1) >> bits != 0) {
        bits += 2;
    }
    order->key[0] = derived[0];
    order->key[1] = derived[1];
    order->tail[0] = derived[2];
    order->tail[1] = derived[3];
    order->half_bits = bits / 2;
    order->half_mask = UINT32_MAX >> (32 - order->half_bits);
}

static uint64_t order_walk(const struct order *order, uint64_t place)
{
    uint32_t left = (uint32_t)(place >> order->half_bits);
    uint32_t right = (uint32_t)place & order->half_mask;

    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        const uint32_t counter[4] = {right, round, order->tail[0], order->tail[1]};
        uint32_t mixed[4];
        rng_philox(counter, order->key, mixed);
        const uint32_t next = left ^ (mixed[0] & order->half_mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << order->half_bits | right;
}

uint64_t rng_permute(const struct rng_purpose *purpose, uint64_t epoch, uint64_t count,
                     uint64_t index)
{
    struct order order;
    uint64_t place = index;

    order_init(&order, purpose, epoch, count);
    /* The network permutes less than four times `count` places; following its cycle until it
     * comes back below `count` permutes those, and takes less than four steps on average. */
    do {
        place = order_walk(&order, place);
    } while (place >= count);
    return place;
}

struct rng_mask rng_mask_of(uint64_t seed, uint32_t site, uint32_t layer, uint64_t sample)
{
    const struct rng_purpose purpose = {.seed = seed, .site = site, .layer = layer};
    uint64_t words[2];

    purpose_block(&purpose, sample, words);
    return (struct rng_mask){.key = words[0]};
}

uint16_t rng_mask_number(struct rng_mask mask, uint64_t element)
{
    const uint64_t block = element / 8;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)mask.key, (uint32_t)(mask.key >> 32)};
    uint32_t out[4];

    rng_philox(counter, key, out);
    return (uint16_t)(out[element % 8 / 2] >> 16 * (element % 2));
}

uint32_t rng_mask_threshold(double p)
{
    const double nearest = floor(p * 65536.0 + 0.5);

    ENSURE(p >= 0.0 && p < 1.0, "dropout probability %g, expected [0, 1)", p);
    return nearest < 65535.0 ? (uint32_t)nearest : 65535U;
}

float rng_mask_scale(uint32_t threshold)
{
    return (float)(65536.0 / (65536.0 - (double)threshold));
}
