#include "stages/model/shape.h"

#include "tensor/rng.h"

/* Nothing is padded: a vocabulary that tp does not divide leaves the last shards with fewer rows,
 * or none. */
static void split_vocabulary(struct model_shape *shape)
{
    size_t part = (shape->V + shape->shards - 1) / shape->shards;
    size_t end = (shape->shard + 1) * part;

    shape->first_token = shape->shard * part < shape->V ? shape->shard * part : shape->V;
    shape->vocab = (end < shape->V ? end : shape->V) - shape->first_token;
}

static void cut_sequence(struct model_shape *shape, size_t slices)
{
    shape->sequence = shape->T;
    slices_cut(&shape->slices, slices, shape->sequence, shape->C, shape->F);
    shape->T = slices_longest(&shape->slices);
}

void model_shape_of(const struct config *config, int32_t shard, struct model_shape *shape_out)
{
    const struct config_model *model = &config->model;
    size_t tp = (size_t)config->parallel.tp;

    *shape_out = (struct model_shape){
        .B = (size_t)config->train.micro_batch_size,
        .T = (size_t)model->seq_len,
        .C = (size_t)model->hidden_size,
        .H = (size_t)model->num_heads,
        .D = (size_t)(model->hidden_size / model->num_heads),
        .F = (size_t)model->ffn_hidden_size,
        .V = (size_t)model->vocab_size,
        .L = (size_t)model->num_layers,
        .positions = (size_t)model->max_positions,
        .types = (size_t)model->num_tokentypes,
        .tied = model->tied_embeddings,
        .shards = tp,
        .shard = (size_t)shard,
        .heads = (size_t)model->num_heads / tp,
        .width = (size_t)model->hidden_size / tp,
        .inner = (size_t)model->ffn_hidden_size / tp,
        .splits_rows = config_splits_rows(config),
        .type = config->precision.dtype,
        .drop_below = rng_mask_threshold(model->dropout),
        .seed = config->train.seed,
        .eps = (float)model->layer_norm_eps,
        .init_std = (float)model->init_std,
    };
    split_vocabulary(shape_out);
    cut_sequence(shape_out, (size_t)config->parallel.sequence_slices);
}

void model_shape_enter(struct model_shape *shape, size_t slice)
{
    shape->first = shape->slices.first[slice];
    shape->T = shape->slices.first[slice + 1] - shape->first;
}

size_t model_rows(const struct model_shape *shape)
{
    return shape->B * shape->T;
}

size_t model_own_rows(const struct model_shape *shape)
{
    return shape->splits_rows ? model_rows(shape) / shape->shards : model_rows(shape);
}

size_t model_first_row(const struct model_shape *shape)
{
    return shape->splits_rows ? shape->shard * model_own_rows(shape) : 0;
}

size_t model_message_bytes(const struct model_shape *shape)
{
    return model_own_rows(shape) * shape->C * dtype_bytes(shape->type);
}

void *model_take(const struct model_shape *shape, struct arena *arena, size_t elems)
{
    return arena_take(arena, elems, dtype_bytes(shape->type));
}

void chunk_range_of(const struct config *config, int32_t virtual_stage,
                    struct chunk_range *range_out)
{
    int64_t stages = config->parallel.pp * config->parallel.virtual_stages;
    int64_t first = 0;

    for (int32_t s = 0; s < virtual_stage; s++) {
        first += config->parallel.layers_per_stage[s];
    }
    *range_out = (struct chunk_range){
        .first_layer = (int32_t)first,
        .layers = (int32_t)config->parallel.layers_per_stage[virtual_stage],
        .has_embedding = virtual_stage == 0,
        .has_head = virtual_stage == stages - 1,
        .recompute = config->train.recompute[virtual_stage],
    };
}

static uint64_t layer_parameters(const struct model_shape *shape)
{
    uint64_t C = shape->C;
    uint64_t F = shape->F;

    return 4 * C * C + 2 * C * F /* matrices */ + 9 * C + F /* biases and norms */;
}

uint64_t model_parameters(const struct model_shape *shape)
{
    return (uint64_t)(shape->V + shape->positions + shape->types) * shape->C +
           (uint64_t)shape->L * layer_parameters(shape) + 2 * (uint64_t)shape->C +
           (shape->tied ? 0 : (uint64_t)shape->V * shape->C);
}

double model_flops_per_token(const struct model_shape *shape)
{
    /* Tables that are looked up cost nothing; the head's product does. */
    double weights = (double)model_parameters(shape) -
                     (double)(shape->positions + shape->types) * (double)shape->C -
                     (shape->tied ? 0.0 : (double)shape->V * (double)shape->C);

    return 6.0 * weights + 12.0 * (double)shape->L * (double)shape->C * (double)shape->sequence;
}
