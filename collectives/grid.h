/*
 * grid -- which rank is which shard: pure arithmetic, no communication.
 *
 * Layout as Megatron's default order tp-dp-pp: rank = tp + TP·(dp + DP·pp). A stage process is
 * the process of one rank: pipeline stage `pp`, TP shard `tp`, replica `dp`.
 *
 * Groups are Megatron's too. The groups of a kind have one size and share no rank; those of the
 * first four kinds hold every rank, those of the embeddings the ranks of the stages that have a
 * table.
 */
#ifndef COLLECTIVES_GRID_H
#define COLLECTIVES_GRID_H

#include <stdbool.h>
#include <stddef.h>
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

/* "stage 1", with ", shard 0" where tp > 1 and ", replica 2" where dp > 1: how messages name the
 * place of `rank`. Cut to `text_bytes`; returns `text`. */
#define GRID_PLACE_BYTES 64
const char *grid_place_text(const struct grid_shape *shape, int32_t rank, char *text,
                            size_t text_bytes);

/* The rank of pipeline stage `pp` in this rank's own pipeline. */
int32_t grid_stage_rank(const struct grid *grid, int32_t pp);

/* name, text. */
#define GRID_GROUP_TABLE(X)                                                                    \
    X(TENSOR, "tensor")                 /* the shards of a layer */                            \
    X(DATA, "data")                     /* the replicas of a shard */                          \
    X(PIPELINE, "pipeline")             /* the stages of a model */                            \
    X(MODEL_PARALLEL, "model-parallel") /* all ranks of one replica: tp x pp */                \
    X(EMBEDDING, "embedding")           /* first and last stage, which share the word table */ \
    X(POSITION_EMBEDDING, "position embedding") /* first stage */

enum grid_group {
#define X(name, text) GRID_##name,
    GRID_GROUP_TABLE(X)
#undef X
    GRID_GROUPS
};

const char *grid_group_text(enum grid_group group);

/* Ranks of one group of the kind; and how many such groups there are. */
int32_t grid_group_size(const struct grid_shape *shape, enum grid_group group);
int32_t grid_group_count(const struct grid_shape *shape, enum grid_group group);

/* The ranks of group `index`, 0 … grid_group_count() - 1, ascending; returns how many.
 * `ranks_out` has room for grid_group_size(). Groups come in the order of their first ranks. */
int32_t grid_group_at(const struct grid_shape *shape, enum grid_group group, int32_t index,
                      int32_t *ranks_out);

/* The same for the group that this rank is in; 0 where it is in none, as a middle stage is in no
 * group of the embeddings. */
int32_t grid_group_ranks(const struct grid *grid, enum grid_group group, int32_t *ranks_out);

#ifdef __cplusplus
}
#endif

#endif /* COLLECTIVES_GRID_H */
