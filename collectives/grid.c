#include "collectives/grid.h"

#include <inttypes.h>

#include "base/check.h"

enum status grid_init(struct grid *grid, const struct grid_shape *shape, int32_t rank,
                      int32_t world)
{
    bool positive = shape->pp >= 1 && shape->tp >= 1 && shape->dp >= 1;
    int64_t pipelines = positive ? (int64_t)shape->tp * shape->dp : 0;

    if (!positive) {
        return status_fail(STATUS_ERR_REFUSED,
                           "grid: pp, tp and dp must be at least 1, but are pp %" PRId32
                           ", tp %" PRId32 ", dp %" PRId32,
                           shape->pp, shape->tp, shape->dp);
    }
    /* Divides instead of multiplying, so that no product of three extents can overflow. */
    if (pipelines > world || world % pipelines != 0 || world / pipelines != shape->pp) {
        return status_fail(STATUS_ERR_REFUSED,
                           "grid: pp %" PRId32 " x tp %" PRId32 " x dp %" PRId32
                           " makes %.0f ranks, but the job has %" PRId32
                           "; start as many processes as the product says, or change an extent",
                           shape->pp, shape->tp, shape->dp, (double)pipelines * shape->pp, world);
    }
    if (rank < 0 || rank >= world) {
        return status_fail(STATUS_ERR_REFUSED,
                           "grid: rank %" PRId32 " is not in a job of %" PRId32
                           " ranks, which are 0 to %" PRId32,
                           rank, world, world - 1);
    }
    grid->shape = *shape;
    grid->rank = rank;
    grid->tp = rank % shape->tp;
    grid->dp = rank / shape->tp % shape->dp;
    grid->pp = (int32_t)(rank / pipelines);
    return STATUS_OK;
}

int32_t grid_rank_of(const struct grid_shape *shape, int32_t pp, int32_t tp, int32_t dp)
{
    ENSURE(pp >= 0 && pp < shape->pp && tp >= 0 && tp < shape->tp && dp >= 0 && dp < shape->dp,
           "no rank lies at pp %d, tp %d, dp %d", pp, tp, dp);
    return tp + shape->tp * (dp + shape->dp * pp);
}

int32_t grid_stage_rank(const struct grid *grid, int32_t pp)
{
    return grid_rank_of(&grid->shape, pp, grid->tp, grid->dp);
}
