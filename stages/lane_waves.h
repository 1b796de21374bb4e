/*
 * lane_waves -- an order in which all pairs of ranks that lanes join can be joined, many at a time.
 *
 * A wave is a set of pairs of pipeline ranks of which no two share a rank, so that one call of all ranks can make what
 * every pair of the wave needs (collectives/cuda/comm_nccl.h). All ranks know the plan, so all find the same waves: pairs
 * in the order of the boundaries between virtual stages, each in the first wave that has neither of its ranks. A chain
 * takes two waves, a ring of an odd number of ranks three.
 */
#ifndef STAGES_LANE_WAVES_H
#define STAGES_LANE_WAVES_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lane_pair {
    int32_t low; /* pipeline ranks, low < high */
    int32_t high;
    int32_t wave;
};

struct lane_waves {
    struct lane_pair *pairs; /* owns */
    int32_t pair_count;
    int32_t count; /* waves */
};

/* Of the ranks of `stages` virtual stages, in model order: neighbours on two ranks are a pair, once. */
enum status lane_waves_init(struct lane_waves *waves, const int32_t *rank_of, int32_t stages);

/* The wave of a pair, in either order; the pair is there (ENSURE). */
int32_t lane_waves_of(const struct lane_waves *waves, int32_t rank, int32_t other);

/* Safe on zeroed waves, and twice. */
void lane_waves_release(struct lane_waves *waves);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_LANE_WAVES_H */
