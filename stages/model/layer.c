#include "stages/model/layer.h"

#include "stages/model/linear.h"
#include "stages/model/own_rows.h"
#include "tensor/kernels.h"

static void carve_stash(struct layer_stash *stash, const struct model_shape *shape, bool costly,
                        bool cheap, struct arena *arena)
{
    size_t N = model_rows(shape);
    size_t n = model_own_rows(shape);
    size_t C = shape->C;
    size_t A = shape->width;

    if (costly) {
        stash->mean1 = arena_take_floats(arena, n);
        stash->rstd1 = arena_take_floats(arena, n);
        stash->qkv = model_take(shape, arena, N * 3 * A);
        stash->mid = model_take(shape, arena, n * C);
        stash->mean2 = arena_take_floats(arena, n);
        stash->rstd2 = arena_take_floats(arena, n);
        stash->inner = model_take(shape, arena, N * shape->inner);
    }
    if (cheap) {
        stash->norm1 = model_take(shape, arena, n * C);
        stash->attention = model_take(shape, arena, N * A);
        stash->lse = arena_take_floats(arena, N * shape->heads);
        stash->norm2 = model_take(shape, arena, n * C);
        stash->gelu = model_take(shape, arena, N * shape->inner);
    }
}

void layer_stash_carve_kept(struct layer_stash *stash, const struct model_shape *shape,
                            enum recompute recompute, struct arena *arena)
{
    carve_stash(stash, shape, recompute < RECOMPUTE_FULL, recompute < RECOMPUTE_SELECTIVE, arena);
}

void layer_stash_carve_again(struct layer_stash *stash, const struct model_shape *shape,
                             enum recompute recompute, struct arena *arena)
{
    carve_stash(stash, shape, recompute >= RECOMPUTE_FULL, recompute >= RECOMPUTE_SELECTIVE, arena);
}

struct layer_stash layer_stash_join(const struct layer_stash *kept, const struct layer_stash *other)
{
    struct layer_stash whole = *other;

    if (kept->qkv != NULL) {
        whole.mean1 = kept->mean1;
        whole.rstd1 = kept->rstd1;
        whole.qkv = kept->qkv;
        whole.mid = kept->mid;
        whole.mean2 = kept->mean2;
        whole.rstd2 = kept->rstd2;
        whole.inner = kept->inner;
    }
    if (kept->norm1 != NULL) {
        whole.norm1 = kept->norm1;
        whole.attention = kept->attention;
        whole.lse = kept->lse;
        whole.norm2 = kept->norm2;
        whole.gelu = kept->gelu;
    }
    return whole;
}

void layer_gradients_carve(struct layer_gradients *gradients, const struct model_shape *shape,
                           struct arena *arena)
{
    size_t N = model_rows(shape);

    gradients->inner = model_take(shape, arena, N * shape->inner);
    gradients->mid = model_take(shape, arena, model_own_rows(shape) * shape->C);
    gradients->qkv = model_take(shape, arena, N * 3 * shape->width);
}

static struct attention_shape attention_shape_of(const struct model_shape *shape)
{
    return (struct attention_shape){
        .batch = shape->B,
        .positions = shape->sequence,
        .heads = shape->heads,
        .head_size = shape->D,
    };
}

static size_t keys_elems(const struct model_shape *shape)
{
    return shape->B * shape->sequence * 2 * shape->width;
}

void layer_keys_carve(struct layer_keys *keys, const struct model_shape *shape, struct arena *arena)
{
    keys->keys = model_take(shape, arena, keys_elems(shape));
}

void layer_key_sums_carve(struct layer_keys *keys, const struct model_shape *shape,
                          struct arena *arena)
{
    keys->dkeys = arena_take_floats(arena, keys_elems(shape));
}

void layer_scratch_carve(struct layer_scratch *scratch, const struct model_shape *shape,
                         const struct kernel_ops *kernels, int threads, struct arena *arena,
                         struct arena *shared)
{
    struct attention_shape attention = attention_shape_of(shape);
    size_t elems = model_rows(shape) * shape->C;

    scratch->hidden = arena_take_floats(shape->shards > 1 ? shared : arena, elems);
    if (shape->splits_rows) {
        scratch->gathered = model_take(shape, shared, elems);
    }
    scratch->attention =
        arena_take_floats(arena, kernels->attention_workspace(&attention, threads));
    scratch->norm = arena_take_floats(arena, kernels->layernorm_partials(shape->C, threads));
    if (shape->drop_below > 0) {
        scratch->dropped = model_take(shape, arena, model_own_rows(shape) * shape->C);
    }
}

/* The four products of a layer. */
static struct linear_shape linear_of(const struct model_shape *shape, size_t K, size_t M)
{
    return (struct linear_shape){.N = model_rows(shape), .K = K, .M = M, .type = shape->type};
}

static struct linear_shape to_qkv(const struct model_shape *shape)
{
    return linear_of(shape, shape->C, 3 * shape->width);
}

static struct linear_shape from_heads(const struct model_shape *shape)
{
    return linear_of(shape, shape->width, shape->C);
}

static struct linear_shape to_inner(const struct model_shape *shape)
{
    return linear_of(shape, shape->C, shape->inner);
}

static struct linear_shape from_inner(const struct model_shape *shape)
{
    return linear_of(shape, shape->inner, shape->C);
}

/* y = x·w + bias + residual with w row-parallel: each shard has a part of the product, the sum is
 * made where all shards can read, in fp32, and bias, mask and residual come once, on own rows. In
 * fp32 without shards it is made in y. */
static enum status project_to_residual(const struct layer *layer, enum site site, void *y,
                                       const void *x, const void *w, const void *bias,
                                       const void *residual, const struct linear_shape *linear)
{
    const struct kernel_ops *kernels = device_kernels(layer->device);
    struct stream *stream = device_stream(layer->device);
    const struct layer_scratch *scratch = layer->scratch;
    enum dtype type = layer->shape->type;
    bool in_place = type == DTYPE_FP32 && scratch->tp->size == 1;
    float *partial = in_place ? y : scratch->hidden;
    size_t rows = model_own_rows(layer->shape);
    float *sum = NULL;

    TRY(linear_forward(partial, DTYPE_FP32, x, w, linear, layer->device));
    TRY(own_rows_sum(layer->shape, scratch, partial, &sum));
    if (layer->masks.drop) {
        struct dropout dropout = masks_at(&layer->masks, layer->shape, site, layer->number);

        return kernels->bias_residual_dropout_forward(y, sum, bias, residual, rows, linear->M,
                                                      &dropout, type, stream);
    }
    return kernels->bias_residual_forward(y, sum, bias, residual, rows, linear->M, type, stream);
}

/* What project_to_residual()'s product gets of own rows of the gradient dy at its output: dy itself, or
 * behind the mask, in scratch. */
static enum status behind_mask(const struct layer *layer, enum site site, const void *dy,
                               const void **dropped_out)
{
    const struct model_shape *shape = layer->shape;
    struct dropout dropout = masks_at(&layer->masks, shape, site, layer->number);

    *dropped_out = layer->masks.drop ? layer->scratch->dropped : dy;
    return layer->masks.drop ? device_kernels(layer->device)
                                   ->dropout_backward(layer->scratch->dropped, dy,
                                                      model_own_rows(shape), shape->C, &dropout,
                                                      shape->type, device_stream(layer->device))
                             : STATUS_OK;
}

/* dy·wᵀ with w column-parallel: the gradient of an input that every shard has read is the sum of
 * what they all make of it. *dx_out (n,C) lends own rows of it, in scratch->hidden. */
static enum status gradient_of_copied(const struct layer *layer, const void *dy, const void *w,
                                      const struct linear_shape *linear, float **dx_out)
{
    float *hidden = layer->scratch->hidden;

    TRY(linear_backward_input(hidden, DTYPE_FP32, dy, w, linear, layer->device));
    return own_rows_sum(layer->shape, layer->scratch, hidden, dx_out);
}

/* dw += xᵀ·dy with w column-parallel and own rows of x. */
static enum status weight_of_columns(const struct layer *layer, float *dw, const void *x,
                                     const void *dy, const struct linear_shape *linear)
{
    const void *all = NULL;

    TRY(own_rows_gather(layer->shape, layer->scratch, x, &all));
    return linear_backward_weight(dw, all, dy, linear, layer->device);
}

/* dw += xᵀ·dy with w row-parallel and own rows of dy, which go through the mask first. */
static enum status weight_of_rows(const struct layer *layer, enum site site, float *dw,
                                  const void *x, const void *dy, const struct linear_shape *linear)
{
    const void *dropped = NULL;
    const void *all = NULL;

    TRY(behind_mask(layer, site, dy, &dropped));
    TRY(own_rows_gather(layer->shape, layer->scratch, dropped, &all));
    return linear_backward_weight(dw, x, all, linear, layer->device);
}

static enum status first_norm(const struct layer *layer, const struct layer_stash *stash,
                              const void *x)
{
    const struct model_shape *shape = layer->shape;

    return device_kernels(layer->device)
        ->layernorm_forward(stash->norm1, stash->mean1, stash->rstd1, x,
                            layer->weights->ln_1_weight, layer->weights->ln_1_bias,
                            model_own_rows(shape), shape->C, shape->eps, shape->type,
                            device_stream(layer->device));
}

static enum status second_norm(const struct layer *layer, const struct layer_stash *stash)
{
    const struct model_shape *shape = layer->shape;

    return device_kernels(layer->device)
        ->layernorm_forward(stash->norm2, stash->mean2, stash->rstd2, stash->mid,
                            layer->weights->ln_2_weight, layer->weights->ln_2_bias,
                            model_own_rows(shape), shape->C, shape->eps, shape->type,
                            device_stream(layer->device));
}

/* From Q, K and V to what the heads have read. */
static enum status attend(const struct layer *layer, const struct layer_stash *stash)
{
    struct attention_shape attention = attention_shape_of(layer->shape);
    struct attention_slice slice = {layer->shape->first, layer->shape->T};
    struct attention_dropout masks = masks_of_attention(&layer->masks, layer->shape, layer->number);
    const struct attention_dropout *dropout = layer->masks.drop ? &masks : NULL;
    const struct kernel_ops *kernels = device_kernels(layer->device);
    struct stream *stream = device_stream(layer->device);
    float *workspace = layer->scratch->attention;
    enum dtype type = layer->shape->type;

    return layer->keys.keys != NULL
               ? kernels->attention_slice_forward(stash->attention, stash->lse, layer->keys.keys,
                                                  stash->qkv, &attention, &slice, dropout,
                                                  workspace, type, stream)
               : kernels->attention_forward(stash->attention, stash->lse, stash->qkv, &attention,
                                            dropout, workspace, type, stream);
}

/* The way back, from dout (N,A). */
static enum status attend_backward(const struct layer *layer, const struct layer_stash *stash,
                                   void *dqkv, const float *dout)
{
    struct attention_shape attention = attention_shape_of(layer->shape);
    struct attention_slice slice = {layer->shape->first, layer->shape->T};
    struct attention_dropout masks = masks_of_attention(&layer->masks, layer->shape, layer->number);
    const struct attention_dropout *dropout = layer->masks.drop ? &masks : NULL;
    const struct kernel_ops *kernels = device_kernels(layer->device);
    struct stream *stream = device_stream(layer->device);
    float *workspace = layer->scratch->attention;
    enum dtype type = layer->shape->type;

    return layer->keys.keys != NULL
               ? kernels->attention_slice_backward(
                     dqkv, layer->keys.dkeys, dout, stash->attention, layer->keys.keys, stash->qkv,
                     stash->lse, &attention, &slice, dropout, workspace, type, stream)
               : kernels->attention_backward(dqkv, dout, stash->attention, stash->qkv, stash->lse,
                                             &attention, dropout, workspace, type, stream);
}

static enum status attention_half(const struct layer *layer, const struct layer_stash *stash,
                                  const void *x)
{
    const struct layer_tensors *weights = layer->weights;
    struct linear_shape in = to_qkv(layer->shape);
    struct linear_shape out = from_heads(layer->shape);
    const void *all = NULL;

    TRY(first_norm(layer, stash, x));
    TRY(own_rows_gather(layer->shape, layer->scratch, stash->norm1, &all));
    TRY(linear_forward_bias(stash->qkv, all, weights->c_attn_weight, weights->c_attn_bias, &in,
                            layer->device));
    TRY(attend(layer, stash));
    return project_to_residual(layer, SITE_DROPOUT_HEADS, stash->mid, stash->attention,
                               weights->c_proj_weight, weights->c_proj_bias, x, &out);
}

static enum status mlp_inner(const struct layer *layer, const struct layer_stash *stash)
{
    const struct layer_tensors *weights = layer->weights;
    struct linear_shape in = to_inner(layer->shape);
    const void *all = NULL;

    TRY(second_norm(layer, stash));
    TRY(own_rows_gather(layer->shape, layer->scratch, stash->norm2, &all));
    return linear_forward_gelu(stash->gelu, stash->inner, all, weights->c_fc_weight,
                               weights->c_fc_bias, &in, layer->device);
}

static enum status mlp_project(const struct layer *layer, const struct layer_stash *stash, void *y)
{
    struct linear_shape out = from_inner(layer->shape);

    return project_to_residual(layer, SITE_DROPOUT_MLP, y, stash->gelu,
                               layer->weights->m_proj_weight, layer->weights->m_proj_bias,
                               stash->mid, &out);
}

enum status layer_forward(const struct layer *layer, const struct layer_stash *stash, const void *x,
                          void *y)
{
    TRY(attention_half(layer, stash, x));
    TRY(mlp_inner(layer, stash));
    return mlp_project(layer, stash, y);
}

static enum status recompute_cheap(const struct layer *layer, const struct layer_stash *stash,
                                   const void *x)
{
    const struct model_shape *shape = layer->shape;

    TRY(first_norm(layer, stash, x));
    TRY(attend(layer, stash));
    TRY(second_norm(layer, stash));
    return device_kernels(layer->device)
        ->gelu_forward(stash->gelu, stash->inner, model_rows(shape) * shape->inner, shape->type,
                       device_stream(layer->device));
}

enum status layer_recompute(const struct layer *layer, const struct layer_stash *stash,
                            enum recompute recompute, const void *x, void *y)
{
    if (recompute == RECOMPUTE_NONE) {
        return STATUS_OK;
    }
    if (recompute == RECOMPUTE_SELECTIVE) {
        return recompute_cheap(layer, stash, x);
    }
    TRY(attention_half(layer, stash, x));
    TRY(mlp_inner(layer, stash));
    return y != NULL ? mlp_project(layer, stash, y) : STATUS_OK;
}

static enum status mlp_half_backward(const struct layer *layer, const struct layer_stash *stash,
                                     const struct layer_gradients *kept, const void *dy)
{
    const struct kernel_ops *kernels = device_kernels(layer->device);
    struct stream *stream = device_stream(layer->device);
    const struct layer_tensors *weights = layer->weights;
    const struct layer_tensors *sums = layer->sums;
    enum dtype type = layer->shape->type;
    struct linear_shape in = to_inner(layer->shape);
    struct linear_shape out = from_inner(layer->shape);
    size_t rows = model_own_rows(layer->shape);
    const void *dropped = NULL;
    const void *all = NULL;
    float *dnorm = NULL;

    TRY(behind_mask(layer, SITE_DROPOUT_MLP, dy, &dropped));
    TRY(kernels->bias_backward(sums->m_proj_bias, dropped, rows, out.M, type, stream));
    TRY(own_rows_gather(layer->shape, layer->scratch, dropped, &all));
    TRY(linear_backward_gelu(kept->inner, sums->c_fc_bias, all, weights->m_proj_weight,
                             stash->inner, &out, layer->device));
    TRY(gradient_of_copied(layer, kept->inner, weights->c_fc_weight, &in, &dnorm));
    return kernels->layernorm_backward(kept->mid, sums->ln_2_weight, sums->ln_2_bias, dnorm, dy,
                                       stash->mid, weights->ln_2_weight, stash->mean2, stash->rstd2,
                                       rows, in.K, layer->scratch->norm, type, stream);
}

static enum status attention_half_backward(const struct layer *layer,
                                           const struct layer_stash *stash,
                                           const struct layer_gradients *kept, const void *x,
                                           void *dx)
{
    const struct kernel_ops *kernels = device_kernels(layer->device);
    struct stream *stream = device_stream(layer->device);
    const struct layer_tensors *weights = layer->weights;
    const struct layer_tensors *sums = layer->sums;
    float *hidden = layer->scratch->hidden;
    enum dtype type = layer->shape->type;
    struct linear_shape in = to_qkv(layer->shape);
    struct linear_shape out = from_heads(layer->shape);
    size_t rows = model_own_rows(layer->shape);
    const void *dropped = NULL;
    const void *all = NULL;
    float *dnorm = NULL;

    TRY(behind_mask(layer, SITE_DROPOUT_HEADS, kept->mid, &dropped));
    TRY(kernels->bias_backward(sums->c_proj_bias, dropped, rows, out.M, type, stream));
    TRY(own_rows_gather(layer->shape, layer->scratch, dropped, &all));
    TRY(linear_backward_input(hidden, DTYPE_FP32, all, weights->c_proj_weight, &out,
                              layer->device));
    TRY(attend_backward(layer, stash, kept->qkv, hidden));
    TRY(kernels->bias_backward(sums->c_attn_bias, kept->qkv, in.N, in.M, type, stream));
    TRY(gradient_of_copied(layer, kept->qkv, weights->c_attn_weight, &in, &dnorm));
    return kernels->layernorm_backward(dx, sums->ln_1_weight, sums->ln_1_bias, dnorm, kept->mid, x,
                                       weights->ln_1_weight, stash->mean1, stash->rstd1, rows, in.K,
                                       layer->scratch->norm, type, stream);
}

enum status layer_backward_input(const struct layer *layer, const struct layer_stash *stash,
                                 const struct layer_gradients *kept, const void *x, const void *dy,
                                 void *dx)
{
    TRY(mlp_half_backward(layer, stash, kept, dy));
    return attention_half_backward(layer, stash, kept, x, dx);
}

enum status layer_backward_weight(const struct layer *layer, const struct layer_stash *stash,
                                  const struct layer_gradients *kept, const void *dy)
{
    const struct layer_tensors *sums = layer->sums;
    struct linear_shape mlp_out = from_inner(layer->shape);
    struct linear_shape mlp_in = to_inner(layer->shape);
    struct linear_shape attention_out = from_heads(layer->shape);
    struct linear_shape attention_in = to_qkv(layer->shape);

    TRY(weight_of_rows(layer, SITE_DROPOUT_MLP, sums->m_proj_weight, stash->gelu, dy, &mlp_out));
    TRY(weight_of_columns(layer, sums->c_fc_weight, stash->norm2, kept->inner, &mlp_in));
    TRY(weight_of_rows(layer, SITE_DROPOUT_HEADS, sums->c_proj_weight, stash->attention, kept->mid,
                       &attention_out));
    return weight_of_columns(layer, sums->c_attn_weight, stash->norm1, kept->qkv, &attention_in);
}
