/*
 * search_draw -- numbers by chance that are the same on every machine (SplitMix64, Steele et al.
 * 2014).
 */
#ifndef SCHEDULER_SEARCH_DRAW_H
#define SCHEDULER_SEARCH_DRAW_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct search_draw {
    uint64_t state; /* any number is a seed */
};

static inline uint64_t search_draw_bits(struct search_draw *draw)
{
    uint64_t bits = draw->state += UINT64_C(0x9e3779b97f4a7c15);

    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* 0 … below-1, below at most 2^31. */
static inline int32_t search_draw_below(struct search_draw *draw, int32_t below)
{
    return (int32_t)(((search_draw_bits(draw) >> 32) * (uint64_t)below) >> 32);
}

/* [0, 1) */
static inline double search_draw_share(struct search_draw *draw)
{
    return (double)(search_draw_bits(draw) >> 11) / 9007199254740992.0;
}

#ifdef __cplusplus
}
#endif

#endif /* SCHEDULER_SEARCH_DRAW_H */
