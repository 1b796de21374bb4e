#include "stages/model/masks.h"

struct dropout masks_at(const struct masks *masks, const struct model_shape *shape, enum site site,
                        int32_t layer)
{
    return (struct dropout){
        .seed = shape->seed,
        .site = (uint32_t)site,
        .layer = (uint32_t)layer,
        .threshold = shape->drop_below,
        .first_sample = masks->first_sample,
        .positions = shape->T,
        .first_row = model_first_row(shape),
        .first_position = shape->first,
    };
}

struct attention_dropout masks_of_attention(const struct masks *masks,
                                            const struct model_shape *shape, int32_t layer)
{
    return (struct attention_dropout){
        .seed = shape->seed,
        .site = SITE_DROPOUT_ATTENTION,
        .layer = (uint32_t)layer,
        .threshold = shape->drop_below,
        .first_sample = masks->first_sample,
        .first_head = shape->shard * shape->heads,
    };
}
