/*
 * masks -- the dropout of one micro-batch: where it is on, and what names its masks.
 *
 * A mask is a function of seed, site, layer, running number of the sample and element of the whole
 * model (tensor/rng.h), so nobody keeps it: the backward and a recompute make it again, every shard
 * has the same one on what all shards have, its own rows' where it has rows of its own, and its own heads' on the attention's weights.
 */
#ifndef STAGES_MODEL_MASKS_H
#define STAGES_MODEL_MASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "stages/model/shape.h"
#include "stages/model/site.h"
#include "tensor/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct masks {
    bool drop;             /* false without dropout, and in evaluation */
    uint64_t first_sample; /* of the micro-batch, counted through the whole run */
};

/* Of this shard's own rows of a tensor of (B,T,C). */
struct dropout masks_at(const struct masks *masks, const struct model_shape *shape, enum site site,
                        int32_t layer);

/* Of the attention's weights, for this shard's heads. */
struct attention_dropout masks_of_attention(const struct masks *masks,
                                            const struct model_shape *shape, int32_t layer);

#ifdef __cplusplus
}
#endif

#endif /* STAGES_MODEL_MASKS_H */
