#include "stages/lane_waves.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"

static struct lane_pair pair_of(int32_t rank, int32_t other)
{
    return rank < other ? (struct lane_pair){.low = rank, .high = other}
                        : (struct lane_pair){.low = other, .high = rank};
}

static const struct lane_pair *find(const struct lane_waves *waves, const struct lane_pair *pair)
{
    for (int32_t i = 0; i < waves->pair_count; i++) {
        if (waves->pairs[i].low == pair->low && waves->pairs[i].high == pair->high) {
            return &waves->pairs[i];
        }
    }
    return NULL;
}

static bool share_rank(const struct lane_pair *one, const struct lane_pair *other)
{
    return one->low == other->low || one->low == other->high || one->high == other->low ||
           one->high == other->high;
}

/* Whether a pair of `wave` has a rank of this one. */
static bool is_taken(const struct lane_waves *waves, const struct lane_pair *pair, int32_t wave)
{
    for (int32_t i = 0; i < waves->pair_count; i++) {
        if (waves->pairs[i].wave == wave && share_rank(&waves->pairs[i], pair)) {
            return true;
        }
    }
    return false;
}

static void add(struct lane_waves *waves, struct lane_pair pair)
{
    while (is_taken(waves, &pair, pair.wave)) {
        pair.wave++;
    }
    waves->pairs[waves->pair_count++] = pair;
    waves->count = pair.wave >= waves->count ? pair.wave + 1 : waves->count;
}

enum status lane_waves_init(struct lane_waves *waves, const int32_t *rank_of, int32_t stages)
{
    *waves = (struct lane_waves){.pairs = calloc((size_t)stages, sizeof(*waves->pairs))};
    if (waves->pairs == NULL) {
        return status_fail(STATUS_ERR_NO_MEMORY, "waves of lanes between %d virtual stages",
                           (int)stages);
    }
    for (int32_t stage = 1; stage < stages; stage++) {
        const struct lane_pair pair = pair_of(rank_of[stage - 1], rank_of[stage]);

        if (pair.low != pair.high && find(waves, &pair) == NULL) {
            add(waves, pair);
        }
    }
    return STATUS_OK;
}

int32_t lane_waves_of(const struct lane_waves *waves, int32_t rank, int32_t other)
{
    const struct lane_pair pair = pair_of(rank, other);
    const struct lane_pair *found = find(waves, &pair);

    ENSURE(found != NULL, "the plan has no lane between pipeline ranks %d and %d", (int)rank,
           (int)other);
    return found->wave;
}

void lane_waves_release(struct lane_waves *waves)
{
    free(waves->pairs);
    *waves = (struct lane_waves){0};
}
