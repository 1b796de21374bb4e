/*
 * grid -- which rank is which shard: pure arithmetic, no communication.
 *
 * Layout as Megatron's default order tp-dp-pp: rank = tp + TP·(dp + DP·pp). A stage process is
 * the process of one rank: pipeline stage `pp`, TP shard `tp`, replica `dp`.
 */
#ifndef COLLECTIVES_GRID_H
#define COLLECTIVES_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct grid_shape {
    int32_t pp;
    int32_t tp;
    int32_t dp;
};

/* The place of one rank. */
struct grid {
    struct grid_shape shape;
    int32_t rank; /* 0 … pp·tp·dp-1 */
    int32_t pp;
    int32_t tp;
    int32_t dp;
};

/* STATUS_ERR_REFUSED where an extent is < 1 or pp·tp·dp is not `world`, with the product and the
 * world in the message. */
enum status grid_init(struct grid *grid, const struct grid_shape *shape, int32_t rank,
                      int32_t world);

/* The rank at (pp, tp, dp). */
int32_t grid_rank_of(const struct grid_shape *shape, int32_t pp, int32_t tp, int32_t dp);

/* The rank of pipeline stage `pp` in this rank's own pipeline. */
int32_t grid_stage_rank(const struct grid *grid, int32_t pp);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_GRID_H */
