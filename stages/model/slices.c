#include "stages/model/slices.h"

#include <stdint.h>

/* Of the first n positions together. */
static uint64_t cost_of(size_t n, size_t C, size_t F)
{
    return (uint64_t)n * (4 * C + 2 * F) + (uint64_t)n * (n + 1);
}

/* The n in [low, high] that has the cost nearest to i / count of the whole. */
static size_t find_boundary(size_t low, size_t high, size_t i, size_t count, size_t T, size_t C,
                            size_t F)
{
    uint64_t share = cost_of(T, C, F) * i;
    size_t above = high; /* least that costs the share or more, or `high` */
    size_t below = low;

    while (below < above) {
        size_t middle = below + (above - below) / 2;

        if (cost_of(middle, C, F) * count >= share) {
            above = middle;
        } else {
            below = middle + 1;
        }
    }
    if (above > low &&
        share - cost_of(above - 1, C, F) * count <= cost_of(above, C, F) * count - share) {
        above--;
    }
    return above;
}

void slices_cut(struct slices *slices, size_t count, size_t T, size_t C, size_t F)
{
    slices->count = count;
    slices->first[0] = 0;
    for (size_t i = 1; i < count; i++) {
        slices->first[i] =
            find_boundary(slices->first[i - 1] + 1, T - (count - i), i, count, T, C, F);
    }
    slices->first[count] = T;
}

size_t slices_longest(const struct slices *slices)
{
    size_t longest = 0;

    for (size_t i = 0; i < slices->count; i++) {
        size_t length = slices->first[i + 1] - slices->first[i];

        longest = length > longest ? length : longest;
    }
    return longest;
}
