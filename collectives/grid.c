#include "collectives/grid.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"

static const char *const group_texts[GRID_GROUPS] = {
#define X(name, text) text,
    GRID_GROUP_TABLE(X)
#undef X
};

/* Places along one axis: those of one group, `stride` apart, and those where a group begins. */
struct axis {
    int32_t members;
    int32_t stride;
    int32_t origins;
};

struct axes {
    struct axis tp;
    struct axis dp;
    struct axis pp;
};

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

const char *grid_place_text(const struct grid_shape *shape, int32_t rank, char *text,
                            size_t text_bytes)
{
    int32_t stage = rank / (shape->tp * shape->dp);
    char shard[24] = "";
    char replica[24] = "";

    if (shape->tp > 1) {
        (void)snprintf(shard, sizeof(shard), ", shard %" PRId32, rank % shape->tp);
    }
    if (shape->dp > 1) {
        (void)snprintf(replica, sizeof(replica), ", replica %" PRId32,
                       rank / shape->tp % shape->dp);
    }
    (void)snprintf(text, text_bytes, "stage %" PRId32 "%s%s", stage, shard, replica);
    return text;
}

int32_t grid_stage_rank(const struct grid *grid, int32_t pp)
{
    return grid_rank_of(&grid->shape, pp, grid->tp, grid->dp);
}

const char *grid_group_text(enum grid_group group)
{
    ENSURE((unsigned)group < GRID_GROUPS, "no kind of group %d", (int)group);
    return group_texts[group];
}

static struct axes axes_of(const struct grid_shape *shape, enum grid_group group)
{
    /* One place of each axis a group, each place in a group of its own. */
    struct axes axes = {
        .tp = {.members = 1, .stride = 1, .origins = shape->tp},
        .dp = {.members = 1, .stride = 1, .origins = shape->dp},
        .pp = {.members = 1, .stride = 1, .origins = shape->pp},
    };
    const struct axis all_tp = {.members = shape->tp, .stride = 1, .origins = 1};
    const struct axis all_dp = {.members = shape->dp, .stride = 1, .origins = 1};
    const struct axis all_pp = {.members = shape->pp, .stride = 1, .origins = 1};

    switch (group) {
    case GRID_TENSOR:
        axes.tp = all_tp;
        break;
    case GRID_DATA:
        axes.dp = all_dp;
        break;
    case GRID_PIPELINE:
        axes.pp = all_pp;
        break;
    case GRID_MODEL_PARALLEL:
        axes.tp = all_tp;
        axes.pp = all_pp;
        break;
    case GRID_EMBEDDING:
        axes.pp.origins = 1;
        if (shape->pp > 1) {
            axes.pp.members = 2;
            axes.pp.stride = shape->pp - 1;
        }
        break;
    case GRID_POSITION_EMBEDDING:
        axes.pp.origins = 1;
        break;
    case GRID_GROUPS:
        break;
    }
    return axes;
}

int32_t grid_group_size(const struct grid_shape *shape, enum grid_group group)
{
    struct axes axes = axes_of(shape, group);

    return axes.tp.members * axes.dp.members * axes.pp.members;
}

int32_t grid_group_count(const struct grid_shape *shape, enum grid_group group)
{
    struct axes axes = axes_of(shape, group);

    return axes.tp.origins * axes.dp.origins * axes.pp.origins;
}

int32_t grid_group_at(const struct grid_shape *shape, enum grid_group group, int32_t index,
                      int32_t *ranks_out)
{
    struct axes axes = axes_of(shape, group);
    int32_t tp = index % axes.tp.origins;
    int32_t dp = index / axes.tp.origins % axes.dp.origins;
    int32_t pp = index / axes.tp.origins / axes.dp.origins;
    int32_t count = 0;

    ENSURE(index >= 0 && index < grid_group_count(shape, group), "no %s group %d",
           grid_group_text(group), index);
    for (int32_t p = 0; p < axes.pp.members; p++) {
        for (int32_t d = 0; d < axes.dp.members; d++) {
            for (int32_t t = 0; t < axes.tp.members; t++) {
                ranks_out[count++] = grid_rank_of(shape, pp + p * axes.pp.stride,
                                                  tp + t * axes.tp.stride, dp + d * axes.dp.stride);
            }
        }
    }
    return count;
}

int32_t grid_group_ranks(const struct grid *grid, enum grid_group group, int32_t *ranks_out)
{
    struct axes axes = axes_of(&grid->shape, group);
    int32_t tp = axes.tp.origins > 1 ? grid->tp : 0;
    int32_t dp = axes.dp.origins > 1 ? grid->dp : 0;
    int32_t pp = axes.pp.origins > 1 ? grid->pp : 0;
    bool inside = axes.pp.origins > 1 ||
                  (grid->pp % axes.pp.stride == 0 && grid->pp / axes.pp.stride < axes.pp.members);

    if (!inside) {
        return 0;
    }
    return grid_group_at(&grid->shape, group, tp + axes.tp.origins * (dp + axes.dp.origins * pp),
                         ranks_out);
}
